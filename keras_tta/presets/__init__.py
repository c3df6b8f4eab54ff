"""Presets: saved models, loaded with care, and readers of the authors' own weights."""

from keras_tta.presets.bert_transformers import (
    load_bert_transformers,
    save_bert_transformers,
)
from keras_tta.presets.electra_checkpoint import load_electra_checkpoint
from keras_tta.presets.electra_recipes import ELECTRA_RECIPES, ElectraRecipe
from keras_tta.presets.electra_transformers import (
    load_electra_transformers,
    save_electra_transformers,
)
from keras_tta.presets.files import PresetError
from keras_tta.presets.loading import load_backbone, load_head, load_tokenizer
from keras_tta.presets.saving import save_preset
from keras_tta.presets.tta_checkpoint import (
    assign_tta_variables,
    read_tta_checkpoint,
    tta_sizes,
)

__all__ = [
    "ELECTRA_RECIPES",
    "ElectraRecipe",
    "PresetError",
    "assign_tta_variables",
    "load_backbone",
    "load_bert_transformers",
    "load_electra_checkpoint",
    "load_electra_transformers",
    "load_head",
    "load_tokenizer",
    "read_tta_checkpoint",
    "save_bert_transformers",
    "save_electra_transformers",
    "save_preset",
    "tta_sizes",
]
