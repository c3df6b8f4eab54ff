"""The classes a preset may name: a closed set, by registered name."""

import inspect

import keras
import keras_hub

from keras_tta import data, models
from keras_tta.layers import (
    CopyHead,
    EmbeddingHead,
    ReplacedTokenHead,
    TokenPredictionHead,
    corruption,
)


def _by_name(*classes):
    return {keras.saving.get_registered_name(cls): cls for cls in classes}


def _exported(module, base):
    members = map(module.__dict__.get, module.__all__)
    return _by_name(*(x for x in members if inspect.isclass(x) and issubclass(x, base)))


OUR_BACKBONES = _exported(models, keras_hub.models.Backbone)
BACKBONES = OUR_BACKBONES | _by_name(
    keras_hub.models.T5Backbone, keras_hub.models.BartBackbone
)
TOKENIZERS = _exported(data, keras_hub.models.Tokenizer)
MASKERS = _exported(corruption, corruption.Masker)
HEADS = _by_name(TokenPredictionHead, CopyHead, EmbeddingHead, ReplacedTokenHead)

# KerasHub's `Tokenizer.from_preset` asks for a registered tokenizer of the preset's
# backbone, and then makes the one that the preset names. These are there to be found.
for _backbone in OUR_BACKBONES.values():
    keras.saving.register_keras_serializable(package="keras_tta")(
        type(
            f"{_backbone.__name__}Tokenizer",
            (keras_hub.tokenizers.Tokenizer,),
            {"backbone_cls": _backbone},
        )
    )
