"""ELECTRA as files: what is kept, what is shared again, what goes out."""

from unittest.mock import Mock

import keras
import numpy as np
import pytest

from keras_tta.data import SPECIAL_TOKENS, TTATokenizer
from keras_tta.layers.corruption import TokenMasking
from keras_tta.models import TransformerBackbone
from keras_tta.presets import PresetError, load_backbone, load_head, saving
from keras_tta.pretraining import (
    ReplacedTokenDetection,
    convert_electra_transformers,
)
from keras_tta.tasks import TextScorer
from tests.pretraining.electra import (
    BATCH,
    make_electra,
    make_masking,
    networks,
    numpy,
    tables,
)

TOKENIZER = TTATokenizer([*SPECIAL_TOKENS, "a"])


def test_disentangled_tables_are_saved_as_their_sums(tmp_path):
    electra = make_electra("disentangled")
    draw = np.random.default_rng(0)
    embeddings = electra.discriminator.embeddings
    for table in (embeddings.token_embedding, embeddings.position_embedding):
        table.own.assign(draw.normal(size=table.own.shape))
    expected = [*tables(electra.generator), *tables(electra.backbone)]
    electra.save(tmp_path / "electra.keras")
    electra.save_to_preset(tmp_path / "preset")
    electra.export_to_transformers(tmp_path / "transformers")
    plain = load_backbone(tmp_path / "preset")
    assert type(plain.token_embedding) is keras.layers.ReversibleEmbedding
    assert np.allclose(numpy(plain(BATCH)), numpy(electra.backbone(BATCH)), atol=1e-5)
    for again in (
        keras.saving.load_model(tmp_path / "electra.keras"),
        ReplacedTokenDetection.from_preset(tmp_path / "preset"),
        convert_electra_transformers(
            tmp_path / "transformers", make_masking(), tie="disentangled"
        ),
    ):
        found = [*tables(again.generator), *tables(again.backbone)]
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
        own, shared = (
            x.embeddings.token_embedding for x in (again.backbone, again.generator)
        )
        assert own.shared is shared and numpy(own.own).any()


@pytest.mark.parametrize("tie", ["none", "tokens", "embeddings", "all"])
def test_what_is_shared_is_shared_again_when_loaded(tie, tmp_path):
    electra = make_electra(tie, temperature=1.5, disallow_correct=True)
    electra.save(tmp_path / "electra.keras")
    electra.save_to_preset(tmp_path / "preset")
    for again in (
        keras.saving.load_model(tmp_path / "electra.keras"),
        ReplacedTokenDetection.from_preset(tmp_path / "preset"),
    ):
        assert again.tie == tie and again.token_sampler.disallow_correct
        same = again.generator.token_embedding is again.backbone.token_embedding
        assert same == (tie != "none")
        weights = [model.get_weights() for model in (again, electra)]
        assert all(map(np.array_equal, *weights)) and len(weights[0]) > 20


def test_a_preset_is_the_discriminators_and_holds_the_generators(tmp_path):
    electra = make_electra()
    electra.save_to_preset(tmp_path)
    backbone = load_backbone(tmp_path)
    head = load_head(tmp_path, backbone, "replaced_token_head")
    assert np.allclose(numpy(head(backbone(BATCH))), numpy(electra.detector(BATCH)))
    backbone = load_backbone(tmp_path / "generator")
    logits = load_head(tmp_path / "generator", backbone)(backbone(BATCH))
    expected = numpy(electra.language_model(BATCH))
    assert np.allclose(numpy(logits), expected, atol=1e-5)


def test_errors_say_where_to_look(tmp_path):
    make_electra().save_to_preset(tmp_path / "preset", TOKENIZER)
    with pytest.raises(FileNotFoundError, match="There is one in .*preset"):
        load_backbone(tmp_path)
    with pytest.raises(FileNotFoundError, match="the generator, in .*, predicts"):
        TextScorer.from_preset(tmp_path / "preset")


def test_a_generator_reached_through_a_link_is_refused(tmp_path):
    make_electra().save_to_preset(tmp_path / "preset")
    (tmp_path / "preset/generator").rename(tmp_path / "elsewhere")
    (tmp_path / "preset/generator").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PresetError, match="generator: links are refused"):
        ReplacedTokenDetection.from_preset(tmp_path / "preset")


def test_the_counts_of_a_large_vocabulary_are_kept(tmp_path):
    size = 60_000
    sizes = {"vocabulary_size": size, "num_layers": 1, "num_heads": 1}
    backbone = TransformerBackbone(
        **sizes, hidden_dim=2, intermediate_dim=2, max_sequence_length=8
    )
    counts = np.random.default_rng(0).random(size)
    masking = TokenMasking(size, 4, (0, 1, 3))
    ReplacedTokenDetection(counts, backbone, masking).save_to_preset(tmp_path)
    again = ReplacedTokenDetection.from_preset(tmp_path)
    assert np.array_equal(again.generator_head.counts, counts)


def test_a_preset_and_an_export_do_not_destroy_each_other(tmp_path):
    electra = make_electra()
    electra.export_to_transformers(tmp_path)
    exported = {x: x.read_bytes() for x in tmp_path.rglob("*") if x.is_file()}
    with pytest.raises(OSError):
        electra.save_to_preset(tmp_path)
    for path, content in exported.items():
        assert path.read_bytes() == content
    electra.save_to_preset(tmp_path / "preset")
    with pytest.raises(ValueError, match="holds a preset"):
        electra.export_to_transformers(tmp_path / "preset")


def test_a_preset_takes_the_place_of_another_as_a_whole(tmp_path, monkeypatch):
    make_electra().save_to_preset(tmp_path)
    files = {x: x.read_bytes() for x in tmp_path.rglob("*") if x.is_file()}
    one_network = make_electra("all")
    other = make_electra(noise=0.0)
    with monkeypatch.context() as patch:
        # The generator's card is the last to be written.
        patch.setattr(saving, "model_card", Mock(side_effect=["card", OSError]))
        with pytest.raises(OSError):
            other.save_to_preset(tmp_path)
    assert files == {x: x.read_bytes() for x in tmp_path.rglob("*") if x.is_file()}
    one_network.save_to_preset(tmp_path, TOKENIZER)
    assert not (tmp_path / "generator").exists()
    scorer = TextScorer.from_preset(tmp_path, head="generator_head")
    assert scorer._reader.head.name == "generator_head"


def test_what_goes_out_to_transformers_and_what_does_not(tmp_path, caplog):
    electra = make_electra()
    electra.attach_tokenizer(TOKENIZER)
    electra.export_to_transformers(tmp_path / "both")
    for name in ("discriminator", "generator"):
        assert (tmp_path / "both" / name / "vocab.txt").is_file()
    electra = ReplacedTokenDetection("uniform", networks()[1], make_masking())
    with caplog.at_level("WARNING"):
        electra.export_to_transformers(tmp_path / "one")
    assert "Not written: the generator, which is fixed counts" in caplog.text
    assert [x.name for x in (tmp_path / "one").iterdir()] == ["discriminator"]
