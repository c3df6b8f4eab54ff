"""BERT's objective: the masked language model."""

import keras
from keras import ops

from keras_tta.checks import check_positive_integers
from keras_tta.layers.corruption import TokenMasking
from keras_tta.models.heads import token_prediction_head
from keras_tta.pretraining.packing import training_backbone
from keras_tta.pretraining.pretrainer import Pretrainer


@keras.saving.register_keras_serializable(package="keras_tta")
class MaskedLM(Pretrainer):
    """Predicts the tokens that a masking has hidden, from all that are left (BERT).

    Training masks a row afresh in every step, on the device, unless the masking has
    `static_copies`; validation always masks a row in the same way. The hidden states of
    the K masked positions are gathered before the head, so the product with the
    vocabulary is paid for these alone. The loss is the mean negative log-likelihood, in
    nats, over masked tokens (Devlin et al., 2019, and its code).

    `pseudo_perplexity` is reported over the masked tokens, with the others of the mask
    hidden too: it falls with the masking rate and is no T-TA's.

    Args:
        backbone: usually a `keras_tta.models.TransformerBackbone`.
        masking: a `keras_tta.layers.corruption.TokenMasking`.
        sequence_length: T, to which every training batch is padded: the number of
            predictions follows from it. Defaults to the backbone's
            `max_sequence_length`.
        packed: whether rows hold several sequences. Training then takes `segment_ids`
            and `position_ids` too, and no sequence sees another; `backbone` and
            `language_model` stay as they are. Defaults to `False`.

    Call arguments:
        inputs: the backbone's inputs, (B, T); `word_ids` if the masking is of whole
            words; `segment_ids` and `position_ids` if packed.

    Returns:
        A dict of `hidden` (B, K, D), `labels` and `weights` (B, K), and `num_clamped`
        (B,), see `Masker`; its sum is a metric. For logits call `language_model`, which
        masks nothing, for hidden states `backbone`.

    Raises:
        ValueError: if the masking is none, hides nothing or knows tokens the backbone
            does not, or `sequence_length` is too long for the backbone.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import TokenMasking
    from keras_tta.models import TransformerBackbone
    from keras_tta.pretraining import MaskedLM

    backbone = TransformerBackbone(
        vocabulary_size=30,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=8,
    )
    masking = TokenMasking(30, mask_token_id=4, special_token_ids=(0, 1, 3))
    pretrainer = MaskedLM(backbone, masking)
    pretrainer.compile()

    batch = {
        "token_ids": np.random.default_rng(0).integers(5, 30, (64, 8)),
        "padding_mask": np.ones((64, 8), bool),
    }
    history = pretrainer.fit(batch, epochs=2, verbose=0)
    assert history.history["nats_per_token"][-1] < 4
    assert tuple(pretrainer.language_model(batch).shape) == (64, 8, 30)
    ```
    """

    # BERT's paper, appendix A.2: a peak of 1e-4 after 10,000 of 1,000,000 steps.
    recipe = {"learning_rate": 1e-4, "warmup": 0.01}

    def __init__(self, backbone, masking, sequence_length=None, packed=False, **kwargs):
        reader, inputs, masked = masked_rows(
            self, backbone, masking, sequence_length, packed
        )
        hidden = reader(
            {name: inputs[name] for name in reader.input}
            | {"token_ids": masked["token_ids"]}
        )
        targets = {
            "hidden": at_positions(hidden, masked["masked_positions"]),
            "labels": masked["labels"],
            "weights": ops.cast(masked["sample_weight"], "float32"),
            "num_clamped": masked["num_clamped"],
        }
        super().__init__(
            backbone,
            token_prediction_head(backbone),
            inputs,
            targets,
            masking.special_token_ids,
            **kwargs,
        )
        self.masking = masking
        self.sequence_length = inputs["token_ids"].shape[1]
        self.packed = packed

    def predicted_tokens(self, batch):
        return self.masking.count_masked(batch["token_ids"], batch["padding_mask"])

    def get_config(self):
        return {
            **super().get_config(),
            "masking": keras.saving.serialize_keras_object(self.masking),
            "sequence_length": self.sequence_length,
            "packed": self.packed,
        }


def at_positions(hidden, positions):
    """Of hidden states (B, T, D) those at the positions (B, K): (B, K, D)."""
    return ops.take_along_axis(hidden, ops.expand_dims(positions, -1), axis=1)


def masked_rows(owner, backbone, masking, sequence_length, packed):
    """Where the graph of a masked objective, the owner, begins.

    Returns:
        `(reader, inputs, masked)`: the backbone that reads the rows, the model's
        symbolic inputs by name, and what the masking makes of them.
    """
    if not isinstance(masking, TokenMasking):
        raise ValueError(
            "`masking` must be a `keras_tta.layers.corruption.TokenMasking`. "
            f"Received: masking={masking!r}"
        )
    if not masking.mask_rate:
        raise ValueError(
            "The masking hides nothing, so there is nothing to learn. Received: a "
            "TokenMasking with mask_rate=0.0"
        )
    if masking.vocabulary_size > backbone.vocabulary_size:
        raise ValueError(
            f"The masking knows {masking.vocabulary_size} tokens, the backbone "
            f"{backbone.vocabulary_size}: give both the same vocabulary_size."
        )
    if sequence_length is None:
        sequence_length = backbone.max_sequence_length
    check_positive_integers(owner, sequence_length=sequence_length)
    if sequence_length > backbone.max_sequence_length:
        raise ValueError(
            "`sequence_length` must not exceed the backbone's max_sequence_length, "
            f"{backbone.max_sequence_length}. "
            f"Received: sequence_length={sequence_length}"
        )
    reader = training_backbone(backbone, packed)
    names = list(reader.input)
    if masking.whole_word and "word_ids" not in names:
        names.append("word_ids")
    inputs = {
        name: keras.Input((sequence_length,), dtype="int32", name=name)
        for name in names
    }
    masked = masking(
        inputs["token_ids"],
        inputs["padding_mask"],
        word_ids=inputs["word_ids"] if masking.whole_word else None,
    )
    return reader, inputs, masked
