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


BACKBONES = _exported(models, keras_hub.models.Backbone) | _by_name(
    keras_hub.models.T5Backbone, keras_hub.models.BartBackbone
)
TOKENIZERS = _exported(data, keras_hub.models.Tokenizer)
MASKERS = _exported(corruption, corruption.Masker)
HEADS = _by_name(TokenPredictionHead, CopyHead, EmbeddingHead, ReplacedTokenHead)

# KerasHub looks for a preset's tokenizer among those of its backbone. Data and models
# do not know each other, so they are introduced here.
for _tokenizer in TOKENIZERS.values():
    _tokenizer.backbone_cls = models.TTABackbone
