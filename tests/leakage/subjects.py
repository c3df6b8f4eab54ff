"""What the leakage tests look at: models, rules and batches with every edge in them."""

import keras
import numpy as np

from keras_tta.models import TTABackbone
from keras_tta.visibility import All, Causal, HideWord, NotSelf, SameSegment, Window

VOCABULARY_SIZE = 16
MASK_TOKEN_ID = 4

HIDING_RULES = (
    NotSelf(),
    Causal(strict=True),
    HideWord("all"),
    HideWord("right"),
    NotSelf() & Window(1),
    NotSelf() & SameSegment(),
    HideWord("all") | (NotSelf() & Window(1)),
    NotSelf() & (All() | SameSegment()),
)
SHOWING_RULES = (All(), Causal(), NotSelf() | Causal())

# Six slots. Rows: a sentence with [SOS] and [EOS]; one word with them; two pieces of
# one word, two words and one word without; nothing but padding.
PADDED = {
    "token_ids": np.array(
        [
            [3, 7, 9, 9, 12, 1],
            [3, 11, 1, 0, 0, 0],
            [8, 13, 0, 0, 0, 0],
            [5, 14, 10, 0, 0, 0],
            [6, 0, 0, 0, 0, 0],
            [0, 0, 0, 0, 0, 0],
        ],
        "int32",
    ),
    "padding_mask": np.arange(6) < np.array([6, 3, 2, 3, 1, 0])[:, None],
    "segment_ids": np.array([[0, 0, 0, 1, 1, 2]] * 6, "int32"),
    "position_ids": np.array([[0, 1, 2, 0, 1, 0]] * 6, "int32"),
    "word_ids": np.array([[0, 1, 1, 1, 2, 3]] + [[0, 0, 1, 2, 3, 4]] * 5, "int32"),
}


def unpadded(length):
    """Rows of exactly `length` tokens: the first and third of `PADDED`, cut."""
    batch = {name: ids[[0, 3]][:, :length] for name, ids in PADDED.items()}
    return {**batch, "padding_mask": np.ones((2, length), bool)}


def make_backbone(num_layers=4, query="mask", rule=None, dtype="float32", mutant=None):
    """A small T-TA whose weights are large enough for every path to be felt.

    Args:
        mutant: one of `tests.leakage.mutants`, done to the backbone.
    """
    backbone = TTABackbone(
        vocabulary_size=VOCABULARY_SIZE,
        num_layers=num_layers,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        max_sequence_length=8,
        query=query,
        visibility=rule,
        dtype=dtype,
    )
    draw = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign(weight + 0.4 * draw.normal(size=weight.shape))
    if mutant is not None:
        mutant(backbone)
    return backbone


def inputs_of(backbone, batch):
    return {name: batch[name] for name in backbone.input}


def positions_of(backbone, batch):
    """The position ids that the model takes for a batch, (B, T)."""
    slots = np.zeros_like(batch["token_ids"]) + np.arange(batch["token_ids"].shape[1])
    return inputs_of(backbone, batch).get("position_ids", slots.astype("int32"))


def visibility_of(backbone, batch):
    """The mask (B, T, S) that the model itself makes of a batch."""
    ids = {k: v for k, v in batch.items() if k in ("segment_ids", "word_ids")}
    visible = backbone.get_layer("visibility")(batch["padding_mask"], **ids)
    return keras.ops.convert_to_numpy(visible)
