"""Scoring in one pass: batches go through the model, log-probabilities come back."""

import numpy as np
from rich.progress import track

from keras_tta.tasks.length_buckets import length_buckets
from keras_tta.tasks.token_models import (
    chosen_token_nats,
    token_candidates,
    token_nats,
)


class OnePass:
    """Reads encoded texts with a model that predicts every token in one pass.

    Args:
        backbone: with static keys and values, such as `keras_tta.models.TTABackbone`.
        head: predicts tokens, such as `keras_tta.layers.TokenPredictionHead`.
        batch_size: most rows in a batch.
        bucket_lengths: widths that rows are padded to, ascending.
    """

    def __init__(self, backbone, head, batch_size, bucket_lengths):
        self.backbone = backbone
        self.head = head
        self.batch_size = batch_size
        self.bucket_lengths = bucket_lengths
        self._models = {}

    @property
    def visibility(self):
        """What a token is predicted from, unless asked otherwise."""
        return self.backbone.visibility

    def log_probabilities(
        self, encoded, scored, rule, stride=None, only_scored=False, progress=False
    ):
        """The log-probability of each token, float64 in the layout of the flat tokens.

        Args:
            encoded: `EncodedTexts`.
            scored: bool, which tokens are asked for.
            rule: the visibility rule.
            stride: see `EncodedTexts.rows`.
            only_scored: whether to compute these tokens alone.
            progress: whether to show a bar.
        """
        log_probabilities = np.zeros(len(scored))
        rows = encoded.rows(self.backbone.max_sequence_length, stride, rule)
        model = self._model(chosen_token_nats if only_scored else token_nats, rule)
        buckets = length_buckets(rows.lengths, self.bucket_lengths, self.batch_size)
        if progress:
            buckets = track(list(buckets), "Scoring")
        for part, shape in buckets:
            starts, lengths, firsts, lasts = (x[part, None] for x in rows)
            slots = np.arange(shape[1])
            asked = (slots >= firsts) & (slots < lasts)
            asked[asked] = scored[(starts + slots)[asked]]
            inputs = encoded.inputs(starts[:, 0], lengths[:, 0], shape, model.input)
            if only_scored:
                inputs["positions"], asked_slots = _leftmost(asked, shape[0])
                nats = model.predict_on_batch(inputs)[: len(part)][asked_slots]
            else:
                nats = model.predict_on_batch(inputs)[: len(part)][asked]
            log_probabilities[(starts + slots)[asked]] = -nats
        return log_probabilities

    def candidates(self, encoded, asked, rule, count, excluded_token_ids):
        """The likeliest tokens where `asked` says, of one text.

        Returns:
            Log-probabilities, float32, and token ids, (P, K).
        """
        rows = encoded.rows(self.backbone.max_sequence_length, None, rule)
        ((_, shape),) = length_buckets(rows.lengths, self.bucket_lengths, 1)
        model = self._model(token_candidates, rule, count, excluded_token_ids)
        inputs = encoded.inputs(rows.starts, rows.lengths, shape, model.input)
        inputs["positions"], found = _leftmost(asked[None], 1)
        log_probabilities, token_ids = model.predict_on_batch(inputs)
        return log_probabilities[found], token_ids[found]

    def _model(self, function, rule, *arguments):
        key = function, rule, arguments
        if key not in self._models:
            backbone = self.backbone
            if rule != backbone.visibility:
                backbone = backbone.with_visibility(rule)
            self._models[key] = function(backbone, self.head, *arguments)
        return self._models[key]


def _leftmost(asked, height):
    """The slots asked for in each row, moved to the left.

    Returns:
        Slots, int32 (`height`, P) with P a power of two, lest there be many shapes; and
        which of the first rows' P are slots asked for and not filling.
    """
    counts = asked.sum(axis=1)
    width = 1
    while width < counts.max(initial=0):
        width *= 2
    is_slot = np.arange(width) < counts[:, None]
    slots = np.zeros((height, width), "int32")
    slots[: len(asked)][is_slot] = np.nonzero(asked)[1]
    return slots, is_slot
