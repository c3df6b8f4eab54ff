"""Pretraining objectives, each a functional `keras.Model`."""

from keras_tta.pretraining.bert_transformers_conversion import (
    convert_bert_transformers,
)
from keras_tta.pretraining.causal_lm import CausalLM
from keras_tta.pretraining.corrective_lm import CorrectiveLM
from keras_tta.pretraining.electra_checkpoint_conversion import (
    convert_electra_checkpoint,
)
from keras_tta.pretraining.electra_transformers_conversion import (
    ElectraNetwork,
    convert_electra_transformers,
)
from keras_tta.pretraining.language_autoencoder import LanguageAutoencoder
from keras_tta.pretraining.masked_lm import MaskedLM
from keras_tta.pretraining.replaced_token_detection import ReplacedTokenDetection
from keras_tta.pretraining.seq2seq_denoiser import Seq2SeqDenoiser
from keras_tta.pretraining.tta_checkpoint_conversion import convert_tta_checkpoint

__all__ = [
    "CausalLM",
    "CorrectiveLM",
    "ElectraNetwork",
    "LanguageAutoencoder",
    "MaskedLM",
    "ReplacedTokenDetection",
    "Seq2SeqDenoiser",
    "convert_bert_transformers",
    "convert_electra_checkpoint",
    "convert_electra_transformers",
    "convert_tta_checkpoint",
]
