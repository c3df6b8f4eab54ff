"""The inputs of a backbone, and what its rule makes of them."""

import keras


def backbone_inputs(rule, *more):
    """Symbolic inputs (B, T) by name, for a model under a visibility rule.

    They are token ids, padding mask, what the rule needs, and `more`.
    """
    names = ("token_ids", "padding_mask", *rule.needs, *more)
    return {name: keras.Input((None,), dtype="int32", name=name) for name in names}


def visible_keys(visibility, inputs):
    """What a `VisibilityMask` makes of a backbone's inputs, (B, T, S)."""
    return visibility(
        inputs["padding_mask"],
        segment_ids=inputs.get("segment_ids"),
        word_ids=inputs.get("word_ids"),
    )
