"""Recipes: numbers with their sources, and the networks they make."""

from dataclasses import fields, replace

import pytest

from keras_tta.presets import ELECTRA_RECIPES


@pytest.mark.agnostic
def test_the_networks_are_of_the_published_sizes():
    for name, widths in (("small", (64, 256)), ("base", (256, 768))):
        recipe = replace(ELECTRA_RECIPES[name], num_layers=1)
        generator, discriminator = recipe.backbones(vocabulary_size=30)
        assert (generator.hidden_dim, discriminator.hidden_dim) == widths
        assert generator.intermediate_dim == 4 * generator.hidden_dim
        assert generator.num_heads == generator.hidden_dim // 64
        assert generator.embedding_dim == discriminator.embedding_dim
        assert generator.max_sequence_length == recipe.sequence_length
    assert ELECTRA_RECIPES["large"].generator_fraction * 1024 == 256


@pytest.mark.agnostic
@pytest.mark.parametrize("fraction", [1 / 3, 0.4, 0.3, 0.05])
def test_a_generator_may_be_any_fraction(fraction):
    for name, width in (("base", 768), ("large", 1024)):
        recipe = replace(
            ELECTRA_RECIPES[name], num_layers=1, generator_fraction=fraction
        )
        generator, _ = recipe.backbones(vocabulary_size=30)
        assert generator.hidden_dim == round(width * fraction)
        assert generator.hidden_dim % generator.num_heads == 0


@pytest.mark.agnostic
def test_masking_is_the_authors():
    masking = ELECTRA_RECIPES["large"].masking(30, 4, (0, 1, 3), seed=5)
    config = masking.get_config()
    assert config["mask_rate"] == 0.25 and config["mask_share"] == 0.85
    assert config["random_share"] == 0 and config["seed"] == 5


@pytest.mark.agnostic
def test_the_optimizer_has_every_number_of_the_training():
    recipe = replace(ELECTRA_RECIPES["base"], weight_decay=0.02)
    optimizer = recipe.optimizer(gradient_accumulation_steps=2)
    assert optimizer.weight_decay == 0.02
    assert optimizer.gradient_accumulation_steps == 2
    schedule = optimizer._learning_rate
    assert schedule.peak_learning_rate == 2e-4 and schedule.warmup == "multiply"
    assert (schedule.warmup_steps, schedule.total_steps) == (10_000, 766_000)


@pytest.mark.agnostic
@pytest.mark.parametrize("name", ELECTRA_RECIPES)
def test_every_number_is_printed_with_its_source(name):
    recipe = ELECTRA_RECIPES[name]
    lines = recipe.describe().splitlines()
    assert lines[0] == f"ELECTRA {name}"
    assert len(lines) == len(fields(recipe)) - 2
    assert all(len(line.split(maxsplit=2)) == 3 for line in lines[1:])
    # No source is of a number that is not there.
    assert set(recipe.sources) <= {field.name for field in fields(recipe)}


@pytest.mark.agnostic
def test_a_base_model_is_not_trained_as_a_small_one():
    small, base = ELECTRA_RECIPES["small"], ELECTRA_RECIPES["base"]
    for name in ("sequence_length", "batch_size", "learning_rate"):
        assert getattr(base, name) != getattr(small, name)
        assert base.sources[name] == "configure_pretraining.py, a comment"
