"""Pretraining for text encoders in Keras 3.

Importing it registers every class, so that `keras_hub.models.Backbone.from_preset` and
`keras_hub.models.Tokenizer.from_preset` know ours.
"""

from keras_tta import (
    data,
    layers,
    models,
    presets,
    pretraining,
    training,
    visibility,
)
from keras_tta.version import __version__

__all__ = [
    "__version__",
    "data",
    "layers",
    "models",
    "presets",
    "pretraining",
    "training",
    "visibility",
]
