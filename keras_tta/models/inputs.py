"""The inputs of a backbone: token ids, padding mask, and what its rule needs."""

import keras


def backbone_inputs(rule):
    """Symbolic inputs (B, T) by name, for a model under a visibility rule."""
    names = ("token_ids", "padding_mask", *rule.needs)
    return {name: keras.Input((None,), dtype="int32", name=name) for name in names}
