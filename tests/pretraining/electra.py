"""Two small networks, five rows, and what the loss says to move."""

import numpy as np
from keras import ops

from keras_tta.layers.corruption import TokenMasking
from keras_tta.models import TransformerBackbone
from keras_tta.pretraining import ReplacedTokenDetection
from tests.leakage.gradients import weight_gradients

SIZE = 20
SHARED = {"vocabulary_size": SIZE, "max_sequence_length": 8, "embedding_dim": 8}
# Full, short, one word, specials alone, padding alone.
LENGTHS = np.array([8, 5, 3, 2, 0])
BATCH = {
    "token_ids": np.random.default_rng(0).integers(7, SIZE, (5, 8)).astype("int32"),
    "padding_mask": np.arange(8) < LENGTHS[:, None],
}
BATCH["token_ids"][:, 0] = 3
BATCH["token_ids"][np.arange(4), LENGTHS[:4] - 1] = 1
BATCH["token_ids"][~BATCH["padding_mask"]] = 0
REAL = BATCH["padding_mask"]


def numpy(x):
    return ops.convert_to_numpy(x)


def make_masking(**options):
    settings = {"mask_rate": 0.4, "mask_share": 0.85, "random_share": 0.0, **options}
    return TokenMasking(SIZE, 4, (0, 1, 3), **settings)


def networks(dropout=0.0, noise=0.3):
    generator = TransformerBackbone(
        num_layers=1,
        num_heads=1,
        hidden_dim=4,
        intermediate_dim=6,
        dropout=dropout,
        **SHARED,
    )
    discriminator = TransformerBackbone(
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=12,
        dropout=dropout,
        **SHARED,
    )
    draw = np.random.default_rng(0)
    for weight in [*generator.weights, *discriminator.weights] if noise else []:
        change = noise * draw.normal(size=weight.shape)
        weight.assign(change + (weight.name == "gamma"))
    return generator, discriminator


def make_electra(tie=None, dropout=0.0, noise=0.3, masking=None, **options):
    generator, discriminator = networks(dropout, noise)
    if tie == "all":
        generator = None
    masking = masking or make_masking()
    electra = ReplacedTokenDetection(
        generator, discriminator, masking, tie=tie, **options
    )
    draw = np.random.default_rng(1)
    for weight in electra.head.weights if noise else []:
        weight.assign(0.5 * draw.normal(size=weight.shape))
    return electra


def tables(network):
    embeddings = network.embeddings
    return [
        numpy(table.embeddings).copy()
        for table in (embeddings.token_embedding, embeddings.position_embedding)
    ]


def nats(logits, labels):
    logits = numpy(logits).astype("float64")
    total = np.log(np.exp(logits).sum(-1))
    return total - np.take_along_axis(logits, labels[..., None], -1)[..., 0]


def loss_of(pretrainer, training=False, batch=BATCH):
    """The loss of a forward pass, without a compiled step."""
    targets = pretrainer(batch, training=training)
    return pretrainer.objective_loss(targets, 1.0, training, {})


def figures_of(pretrainer, batch=BATCH):
    """What `evaluate` gives, without a compiled step."""
    pretrainer.reset_metrics()
    loss = loss_of(pretrainer, batch=batch)
    metrics = {x.name: float(numpy(x.result())) for x in pretrainer._tracked_metrics}
    return {**metrics, "loss": float(numpy(loss))}


def gradients(pretrainer, weights):
    return weight_gradients(lambda: loss_of(pretrainer, training=True), weights)


def moved(electra):
    """Which weights have a gradient, by part."""
    parts = {
        "generator trunk": electra.generator.encoder.weights,
        "generator table": electra.generator.token_embedding.weights,
        "generator positions": electra.generator.embeddings.position_embedding.weights,
        "generator head": [electra.generator_head.transform_dense.kernel],
        "trunk": electra.backbone.encoder.weights,
        "table": electra.backbone.token_embedding.weights,
        "positions": electra.backbone.embeddings.position_embedding.weights,
        "head": electra.head.weights,
    }
    # Each once, for parts share weights.
    unique = list({id(w): w for weights in parts.values() for w in weights}.values())
    found = [x.any() for x in gradients(electra, unique)]
    with_gradient = {id(w) for w, any_ in zip(unique, found, strict=True) if any_}
    return {
        name for name, weights in parts.items() if {*map(id, weights)} & with_gradient
    }


DISCRIMINATOR = {"trunk", "table", "positions", "head"}
