"""Scoring by a masked language model: a pass for every token."""

import numpy as np
from rich.progress import track

from keras_tta.tasks.length_buckets import length_buckets
from keras_tta.tasks.token_models import masked_token_nats, token_candidates
from keras_tta.visibility import NotSelf, Side


class MaskedPasses:
    """Reads encoded texts with a model that predicts what is masked.

    Each token is predicted in a pass of its own, in which it reads [MASK], and with it
    every other token that the rule hides from it: none more under `NotSelf()` (Salazar
    et al., 2020), the pieces that follow in its word under `HideWord("right")` (Kauf
    and Ivanova, 2023). The passes of all texts go through the model in batches of
    like length, and only the masked position is multiplied with the vocabulary.

    Args:
        backbone: with contextual keys and values, such as
            `keras_tta.models.TransformerBackbone`.
        head: predicts tokens, such as `keras_tta.layers.TokenPredictionHead`.
        batch_size: most passes in a batch.
        bucket_lengths: widths that rows are padded to, ascending.
    """

    visibility = NotSelf()

    def __init__(self, backbone, head, batch_size, bucket_lengths):
        self.backbone = backbone
        self.head = head
        self.batch_size = batch_size
        self.bucket_lengths = bucket_lengths
        self._models = {}

    def log_probabilities(
        self, encoded, scored, rule, stride=None, only_scored=False, progress=False
    ):
        """As `OnePass.log_probabilities`; tokens that are not scored cost nothing."""
        log_probabilities = np.zeros(len(scored))
        model = self._model(masked_token_nats)
        batches = self._batches(encoded, scored, rule, stride, progress)
        for tokens, inputs in batches:
            nats = model.predict_on_batch(inputs)[: len(tokens), 0]
            log_probabilities[tokens] = -nats
        return log_probabilities

    def candidates(self, encoded, asked, rule, count, excluded_token_ids):
        """As `OnePass.candidates`; a text's blanks all read [MASK]."""
        shape = (len(asked), count)
        log_probabilities, token_ids = np.zeros(shape, "float32"), np.zeros(shape, int)
        model = self._model(token_candidates, count, excluded_token_ids)
        for tokens, inputs in self._batches(encoded, asked, rule):
            del inputs["labels"]
            best = model.predict_on_batch(inputs)
            log_probabilities[tokens], token_ids[tokens] = (
                x[: len(tokens), 0] for x in best
            )
        return log_probabilities[asked], token_ids[asked]

    def _batches(self, encoded, asked, rule, stride=None, progress=False):
        """The flat numbers of the tokens asked for, with the inputs of their passes."""
        rows = encoded.rows(self.backbone.max_sequence_length, stride, rule)
        row = np.repeat(np.arange(len(rows.starts)), rows.lasts - rows.firsts)
        slot = np.arange(len(row)) - np.searchsorted(row, row) + rows.firsts[row]
        is_asked = asked[rows.starts[row] + slot]
        row, slot = row[is_asked], slot[is_asked]
        starts, lengths = rows.starts[row], rows.lengths[row]
        buckets = length_buckets(lengths, self.bucket_lengths, self.batch_size)
        if progress:
            buckets = track(list(buckets), "Scoring")
        for part, shape in buckets:
            inputs = self._inputs(
                encoded, starts[part], lengths[part], slot[part], shape, rule
            )
            yield starts[part] + slot[part], inputs

    def _inputs(self, encoded, starts, lengths, slots, shape, rule):
        lengths, slots = (
            np.pad(x, (0, shape[0] - len(x)))[:, None] for x in (lengths, slots)
        )
        own = self.backbone.visibility
        inputs = encoded.inputs(
            starts, lengths[: len(starts), 0], shape, (*own.needs, *rule.needs)
        )
        positions = np.arange(shape[1])
        is_real = positions < lengths
        words = inputs.get("word_ids")
        one_segment = np.zeros((1, 1), int)
        query = Side(
            slots,
            one_segment,
            None if words is None else np.take_along_axis(words, slots, axis=1),
        )
        visible = rule.visible(query, Side(positions[None], one_segment, words))
        labels = np.take_along_axis(inputs["token_ids"], slots, axis=1)
        # Blanks read the mask token, which `encoded` has put there, and are seen.
        inputs["padding_mask"] = is_real.astype("int32")
        inputs["token_ids"] = np.where(
            is_real & ~visible, encoded.tokenizer.mask_token_id, inputs["token_ids"]
        ).astype("int32")
        if "segment_ids" not in own.needs:
            # A pair's first segment, where the model embeds segments.
            inputs["segment_ids"] = np.zeros(shape, "int32")
        return {
            **{name: inputs[name] for name in self.backbone.input},
            "positions": slots.astype("int32"),
            "labels": labels,
        }

    def _model(self, function, *arguments):
        key = function, arguments
        if key not in self._models:
            self._models[key] = function(self.backbone, self.head, *arguments)
        return self._models[key]
