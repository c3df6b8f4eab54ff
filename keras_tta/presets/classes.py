"""The classes a preset may name: a closed set, by registered name."""

import inspect

import keras
import keras_hub

from keras_tta import data, models
from keras_tta.layers import TokenPredictionHead, corruption


def _exported(module, base):
    members = map(module.__dict__.get, module.__all__)
    return {
        keras.saving.get_registered_name(member): member
        for member in members
        if inspect.isclass(member) and issubclass(member, base)
    }


BACKBONES = _exported(models, keras_hub.models.Backbone)
TOKENIZERS = _exported(data, keras_hub.models.Tokenizer)
MASKERS = _exported(corruption, corruption.Masker)
HEADS = {keras.saving.get_registered_name(TokenPredictionHead): TokenPredictionHead}

# KerasHub looks for a preset's tokenizer among those of its backbone. Data and models
# do not know each other, so they are introduced here.
for _tokenizer in TOKENIZERS.values():
    _tokenizer.backbone_cls = models.TTABackbone
