"""Metrics over tokens, specials and padding left out.

All are means or sums weighted by token, updated from what the head's loss returns.
"""

import keras
from keras import ops


class TokenCount(keras.metrics.Sum):
    """How many tokens were predicted since the metric was reset."""

    def result(self):
        # A copy: on PyTorch the sum itself would change under whoever holds it.
        return self.total + 0.0


class PseudoPerplexity(keras.metrics.Mean):
    """Exponential of the mean nats a token, (Salazar et al., 2020, section 3.2).

    A pseudo-likelihood conditions each token on both sides: never compare it with the
    perplexity of a left-to-right model.
    """

    def result(self):
        return ops.exp(super().result())


class TokenMetrics:
    """The metrics every pretrainer reports, made and updated together.

    Args:
        special_token_ids: labels that do not count.
    """

    def __init__(self, special_token_ids):
        self.special_token_ids = special_token_ids
        self.nats_per_token = keras.metrics.Mean(name="nats_per_token")
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.pseudo_perplexity = PseudoPerplexity(name="pseudo_perplexity")
        self.tokens = TokenCount(name="tokens")

    def all(self):
        return [self.nats_per_token, self.accuracy, self.pseudo_perplexity, self.tokens]

    def update(self, nats, correct, labels, weights):
        """Count the positions whose label is an ordinary token; all are (B, T)."""
        counted = weights
        for token_id in self.special_token_ids:
            counted = counted * ops.cast(labels != token_id, "float32")
        self.nats_per_token.update_state(nats, counted)
        self.accuracy.update_state(ops.cast(correct, "float32"), counted)
        self.pseudo_perplexity.update_state(nats, counted)
        self.tokens.update_state(ops.cast(counted > 0, "float32"))
