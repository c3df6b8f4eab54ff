"""Scoring by a causal language model: one pass, every token from those before it."""

import numpy as np

from keras_tta.tasks.one_pass import OnePass
from keras_tta.tasks.token_models import (
    next_token_nats,
    token_nats,
)
from keras_tta.visibility import Causal


class CausalPass(OnePass):
    """Reads encoded texts with a model that predicts the next token.

    The score of a text is then the logarithm of its probability.
    """

    visibility = Causal(strict=True)

    def __init__(self, backbone, *args):
        if getattr(backbone, "num_segments", 0):
            raise ValueError(
                "A causal language model that embeds segments reads pairs, not texts. "
                f"Received: a backbone with num_segments={backbone.num_segments}"
            )
        super().__init__(backbone, *args)

    def log_probabilities(
        self, encoded, scored, rule, stride=None, only_scored=False, progress=False
    ):
        """As `OnePass.log_probabilities`, of all tokens at the cost of one pass."""
        self._check_rule(rule)
        if scored[encoded.offsets[:-1]].any():
            raise ValueError(
                "A causal language model predicts the first token, [SOS], from "
                'nothing, and so not at all: use `specials="end"`.'
            )
        return super().log_probabilities(
            encoded, scored, rule, stride, progress=progress
        )

    def candidates(self, encoded, asked, rule, count, excluded_token_ids):
        """As `OnePass.candidates`, read at the tokens before those asked for."""
        self._check_rule(rule)
        before = np.roll(asked, -1)
        if (encoded.is_blank & before).any():
            raise ValueError(
                "Two blanks in a row: a causal language model reads the second from "
                "the first, which is not known."
            )
        return super().candidates(encoded, before, rule, count, excluded_token_ids)

    def _model(self, function, rule, *arguments):
        if function is token_nats:
            function = next_token_nats
        return super()._model(function, self.backbone.visibility, *arguments)

    def _check_rule(self, rule):
        if rule != self.visibility:
            raise ValueError(
                "A causal language model predicts every token from those before it: "
                "leave `visibility` and `window` out. "
                f"Received a rule: {rule!r}"
            )
