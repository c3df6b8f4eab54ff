"""What `pretrain.py --objective` can be: each a corruption, a backbone and a loss.

Every function takes the size of the network as the keyword arguments that KerasHub's
backbones share, and a tokenizer; it returns a pretrainer, not compiled.
"""

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
from keras_tta.pretraining import (
    CausalLM,
    LanguageAutoencoder,
    MaskedLM,
    Seq2SeqDenoiser,
)
from keras_tta.visibility import Causal

NUM_SENTINELS = 100
# UL2 tells the decoder which denoiser it is by a token of its own.
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
    return Seq2SeqDenoiser(
        keras_hub.models.T5Backbone(**size),
        corruption(size["vocabulary_size"], **settings),
        sequence_length,
    )


ENCODERS = {"tta": tta, "mlm": mlm, "clm": clm}
DENOISERS = {"span": span, "prefix": prefix, "ul2": ul2, "mass": mass, "bart": bart}
OBJECTIVES = ENCODERS | DENOISERS
