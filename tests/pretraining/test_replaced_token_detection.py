"""ELECTRA: who reads what, what it costs, which gradient goes where."""

import keras
import numpy as np
import pytest

from keras_tta.layers.corruption.arrays import NumPyArrays
from keras_tta.layers.corruption.draws import Draws
from keras_tta.models import TransformerBackbone
from keras_tta.pretraining import MaskedLM, ReplacedTokenDetection
from tests.pretraining.electra import (
    BATCH,
    DISCRIMINATOR,
    REAL,
    SHARED,
    SIZE,
    figures_of,
    gradients,
    loss_of,
    make_electra,
    make_masking,
    moved,
    nats,
    networks,
    numpy,
    tables,
)


def test_samples_stand_where_tokens_were_masked():
    electra = make_electra()
    for made in range(2):
        targets = electra(BATCH, training=made > 0)
        key = (0, made) if made else 0
        masked = electra.masking.numpy(**BATCH, key=key)
        corrupted = numpy(targets["corrupted_token_ids"])
        chosen = masked["dense_sample_weight"] == 1
        assert np.array_equal(corrupted[~chosen], BATCH["token_ids"][~chosen])
        assert not np.isin(corrupted[chosen], [0, 1, 3, 4]).any()
    # Neither specials alone nor padding alone have a candidate.
    assert np.array_equal(corrupted[3:], BATCH["token_ids"][3:])


def share(values):
    return values.mean() if values.size else 0.0


def expected_figures(electra, batch=BATCH, positions="all"):
    """Loss and metrics in NumPy, from the public siblings."""
    masked = electra.masking.numpy(**batch)
    chosen = masked["dense_sample_weight"] == 1
    read = {**batch, "token_ids": masked["token_ids"]}
    masked_nats = nats(electra.generator_language_model(read), batch["token_ids"])
    corrupted = numpy(electra(batch)["corrupted_token_ids"])
    logits = numpy(electra.detector({**batch, "token_ids": corrupted}))
    replaced = corrupted != batch["token_ids"]
    detection = np.log1p(np.exp(np.where(replaced, -logits, logits)))
    counted = chosen if positions == "masked" else batch["padding_mask"]
    found = logits > 0
    return {
        "loss": masked_nats[chosen].mean() + 50 * detection[counted].mean(),
        "nats_per_token": masked_nats[chosen].mean(),
        "discriminator_loss": detection[counted].mean(),
        "discriminator_accuracy": (found == replaced)[counted].mean(),
        "discriminator_precision": share(replaced[counted & found]),
        "discriminator_recall": share(found[counted & replaced]),
        "replaced_share": replaced[counted].mean(),
        "majority_accuracy": max(
            replaced[counted].mean(), 1 - replaced[counted].mean()
        ),
    }, (logits[counted], replaced[counted])


@pytest.mark.parametrize("positions", ["all", "masked"])
def test_loss_and_figures_are_those_of_the_equations(positions):
    electra = make_electra(loss_positions=positions)
    expected, (logits, replaced) = expected_figures(electra, positions=positions)
    figures = figures_of(electra)
    for name, value in expected.items():
        assert abs(figures[name] - value) < 2e-4, name
    pairs = logits[replaced][:, None] - logits[~replaced]
    if pairs.size:
        auc = ((pairs > 0) + 0.5 * (pairs == 0)).mean()
        assert abs(figures["discriminator_auc"] - auc) < 0.05


def test_batches_of_uneven_token_counts_give_the_same_figures():
    electra = make_electra()
    electra.compile("sgd")
    rows = electra.evaluate(BATCH, batch_size=1, verbose=0, return_dict=True)
    figures = figures_of(electra)
    for name in ("discriminator_loss", "nats_per_token", "replaced_share"):
        assert abs(rows[name] - figures[name]) < 1e-5


def test_it_starts_at_ln_v_and_50_ln_2():
    electra = make_electra(noise=0.0)
    assert abs(loss_of(electra) - np.log(SIZE) - 50 * np.log(2)) < 2.5


@pytest.mark.parametrize(
    ("tie", "of_generator"),
    [
        ("none", set()),
        ("tokens", {"generator table"}),
        ("embeddings", {"generator table", "generator positions"}),
        ("all", {"generator table", "generator positions", "generator trunk"}),
    ],
)
def test_the_discriminator_moves_of_the_generator_what_is_shared(tie, of_generator):
    electra = make_electra(tie)
    electra.generator_weight = 0.0
    assert moved(electra) == DISCRIMINATOR | of_generator
    shared = electra.generator, electra.backbone
    tables = [model.token_embedding for model in shared]
    assert (tables[0] is tables[1]) == (tie != "none")
    norms = [model.embeddings.norm for model in shared]
    assert (norms[0] is norms[1]) == (tie in ("embeddings", "all"))


def numbers(*models):
    return [numpy(weight).copy() for model in models for weight in model.weights]


def sgd_step(electra):
    electra.compile(keras.optimizers.SGD(0.1))
    electra.fit(BATCH, verbose=0)


def test_the_recipe_is_electras():
    """`model/optimization.py`: the warm-up multiplies the decay."""
    electra = make_electra()
    electra.compile(total_steps=1_000_000)
    again = ReplacedTokenDetection.from_config(electra.get_config())
    again.compile_from_config(electra.get_compile_config())
    for compiled in (electra, again):
        schedule = compiled.optimizer._learning_rate
        assert schedule.peak_learning_rate == 5e-4
        for step, share in ((5_000, 0.5 * 0.995), (10_000, 0.99), (500_000, 0.5)):
            assert abs(float(schedule(step)) - 5e-4 * share) < 1e-9
    electra.compile(total_steps=100, warmup_form="override")
    assert electra.optimizer._learning_rate.warmup == "override"


def test_both_networks_learn():
    electra = make_electra("none", dropout=0.1)
    parts = electra.generator, electra.discriminator
    before = numbers(*parts)
    sgd_step(electra)
    same = list(map(np.array_equal, before, numbers(*parts)))
    # The biases of keys change no attention.
    assert sum(same) <= 2


def test_a_generator_of_weight_0_is_frozen():
    electra = make_electra(generator_weight=0.0)
    assert electra.tie == "none"
    frozen = electra.generator, electra.generator_head
    before = numbers(*frozen), numbers(electra.discriminator)
    sgd_step(electra)
    assert all(map(np.array_equal, before[0], numbers(*frozen)))
    assert not all(map(np.array_equal, before[1], numbers(electra.discriminator)))
    with pytest.raises(ValueError, match="does not learn"):
        make_electra("embeddings", generator_weight=0.0)


def test_the_second_stage_starts_from_the_first():
    first = MaskedLM(networks()[1], make_masking())
    head = first.head.get_weights()
    second = networks()[1]
    second.set_weights(first.backbone.get_weights())
    electra = ReplacedTokenDetection(
        first, second, make_masking(), generator_weight=0.0
    )
    pairs = zip(electra.generator_head.get_weights(), head, strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    models = electra.generator_language_model, first.language_model
    assert np.array_equal(*(numpy(model(BATCH)) for model in models))


@pytest.mark.parametrize("generator", ["uniform", "unigram"])
def test_a_generator_may_be_the_frequencies(generator):
    counts = np.zeros(SIZE)
    counts[[9, 11]] = 3, 1
    electra = ReplacedTokenDetection(
        generator if generator == "uniform" else counts,
        networks()[1],
        make_masking(mask_rate=1.0),
        sample_specials=generator == "uniform",
    )
    corrupted = numpy(electra(BATCH)["corrupted_token_ids"])
    chosen = electra.masking.numpy(**BATCH)["dense_sample_weight"] == 1
    figures = figures_of(electra)
    if generator == "uniform":
        assert abs(figures["nats_per_token"] - np.log(SIZE)) < 1e-5
    else:
        assert set(corrupted[chosen]) <= {9, 11}
    loss = 50 * figures["discriminator_loss"]
    assert abs(figures["loss"] - loss) < 1e-3
    again = ReplacedTokenDetection.from_config(electra.get_config())
    assert again.get_config() == electra.get_config()
    with pytest.raises(ValueError, match="fixed counts, which read no text"):
        electra.language_model  # noqa: B018


def test_samples_may_come_without_dropout():
    with_dropout, without = (
        make_electra(dropout=0.5, sampling_dropout=on, masking=make_masking())
        for on in (True, False)
    )
    batch = {name: np.repeat(x[:1], 5, 0) for name, x in BATCH.items()}
    # Equal rows have equal draws: they differ by the generator's dropout alone.
    for electra, kinds in ((with_dropout, 2), (without, 1)):
        rows = numpy(electra(batch, training=True)["corrupted_token_ids"])
        assert (len(np.unique(rows, axis=0)) > 1) == (kinds > 1)


def test_disentangled_tables_follow_the_generator_and_teach_it_nothing():
    """E_D = E_G + E_own: E_G by the generator's loss alone, E_own by detection."""
    electra = make_electra("disentangled")
    start = tables(networks()[1])
    for network in (electra.generator, electra.discriminator):
        assert all(map(np.array_equal, tables(network), start))
    embeddings = electra.discriminator.embeddings
    pairs = [embeddings.token_embedding, embeddings.position_embedding]
    weights = [x.shared.embeddings for x in pairs] + [x.own for x in pairs]
    electra.discriminator_weight = 0.0
    of_generator = [x.any() for x in gradients(electra, weights)]
    assert of_generator == [True, True, False, False]
    electra.discriminator_weight, electra.generator_weight = 50.0, 0.0
    of_detection = [x.any() for x in gradients(electra, weights)]
    assert of_detection == [False, False, True, True]


def test_a_frozen_generators_temperature_decays_as_training_goes_on():
    """Fast-ELECTRA: T = 1 + (T0 - 1) exp(-step / n), in the samples of a real step."""
    electra = make_electra(
        generator_weight=0.0,
        temperature=5.0,
        temperature_decay_steps=2,
        masking=make_masking(mask_rate=0.9),
    )
    before = [numpy(w).copy() for w in electra.generator.weights]
    electra.compile(keras.optimizers.SGD(0.1))
    electra.fit(BATCH, epochs=3, verbose=0)
    targets = electra(BATCH, training=True)  # The fourth.
    assert all(map(np.array_equal, before, map(numpy, electra.generator.weights)))
    temperature = 1 + 4 * np.exp(-4 / 2)
    assert abs(numpy(electra.token_sampler.temperature_now()) - temperature) < 1e-5
    masked = electra.masking.numpy(**BATCH, key=(0, 4))
    read = {**BATCH, "token_ids": masked["token_ids"]}
    logits = numpy(electra.generator_language_model(read)).astype("float64")
    logits[..., [0, 1, 3, 4]] = -np.inf
    at = masked["masked_positions"]
    weights = np.exp(np.take_along_axis(logits, at[..., None], 1) / temperature)
    sums = weights.cumsum(-1)
    draws = Draws(NumPyArrays, BATCH["token_ids"], REAL, np.int32([0]), np.int32([4]))
    units = draws.unit("sampled token", at)[..., None] / 2**24
    expected = (sums > units * sums[..., -1:]).argmax(-1)
    counted = masked["sample_weight"] == 1
    samples = numpy(targets["sampled_token_ids"])
    assert counted.sum() == 9
    assert np.array_equal(samples[counted], expected[counted])


def test_rows_without_candidates_teach_that_they_are_original():
    electra = make_electra()
    batch = {name: np.repeat(ids[3:4], 5, 0) for name, ids in BATCH.items()}
    figures = figures_of(electra, batch)
    assert figures["nats_per_token"] == figures["replaced_share"] == 0
    assert figures["majority_accuracy"] == 1
    assert np.isfinite(figures["loss"]) and figures["loss"] > 0
    empty = {name: np.repeat(ids[4:], 5, 0) for name, ids in BATCH.items()}
    assert figures_of(electra, empty)["loss"] == 0


def test_packed_sequences_do_not_mix():
    electra = make_electra(packed=True, masking=make_masking(mask_rate=0.9))
    row = {
        "token_ids": np.array([[3, 9, 8, 1, 3, 11, 15, 1]]),
        "padding_mask": np.ones((1, 8), bool),
        "segment_ids": np.array([[1, 1, 1, 1, 2, 2, 2, 2]]),
        "position_ids": np.array([[0, 1, 2, 3, 0, 1, 2, 3]]),
    }
    row = {name: np.repeat(ids, 5, 0) for name, ids in row.items()}
    targets = electra(row)
    alone = {
        "token_ids": numpy(targets["corrupted_token_ids"]),
        "padding_mask": row["segment_ids"] == 1,
    }
    hidden = numpy(targets["discriminator_hidden"])[:, :4]
    expected = numpy(electra.backbone(alone))[:, :4]
    assert np.allclose(hidden, expected, atol=1e-5)


def test_mixed_precision():
    keras.config.set_dtype_policy("mixed_bfloat16")
    electra = make_electra(dropout=0.1)
    found = gradients(electra, electra.trainable_weights)
    assert all(np.isfinite(x).all() for x in found)


@pytest.mark.agnostic
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tie": "words"}, "`tie` of ReplacedTokenDetection must be one of"),
        ({"loss_positions": "some"}, "must be one of 'all', 'masked'"),
        ({"generator": "bigram"}, "a `MaskedLM`, 'uniform' or V counts"),
        ({"generator": 3}, "a `MaskedLM`, 'uniform' or V counts"),
        ({"generator_weight": "a"}, "`generator_weight` of .* from 0 up"),
        ({"discriminator_weight": -1}, "`discriminator_weight` of .* from 0 up"),
        ({"sequence_length": 0}, "`sequence_length` of ReplacedTokenDetection"),
        ({"generator": None, "tie": "embeddings"}, "pass generator=None"),
        ({"tie": "all"}, "pass generator=None"),
        ({"generator": [1.0, 2.0]}, "counts of 2 tokens, the discriminator 20"),
        (
            {
                "generator": TransformerBackbone(
                    **{**SHARED, "embedding_dim": 4},
                    num_layers=1,
                    num_heads=1,
                    hidden_dim=4,
                    intermediate_dim=4,
                )
            },
            "embedding_dim=4, the discriminator 8",
        ),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    generator, discriminator = networks()
    settings = {"generator": generator, **options}
    with pytest.raises(ValueError, match=message):
        ReplacedTokenDetection(
            discriminator=discriminator, masking=make_masking(), **settings
        )


@pytest.mark.parametrize("size", [SIZE - 1, SIZE + 1])
def test_networks_of_two_vocabularies_are_refused(size):
    _, discriminator = networks()
    config = {**networks()[0].get_config(), "vocabulary_size": size, "name": "other"}
    generator = TransformerBackbone.from_config(config)
    with pytest.raises(ValueError, match="both must know the same tokens"):
        ReplacedTokenDetection(generator, discriminator, make_masking(), tie="none")
