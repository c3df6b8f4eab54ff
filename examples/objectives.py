"""What `pretrain.py --objective` can be: each a corruption, a backbone and a loss.

Every function takes the size of the network as the keyword arguments that KerasHub's
backbones share, and a tokenizer; it returns a pretrainer, not compiled.
"""

import dataclasses
import warnings

import keras_hub

from keras_tta.layers.corruption import (
    BARTDenoising,
    MASSDenoising,
    PrefixLM,
    SpanCorruption,
    TokenMasking,
    UL2Denoising,
)
from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.presets import ELECTRA_RECIPES
from keras_tta.pretraining import (
    CausalLM,
    CorrectiveLM,
    LanguageAutoencoder,
    MaskedLM,
    ReplacedTokenDetection,
    Seq2SeqDenoiser,
)
from keras_tta.visibility import Causal

NUM_SENTINELS = 100
# UL2 names the denoiser by a token before the encoder's text.
UL2_MODES = ("[R]", "[S]", "[X]")


def tta(size, tokenizer):
    """Every token from all others, in one pass."""
    backbone = TTABackbone(**size, mask_token_id=tokenizer.mask_token_id)
    return LanguageAutoencoder(
        backbone, special_token_ids=tokenizer.special_token_ids, packed=True
    )


def mlm(size, tokenizer):
    """BERT: 15 % of the tokens from all others."""
    masking = TokenMasking(
        size["vocabulary_size"], tokenizer.mask_token_id, tokenizer.special_token_ids
    )
    return MaskedLM(TransformerBackbone(**size), masking, packed=True)


def clm(size, tokenizer):
    """GPT: every token from those before it."""
    backbone = TransformerBackbone(**size, visibility=Causal())
    return CausalLM(
        backbone, special_token_ids=tokenizer.special_token_ids, packed=True
    )


def electra(size, tokenizer):
    """ELECTRA: which tokens are not the text's but a generator's, trained along."""
    return ReplacedTokenDetection(*replacements(size, tokenizer), packed=True)


def replace_mlm(size, tokenizer):
    """ELECTRA's inputs, and the 15 % that may be replaced are predicted, as by BERT."""
    networks = replacements(size, tokenizer)
    return CorrectiveLM(*networks, copy=False, loss_positions="masked", packed=True)


def all_tokens_mlm(size, tokenizer):
    """ELECTRA's inputs, and every token of the text is predicted or copied."""
    return CorrectiveLM(*replacements(size, tokenizer), packed=True)


def replacements(size, tokenizer):
    """A generator half as wide as the encoder, the encoder, and ELECTRA's masking."""
    size = dict(size)
    vocabulary_size = size.pop("vocabulary_size")
    recipe = dataclasses.replace(
        ELECTRA_RECIPES["tiny"],
        sequence_length=size.pop("max_sequence_length"),
        embedding_dim=size["hidden_dim"],
        **size,
    )
    masking = recipe.masking(
        vocabulary_size, tokenizer.mask_token_id, tokenizer.special_token_ids
    )
    return *recipe.backbones(vocabulary_size), masking


def span(size, tokenizer):
    """T5: a decoder writes the spans that the encoder's text lacks."""
    return denoiser(
        size,
        SpanCorruption,
        extra_tokens=NUM_SENTINELS,
        num_sentinels=NUM_SENTINELS,
    )


def prefix(size, tokenizer):
    """A decoder continues the text that the encoder begins."""
    return denoiser(size, PrefixLM)


def ul2(size, tokenizer):
    """UL2: short spans, long spans and prefixes, told apart by a mode token."""
    text = size["vocabulary_size"]
    modes = tuple(range(text, text + len(UL2_MODES)))
    return denoiser(
        size,
        UL2Denoising,
        extra_tokens=len(modes) + NUM_SENTINELS,
        num_sentinels=NUM_SENTINELS,
        mode_token_ids=modes,
        special_token_ids=modes,
    )


def mass(size, tokenizer):
    """MASS: a decoder writes the half of the text that the encoder sees masked."""
    return denoiser(size, MASSDenoising, mask_token_id=tokenizer.mask_token_id)


def bart(size, tokenizer):
    """BART: a decoder writes the text whose spans are masked and sentences moved."""
    vocabulary = tokenizer.get_vocabulary()
    ends = [vocabulary.index(end) for end in ".!?" if end in vocabulary]
    return denoiser(
        size,
        BARTDenoising,
        mask_token_id=tokenizer.mask_token_id,
        permutation_rate=1.0,
        sentence_end_token_ids=ends,
    )


def denoiser(size, corruption, extra_tokens=0, **settings):
    """A corruption over KerasHub's T5, whose vocabulary is the text's and some more."""
    size = {**size, "vocabulary_size": size["vocabulary_size"] + extra_tokens}
    sequence_length = size.pop("max_sequence_length")  # T5's positions have no end.
    # Padding reaches T5's attention as an argument; Keras's own mask is one too many.
    warnings.filterwarnings("ignore", ".*does not support masking")
    return Seq2SeqDenoiser(
        keras_hub.models.T5Backbone(**size),
        corruption(size["vocabulary_size"], **settings),
        sequence_length,
    )


ENCODERS = {"tta": tta, "mlm": mlm, "clm": clm}
# Two networks, of which the generator alone scores text.
WITH_GENERATOR = {
    "electra": electra,
    "replace_mlm": replace_mlm,
    "all_tokens_mlm": all_tokens_mlm,
}
DENOISERS = {"span": span, "prefix": prefix, "ul2": ul2, "mass": mass, "bart": bart}
OBJECTIVES = ENCODERS | WITH_GENERATOR | DENOISERS
