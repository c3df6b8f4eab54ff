"""A visibility rule for each row, drawn out of several.

Axes: B batch, T target (query) length, S source (key) length.
"""

import keras
import numpy as np
from keras import ops

from keras_tta.layers.attention import VisibilityMask
from keras_tta.layers.corruption.arrays import KerasArrays
from keras_tta.layers.corruption.draws import Draws, threshold
from keras_tta.layers.corruption.seed_and_step import (
    add_seed_and_step,
    next_seed_and_step,
)


@keras.saving.register_keras_serializable(package="keras_tta")
class MixedVisibilityMask(keras.layers.Layer):
    """Turns several visibility rules into one mask, each row under one of them.

    In training a row's rule is drawn afresh at every call; otherwise a row always has
    the same. The draws are those of the corruption layers, a hash of seed, step and the
    row's own tokens: the same on every backend, whatever the batch.

    Args:
        rules: list of `keras_tta.visibility.Visibility`.
        shares: how often each is drawn; positive numbers, of which the sum is 1.
        seed: defaults to 0.

    Call arguments:
        token_ids: (B, T) integers, of which the draws are a function.
        padding_mask: (B, T), true or 1 at real tokens.
        segment_ids, word_ids: (B, T) integers, if a rule needs them.

    Returns:
        Boolean (B, T, S) with S = T.

    Raises:
        ValueError: if the shares are not one for each rule, positive and of sum 1.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers import MixedVisibilityMask
    from keras_tta.visibility import Causal, NotSelf

    layer = MixedVisibilityMask([NotSelf(), Causal(strict=True)], [0.5, 0.5])
    token_ids = np.arange(24).reshape(6, 4)
    visible = np.array(layer(token_ids, token_ids >= 0))
    # A query sees 3 keys under the first rule, 0 to 3 under the second.
    assert set(visible.sum((1, 2)).tolist()) <= {12, 6}
    ```
    """

    def __init__(self, rules, shares, seed=0, **kwargs):
        super().__init__(**kwargs)
        shares = [float(share) for share in shares]
        if (
            len(shares) != len(rules)
            or not all(share > 0 for share in shares)
            or abs(sum(shares) - 1) > 1e-6
        ):
            raise ValueError(
                f"`shares` of MixedVisibilityMask must hold {len(rules)} positive "
                f"numbers, one for each rule, of which the sum is 1. Received: {shares}"
            )
        self.masks = [VisibilityMask(rule) for rule in rules]
        self.shares = shares
        self.seed = int(seed)

    def build(self, token_ids_shape, *_, **__):
        self.state = add_seed_and_step(self, self.seed)
        self.built = True

    def call(
        self, token_ids, padding_mask, segment_ids=None, word_ids=None, training=None
    ):
        token_ids = KerasArrays.int32(token_ids)
        is_real = ops.cast(padding_mask, "bool")
        seed, step = next_seed_and_step(self.state, training)
        draws = Draws(KerasArrays, token_ids, is_real, seed, step)
        draw = draws.unit("visibility", KerasArrays.int32([0]))  # (B, 1)
        draw = ops.expand_dims(draw, -1)
        *masks, visible = (
            mask(padding_mask, segment_ids=segment_ids, word_ids=word_ids)
            for mask in self.masks
        )
        limits = np.cumsum(self.shares)[:-1]
        for mask, limit in zip(reversed(masks), reversed(limits), strict=True):
            visible = ops.where(draw < threshold(limit), mask, visible)
        return visible

    def compute_output_spec(self, token_ids, padding_mask, *_, **__):
        return self.masks[0].compute_output_spec(padding_mask)

    def get_config(self):
        rules = [keras.saving.serialize_keras_object(mask.rule) for mask in self.masks]
        config = {"rules": rules, "shares": self.shares, "seed": self.seed}
        return {**super().get_config(), **config}
