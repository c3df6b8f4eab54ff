"""Pretrain text encoders in Keras 3, on TensorFlow, JAX and PyTorch, and use them.

Importing this package registers its classes with Keras, so that KerasHub, too, can
load what was saved with it.
"""

from keras_tta import (
    data,
    evaluation,
    layers,
    models,
    presets,
    pretraining,
    tasks,
    training,
    visibility,
)
from keras_tta.version import __version__

__all__ = [
    "__version__",
    "data",
    "evaluation",
    "layers",
    "models",
    "presets",
    "pretraining",
    "tasks",
    "training",
    "visibility",
]
