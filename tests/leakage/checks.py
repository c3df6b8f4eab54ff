"""The ways to find a leak. Each raises an AssertionError that says where it is.

All ask for exact zeros and equal bits, which one compiled function gives for inputs of
one shape. And each asks that what should be seen is: a model that reads nothing at
all would leak nothing.
"""

from contextlib import ExitStack
from functools import cache
from unittest.mock import patch

import keras
import numpy as np
from keras import ops

from keras_tta.models import TTABackbone
from keras_tta.pretraining import LanguageAutoencoder
from tests.leakage.gradients import jacobian, project, support
from tests.leakage.subjects import (
    MASK_TOKEN_ID,
    VOCABULARY_SIZE,
    inputs_of,
    positions_of,
    visibility_of,
)

NOISE_VOCABULARY = np.arange(5, VOCABULARY_SIZE)


def check_jacobian(backbone, batch, jit=False):
    """At every depth, a position moves with the tokens it may see and no others.

    Differentiated with respect to the vectors that were looked up, never the table:
    the query may hold the mask token's embedding.
    """
    embeddings = backbone.embeddings
    vectors = embeddings.token_embedding(batch["token_ids"])
    vectors = ops.convert_to_numpy(ops.cast(vectors, "float32"))
    visible = visibility_of(backbone, batch)
    derive = _layer_jacobian(embeddings, backbone.encoder, jit)
    derivative = derive(vectors, visible, positions_of(backbone, batch))
    for depth, reached in enumerate(support(derivative), start=1):
        _assert_hides_self(reached, f"depth {depth}")
        np.testing.assert_array_equal(reached, visible, f"depth {depth}")


@cache
def _layer_jacobian(embeddings, encoder, jit):
    def layers(vectors, visible, positions):
        vectors = ops.cast(vectors, embeddings.compute_dtype)
        query, key_value = embeddings.streams(vectors, positions)
        return project(ops.stack(encoder.layer_outputs(query, key_value, visible)))

    return jacobian(layers, jit)


def check_substitution(backbone, batch, jit=False):
    """Another token at a position changes the logits of those who see it alone."""
    predict = _predictor(backbone, batch, jit)
    visible = visibility_of(backbone, batch)
    token_ids = batch["token_ids"]
    before = predict(token_ids)
    for position in range(token_ids.shape[1]):
        changed = token_ids.copy()
        changed[:, position] = (changed[:, position] + 6) % VOCABULARY_SIZE
        moved = np.any(predict(changed) != before, axis=-1)
        where = f"token {position} replaced"
        assert not moved[:, position].any(), f"{where}: a position sees itself"
        np.testing.assert_array_equal(moved, visible[:, :, position], where)


def check_one_pass_is_n_passes(backbone, batch, jit=False):
    """All positions at once are scored as one by one, each with its token masked."""
    predict = _predictor(backbone, batch, jit)
    one_pass = predict(batch["token_ids"])
    for position in range(batch["token_ids"].shape[1]):
        masked = batch["token_ids"].copy()
        masked[:, position] = MASK_TOKEN_ID
        logits = predict(masked)
        equal = np.array_equal(logits[:, position], one_pass[:, position])
        assert equal, f"position {position} sees itself"
        # The mask token is seen by others, so the passes are not all the same.
        if visibility_of(backbone, batch)[:, :, position].any():
            assert not np.array_equal(logits, one_pass)


@cache
def _language_model(backbone, jit):
    model = LanguageAutoencoder(backbone).language_model
    # Weights of the head, too, large enough to be felt.
    model.layers[-1].bias.assign(np.linspace(-1, 1, VOCABULARY_SIZE))
    model.compile(jit_compile=jit)
    return model


def _predictor(backbone, batch, jit):
    """Token ids to logits, one compiled function for all ids of one shape."""
    model = _language_model(backbone, jit)
    inputs = inputs_of(backbone, batch)
    return lambda token_ids: model.predict_on_batch({**inputs, "token_ids": token_ids})


def check_reachability(backbone, batch):
    """Which tokens can reach which position, by the wiring alone, at any weights.

    Follows two boolean matrices, of what the query stream and the memory hold, through
    the masks that the layers were seen to apply.
    """
    query_holds_token, layers = _wiring(backbone, batch)
    own = np.eye(batch["token_ids"].shape[1], dtype=bool)[None]
    query, memory = own & query_holds_token, own
    for depth, (memory_is_static, applied) in enumerate(layers, start=1):
        if not memory_is_static:
            memory = memory | query
        query = query | (applied @ memory)
        _assert_hides_self(query, f"depth {depth}")
    np.testing.assert_array_equal(query, visibility_of(backbone, batch))


def _wiring(backbone, batch):
    """Watches a forward pass. Does the query stream start from tokens? And of each
    layer: is its memory the static one, and where are its attention weights not 0?"""
    embeddings, encoder = backbone.embeddings, backbone.encoder
    reads, weights = [], []
    with ExitStack() as watch:
        for attention in encoder.attentions:
            watch.enter_context(_recording(attention, reads))
            watch.enter_context(_recording(attention.weights_dropout, weights))
        backbone(inputs_of(backbone, batch))
    positions, other_ids = positions_of(backbone, batch), batch["token_ids"][:, ::-1]
    query, memory = embeddings(batch["token_ids"], positions)
    other_query, _ = embeddings(other_ids, positions)
    static = ops.split(encoder.key_value_dense(memory), len(reads) * 2, axis=-1)
    layers = []
    for (_, key, value, _), (weight,) in zip(reads, weights, strict=True):
        is_static = _equal(key, static.pop(0)) and _equal(value, static.pop(0))
        applied = np.any(ops.convert_to_numpy(weight) != 0, axis=1)
        layers.append((is_static, applied))
    return not _equal(query, other_query), layers


def _recording(layer, calls):
    call = layer.call

    def recording(*args, **kwargs):
        calls.append(args)
        return call(*args, **kwargs)

    return patch.object(layer, "call", recording)


def check_noise_floor(query="mask", mutant=None):
    """Nobody can predict noise: what was trained on it must not seem to have learned.

    Finds leaks wherever they are, in data and losses too. Tokens are independent, rows
    have 1, 2 or 8 of them and no specials.
    """
    draw = np.random.default_rng(0)
    data = [draw.choice(NOISE_VOCABULARY, (rows, 8)) for rows in (32 * 400, 2048)]
    lengths = [draw.choice((1, 2, 8), (len(token_ids), 1)) for token_ids in data]
    nats = _nats_after_training(query, mutant, data, lengths)
    floor = np.log(len(NOISE_VOCABULARY))
    assert nats > floor - 0.05, (
        f"{nats:.3f} nats per token, {floor:.3f} are in the noise"
    )


def check_learns_twins(query="mask"):
    """The same training finds what is there: every token comes twice in a row."""
    draw = np.random.default_rng(0)
    data = [draw.choice(NOISE_VOCABULARY, (rows, 4)) for rows in (32 * 400, 2048)]
    data = [token_ids.repeat(2, axis=1) for token_ids in data]
    nats = _nats_after_training(query, None, data, (8, 8))
    assert nats < 0.2, f"{nats:.3f} nats per token"


def _nats_after_training(query, mutant, data, lengths):
    backbone = TTABackbone(
        vocabulary_size=VOCABULARY_SIZE,
        num_layers=2,
        num_heads=2,
        hidden_dim=32,
        intermediate_dim=64,
        max_sequence_length=8,
        dropout=0.0,
        query=query,
    )
    if mutant is not None:
        mutant(backbone)
    pretrainer = LanguageAutoencoder(backbone, special_token_ids=())
    pretrainer.compile(keras.optimizers.Adam(3e-3))
    batches = []
    for token_ids, length in zip(data, lengths, strict=True):
        real = np.broadcast_to(np.arange(8) < length, token_ids.shape)
        batches.append({"token_ids": token_ids * real, "padding_mask": real})
    pretrainer.fit(batches[0], batch_size=32, verbose=0)
    figures = pretrainer.evaluate(batches[1], verbose=0, return_dict=True)
    return figures["nats_per_token"]


def _assert_hides_self(reached, where):
    seen = np.argwhere(np.diagonal(reached, axis1=1, axis2=2))
    assert not len(seen), f"{where}: (row, position) {seen.tolist()} sees itself"


def _equal(a, b):
    return np.array_equal(ops.convert_to_numpy(a), ops.convert_to_numpy(b))
