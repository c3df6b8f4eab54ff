"""Checks that all tasks make of their model, their tokenizer and their texts."""

from collections.abc import Iterable, Mapping


def checked_model(model):
    """The model, if it has a backbone of ours and a head that predicts tokens.

    Raises:
        TypeError: if it has not.
        ValueError: if its generator alone can predict tokens.
    """
    backbone, head = (getattr(model, part, None) for part in ("backbone", "head"))
    if not hasattr(backbone, "static_key_value") or head is None:
        raise TypeError(
            "`model` must have a `backbone` of `keras_tta.models` and a `head`, as a "
            "`keras_tta.pretraining.LanguageAutoencoder`, `MaskedLM` or `CausalLM` "
            f"has. Received: model={model!r}"
        )
    if hasattr(model, "generator"):
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
