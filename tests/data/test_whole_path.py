"""From text files to a model's batches, in languages without spaces too."""

import unicodedata

import keras
import keras_hub
import numpy as np
import pytest

import keras_tta.models  # noqa: F401  (names the tokenizers' backbone)
from keras_tta.data import (
    TokenBatches,
    read_documents,
    split_sentences,
    train_byte_pair,
    train_unigram,
    train_wordpiece,
    write_token_store,
)
from keras_tta.models import TTABackbone
from keras_tta.pretraining import LanguageAutoencoder

CHINESE = """今天天气很好，我们去公园散步。公园里有很多人！
你想和我们一起去吗？“好的，”他说，“我很想去。”

语言模型从文本中学习。文本越多，模型越好。
"""
JAPANESE = "今日は天気がいいです。公園に行きましょう！「はい、行きます。」\n"


@pytest.mark.agnostic
@pytest.mark.parametrize("train", [train_wordpiece, train_byte_pair, train_unigram])
def test_chinese_text(train, tmp_path):
    path = tmp_path / "zh.txt"
    path.write_text(CHINESE + "\n" + JAPANESE, encoding="utf-8")
    documents = list(read_documents(path, splitter=split_sentences))
    assert [len(document) for document in documents] == [4, 2, 3]
    sizes = {train_byte_pair: 300, train_wordpiece: 200, train_unigram: 120}
    options = {} if train is train_byte_pair else {"character_coverage": 1.0}
    if train is train_wordpiece:  # BERT's accents include Japanese voicing marks.
        options["strip_accents"] = False
    tokenizer = train(documents, sizes[train], **options)
    store = write_token_store(
        tmp_path / "store", path, tokenizer, splitter=split_sentences
    )
    assert len(store.sentences) == 9
    report = store.info["report"]
    assert report["sentences"] == report["stored_sentences"]

    batches = TokenBatches(store.sentences, 4, 40, packed=True)
    (batch,) = batches.batch(0)
    ids = batch["token_ids"][batch["padding_mask"]]
    assert not np.isin(ids, [tokenizer.unknown_token_id]).any()
    sentences = [tokenizer.detokenize(row) for row in store.sentences]
    texts = ["".join(text.split()) for text in sentences]
    original = "".join(split_sentences(path.read_text(encoding="utf-8")))
    if train is train_unigram:  # Its normal form has half-width punctuation.
        original = unicodedata.normalize("NFKC", original)
    assert "".join(texts) == "".join(original.split())


@pytest.mark.parametrize("train", [train_wordpiece, train_byte_pair, train_unigram])
def test_a_preset_beside_a_backbone(train, tmp_path):
    tokenizer = train(
        ["one two three, one two three."] * 9, 290 if train is train_byte_pair else 30
    )
    TTABackbone(tokenizer.vocabulary_size(), 1, 1, 4, 4).save_to_preset(tmp_path)
    tokenizer.save_to_preset(tmp_path)
    loaded = keras_hub.models.Tokenizer.from_preset(str(tmp_path))
    assert type(loaded) is type(tokenizer)
    assert loaded.encode("one three") == tokenizer.encode("one three")
    assert type(tokenizer).from_preset(str(tmp_path)).get_vocabulary() == (
        tokenizer.get_vocabulary()
    )


@pytest.mark.filterwarnings("error:Your input ran out of data")
@pytest.mark.parametrize("steps_per_epoch", [5, 20])
def test_epochs_of_fit_need_not_be_passes_over_the_data(steps_per_epoch):
    rows = [[i] * (1 + i % 13) for i in range(10, 110)]
    batches = TokenBatches(rows, 8, 16, steps_per_epoch=steps_per_epoch)
    assert batches.batches_per_pass == 13
    model = LanguageAutoencoder(TTABackbone(128, 1, 1, 4, 4, max_sequence_length=16))
    model.compile(keras.optimizers.SGD(0.0))
    steps = []
    batch = batches.batch
    batches.batch = lambda step: steps.append(step) or batch(step)
    epochs = 60 // steps_per_epoch
    model.fit(batches, epochs=epochs, shuffle=False, verbose=0)
    assert int(model.optimizer.iterations) == 60
    assert set(range(60)) <= set(steps)
    first = [step for i, step in enumerate(steps) if step not in steps[:i]]
    assert first == sorted(first)
