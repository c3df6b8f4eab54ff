"""Generators of replacements: which weights they share, and those that learn nothing.

Axes: B batch, K predictions a row, D model width, V vocabulary.
"""

import keras
import numpy as np
from keras import ops

from keras_tta.layers import TransformerEmbedding

TIES = ("none", "tokens", "embeddings", "all")


def tied_generator(generator, discriminator, tie):
    """The generator on what it shares with the discriminator, whose tables are kept."""
    if tie == "all":
        return discriminator
    if tie == "embeddings" and generator.embeddings is not discriminator.embeddings:
        _check_tables(generator, discriminator)
        generator = generator.with_embeddings(discriminator.embeddings)
    if (
        tie == "tokens"
        and generator.token_embedding is not discriminator.token_embedding
    ):
        _check_tables(generator, discriminator)
        generator = generator.with_embeddings(
            _with_token_embedding(generator.embeddings, discriminator.token_embedding)
        )
    if generator.name == discriminator.name:
        # The layers of one graph have different names.
        name = f"{generator.name}_generator"
        generator = generator.with_embeddings(generator.embeddings, name=name)
    return generator


def _check_tables(generator, discriminator):
    for name in ("vocabulary_size", "embedding_dim"):
        ours, theirs = getattr(generator, name), getattr(discriminator, name)
        if ours != theirs:
            raise ValueError(
                f"The generator has {name}={ours}, the discriminator {theirs}; to "
                "share embeddings they need the same. Give the generator "
                f"{name}={theirs} (its hidden_dim may be smaller: a projection "
                "follows), or set tie='none'."
            )


def _with_token_embedding(embeddings, token_embedding):
    config = {**embeddings.get_config(), "token_embedding": token_embedding}
    shared = TransformerEmbedding.from_config(config)
    shared.build((None, None))
    for name in ("position_embedding", "segment_embedding", "norm"):
        if hasattr(embeddings, name):
            own = getattr(embeddings, name)
            getattr(shared, name).set_weights(own.get_weights())
    return shared


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


class WithoutDropout(keras.layers.Layer):
    """A backbone as it is used, also where the model around it is trained."""

    def __init__(self, backbone, **kwargs):
        super().__init__(**kwargs)
        self.backbone = backbone

    def call(self, inputs):
        return self.backbone(inputs, training=False)

    def compute_output_spec(self, inputs):
        return self.backbone.compute_output_spec(inputs)
