"""Checks that all tasks make of their model, their tokenizer and their texts."""

from collections.abc import Iterable, Mapping

import numpy as np


def checked_model(model, *parts):
    """The model, if it has a backbone of ours and the other parts asked for.

    Raises:
        TypeError: if it has not.
        ValueError: if it is to predict tokens, and its generator alone can.
    """
    backbone = getattr(model, "backbone", None)
    lacking = [part for part in parts if getattr(model, part, None) is None]
    if not hasattr(backbone, "static_key_value") or lacking:
        raise TypeError(
            "`model` must have "
            + " and a ".join(
                ["a `backbone` of `keras_tta.models`", *(f"`{p}`" for p in parts)]
            )
            + ", as a `keras_tta.pretraining.LanguageAutoencoder`, `MaskedLM` or "
            f"`CausalLM` has. Received: model={model!r}"
        )
    if "head" in parts and hasattr(model, "generator"):
        raise ValueError(
            f"The head of a {type(model).__name__} has never read a mask: it scores no "
            "text. A generator that learnt does: `TextScorer.from_preset` of the "
            "folder `generator` in the preset that it saves or, with tie='all', of the "
            'preset itself with head="generator_head".'
        )
    return model


def checked_texts(texts):
    """Texts as a list, and whether they came as one string.

    Raises:
        TypeError: if they are no collection of texts.
    """
    if isinstance(texts, str):
        return [texts], True
    if not isinstance(texts, Iterable) or isinstance(texts, (bytes, Mapping)):
        raise TypeError(
            "Texts must be a list of str, or one str. Received: "
            f"{type(texts).__name__} {texts!r}"
        )
    return list(texts), False


def checked_tokenizer(tokenizer, model, backbone):
    """The tokenizer given, else the one the model came with.

    Raises:
        ValueError: if there is neither, or it has more tokens than the backbone.
        TypeError: if it is no tokenizer of ours.
    """
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise ValueError(
            "The model came without a tokenizer: pass `tokenizer=...`, the one it "
            "was trained with."
        )
    if not hasattr(tokenizer, "encode_batch"):
        raise TypeError(
            "`tokenizer` must be one of `keras_tta.data`, such as `TTATokenizer`. "
            f"Received: tokenizer={tokenizer!r}"
        )
    if tokenizer.vocabulary_size() > backbone.vocabulary_size:
        raise ValueError(
            f"The tokenizer has {tokenizer.vocabulary_size()} tokens, the model knows "
            f"{backbone.vocabulary_size}: it was trained with another."
        )
    return tokenizer


def describe_unknown_tokens(encoded, texts):
    """How many tokens of texts are unknown and where the first is, or `None`."""
    at = np.flatnonzero(encoded.token_ids == encoded.tokenizer.unknown_token_id)
    if not len(at):
        return None
    in_texts = np.unique(encoded.text_of_token[at])
    text = texts[in_texts[0]]
    excerpt = repr(text if len(text) <= 60 else text[:60] + "...")
    return (
        f"{len(at)} of {len(encoded.token_ids) - 2 * len(texts)} tokens, in "
        f"{len(in_texts)} of {len(texts)} texts, are unknown to the tokenizer; the "
        f"first in the text at index {in_texts[0]}, {excerpt}."
    )
