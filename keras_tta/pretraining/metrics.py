"""Metrics over tokens, specials and padding left out.

All are means or sums weighted by token, updated from what the head's loss returns.
"""

import keras
from keras import ops

from keras_tta.training import TokenCount


@keras.saving.register_keras_serializable(package="keras_tta")
class Perplexity(keras.metrics.Mean):
    """Exponential of the mean nats per token.

    Where tokens are conditioned on both sides it is called pseudo-perplexity (Salazar
    et al., 2020, section 3.2); never compare the two.
    """

    def result(self):
        return ops.exp(super().result())


class TokenMetrics:
    """The metrics every pretrainer reports, made and updated together.

    Args:
        special_token_ids: labels that do not count.
        perplexity_name: `"perplexity"` or `"pseudo_perplexity"`.
    """

    def __init__(self, special_token_ids, perplexity_name):
        self.special_token_ids = special_token_ids
        self.nats_per_token = keras.metrics.Mean(name="nats_per_token")
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.perplexity = Perplexity(name=perplexity_name)
        self.tokens = TokenCount()

    def all(self):
        return [self.nats_per_token, self.accuracy, self.perplexity, self.tokens]

    def update(self, nats, correct, labels, weights):
        """Count the positions whose label is an ordinary token; all are (B, T)."""
        specials = ops.convert_to_tensor(self.special_token_ids, labels.dtype)
        is_special = ops.any(ops.expand_dims(labels, -1) == specials, axis=-1)
        counted = ops.where(is_special, 0.0, weights)
        self.nats_per_token.update_state(nats, counted)
        self.accuracy.update_state(ops.cast(correct, "float32"), counted)
        self.perplexity.update_state(nats, counted)
        self.tokens.update_state(counted > 0)
