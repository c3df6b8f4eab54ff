"""Checks that all tasks make of their tokenizer and their texts."""

import numpy as np


def checked_tokenizer(tokenizer, model, backbone):
    """The tokenizer given, else the one the model came with.

    Raises:
        ValueError: if there is neither, or it has more tokens than the backbone.
    """
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise ValueError(
            "The model came without a tokenizer: pass `tokenizer=...`, the one it "
            "was trained with."
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
