"""A head that predicts by frequency alone.

Axes: D model width, V vocabulary.
"""

import keras
import numpy as np
from keras import ops


@keras.saving.register_keras_serializable(package="keras_tta")
class UnigramHead(keras.layers.Layer):
    """Predicts every token by how frequent it is, whatever the context.

    Args:
        counts: V numbers, not negative: how often each token was seen. All the same for
            a uniform distribution.

    Call arguments:
        hidden: (..., D); its values are not looked at.

    Returns:
        Logits, float32 (..., V): log probabilities.

    Raises:
        ValueError: if the counts are not a list of numbers from 0 up, one above 0.
    """

    def __init__(self, counts, **kwargs):
        super().__init__(**kwargs)
        array = np.asarray(counts, "float64")
        if array.ndim != 1 or not np.isfinite(array).all() or (array < 0).any():
            raise ValueError(
                "`counts` must be a list of V finite numbers, none below 0. Received: "
                f"shape {array.shape}"
            )
        if not array.sum():
            raise ValueError("`counts` must hold a number above 0; all are 0.")
        self.counts = array.tolist()
        self.vocabulary_size = len(self.counts)
        with np.errstate(divide="ignore"):
            logits = np.log(array) - np.log(array.sum())
        self.log_probabilities = np.maximum(logits, -1e4).astype("float32")

    def call(self, hidden):
        zeros = ops.zeros_like(hidden[..., :1], dtype="float32")
        return zeros + ops.convert_to_tensor(self.log_probabilities)

    def compute_output_spec(self, hidden):
        return keras.KerasTensor(
            (*hidden.shape[:-1], self.vocabulary_size), dtype="float32"
        )

    def loss(self, hidden, labels, weights, training=None):
        """As `TokenPredictionHead.loss`; nothing is learnt."""
        nats = -ops.take(ops.convert_to_tensor(self.log_probabilities), labels)
        best = int(self.log_probabilities.argmax())
        return ops.sum(nats * ops.cast(weights, "float32")), nats, labels == best

    def get_config(self):
        return {**super().get_config(), "counts": self.counts}
