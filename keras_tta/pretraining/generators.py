"""Generators of replacements: which weights they share."""

import keras
import numpy as np
from keras import ops

from keras_tta.layers import DisentangledEmbedding

DISENTANGLED = ("token_embedding", "position_embedding")
TIES = ("none", "tokens", "embeddings", "disentangled", "all")


def tied_networks(generator, discriminator, tie):
    """Generator and discriminator on what they share."""
    if tie == "all":
        return discriminator, discriminator
    _check_tables(generator, discriminator, tie)
    shared, own = discriminator.embeddings, generator.embeddings
    if tie == "embeddings" and own is not shared:
        generator = generator.with_embeddings(shared)
    if tie == "tokens" and own.token_embedding is not shared.token_embedding:
        embeddings = own.copy(token_embedding=shared.token_embedding)
        generator = generator.with_embeddings(embeddings)
    if tie == "disentangled":
        generator = generator.with_embeddings(shared.copy())
        tables = {
            name: DisentangledEmbedding(
                getattr(generator.embeddings, name),
                dtype=discriminator.dtype_policy,
                name=name,
            )
            for name in DISENTANGLED
        }
        discriminator = discriminator.with_embeddings(shared.copy(**tables))
    if generator.name == discriminator.name:
        # The layers of one graph have different names.
        name = f"{generator.name}_generator"
        generator = generator.with_embeddings(generator.embeddings, name=name)
    return generator, discriminator


def restore_embeddings(objective, generator, discriminator):
    """Give an objective with disentangled tables those that two networks had."""
    if objective.tie != "disentangled":
        return
    own, saved = objective.generator.embeddings, generator.embeddings
    own.norm.set_weights(saved.norm.get_weights())
    if generator.num_segments:
        own.segment_embedding.set_weights(saved.segment_embedding.get_weights())
    for name in DISENTANGLED:
        shared, sum_of_both = (
            ops.convert_to_numpy(getattr(network.embeddings, name).embeddings)
            for network in (generator, discriminator)
        )
        table = getattr(objective.discriminator.embeddings, name)
        table.shared.embeddings.assign(shared)
        table.own.assign(sum_of_both - shared)


def check_learnt_tables(generator, discriminator, tie):
    """Raise if a generator that has learnt would lose its tables to a discriminator."""
    if tie not in ("tokens", "embeddings", "disentangled"):
        return
    ours, theirs = (
        (x.embeddings.token_embedding if tie == "tokens" else x.embeddings)
        for x in (generator, discriminator)
    )
    ours, theirs = ours.get_weights(), theirs.get_weights()
    if len(ours) != len(theirs) or not all(map(np.array_equal, ours, theirs)):
        raise ValueError(
            f"With tie={tie!r} the discriminator's embeddings would take the place of "
            "those that the generator, a MaskedLM, has learnt. Start the discriminator "
            "from them: `discriminator.embeddings.set_weights(masked_lm.backbone."
            "embeddings.get_weights())`; or pass the MaskedLM's backbone, to learn "
            "them anew; or tie='none'."
        )


def _check_tables(generator, discriminator, tie):
    ours, theirs = generator.vocabulary_size, discriminator.vocabulary_size
    if ours != theirs:
        raise ValueError(
            "The generator's samples are what the discriminator reads: both must know "
            "the same tokens. Give them one vocabulary_size. Received: a generator of "
            f"{ours} and a discriminator of {theirs}"
        )
    missing = [name for name in generator.input if name not in discriminator.input]
    if missing:
        raise ValueError(
            f"The generator reads `{missing[0]}` and the discriminator does not, but "
            "both read the same rows: give them the same `num_segments` and "
            "`visibility`."
        )
    ours, theirs = generator.embedding_dim, discriminator.embedding_dim
    if tie != "none" and ours != theirs:
        raise ValueError(
            f"The generator has embedding_dim={ours}, the discriminator {theirs}; to "
            "share embeddings they need the same. Give the generator "
            f"embedding_dim={theirs} (its hidden_dim may be smaller: a projection "
            "follows), or set tie='none'."
        )


class WithoutDropout(keras.layers.Layer):
    """A backbone as it is used, also where the model around it is trained."""

    def __init__(self, backbone, **kwargs):
        super().__init__(**kwargs)
        self.backbone = backbone

    def call(self, inputs):
        return self.backbone(inputs, training=False)

    def compute_output_spec(self, inputs):
        return self.backbone.compute_output_spec(inputs)
