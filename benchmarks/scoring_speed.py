"""Sentences per second: a T-TA in one pass, masked models in one pass per token.

    KERAS_BACKEND=tensorflow python benchmarks/scoring_speed.py

Three networks of the same sizes, with random weights, score the same sentences of n
tokens: `TextScorer` with a T-TA, `TextScorer` with a masked language model, and, where
minicons is installed (it needs `transformers<5`), its `MaskedLMScorer` with a BERT on
PyTorch. They take turns. Prints medians and appends them to `--output` as CSV.
"""

import importlib.util
import tempfile
from functools import partial
from pathlib import Path

import keras
import numpy as np
from absl import app, flags
from report import median_seconds, report

from keras_tta.data import SPECIAL_TOKENS, TTATokenizer
from keras_tta.layers.corruption import TokenMasking
from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.pretraining import LanguageAutoencoder, MaskedLM
from keras_tta.tasks import TextScorer

FLAGS = flags.FLAGS
flags.DEFINE_multi_integer("tokens", [8, 20, 64], "Tokens of a sentence.")
flags.DEFINE_integer("sentences", 64, "Sentences that are scored in a call.")
flags.DEFINE_integer("peer_batch_size", 8, "Sentences in a call of minicons.")
flags.DEFINE_integer("num_layers", 3, "Layers.")
flags.DEFINE_integer("hidden_dim", 256, "Width.")
flags.DEFINE_integer("vocabulary_size", 8000, "Vocabulary.")
flags.DEFINE_integer("repeats", 3, "Calls that are timed, after one that is not.")
flags.DEFINE_string("output", None, "CSV file to append to.")


def scorers(vocabulary):
    tokenizer = TTATokenizer(vocabulary)
    size = {
        "vocabulary_size": len(vocabulary),
        "num_layers": FLAGS.num_layers,
        "num_heads": max(1, FLAGS.hidden_dim // 64),
        "hidden_dim": FLAGS.hidden_dim,
        "intermediate_dim": 4 * FLAGS.hidden_dim,
        "max_sequence_length": max(FLAGS.tokens) + 2,
    }
    masking = TokenMasking(
        len(vocabulary), tokenizer.mask_token_id, tokenizer.special_token_ids
    )
    models = {
        "T-TA": LanguageAutoencoder(TTABackbone(**size)),
        "MLM": MaskedLM(TransformerBackbone(**size), masking),
    }
    calls = {
        name: TextScorer(model, tokenizer, bucket_lengths=[n + 2 for n in FLAGS.tokens])
        for name, model in models.items()
    }
    calls = {name: scorer.score for name, scorer in calls.items()}
    if importlib.util.find_spec("minicons"):
        calls["minicons"] = minicons_scorer(vocabulary)
    return calls


def minicons_scorer(vocabulary):
    from minicons.scorer import MaskedLMScorer
    from transformers import BertConfig, BertForMaskedLM, BertTokenizerFast

    config = BertConfig(
        vocab_size=len(vocabulary),
        num_hidden_layers=FLAGS.num_layers,
        num_attention_heads=max(1, FLAGS.hidden_dim // 64),
        hidden_size=FLAGS.hidden_dim,
        intermediate_size=4 * FLAGS.hidden_dim,
        max_position_embeddings=max(FLAGS.tokens) + 2,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vocab.txt")
        path.write_text("\n".join(vocabulary))
        tokenizer = BertTokenizerFast(str(path))
    scorer = MaskedLMScorer(BertForMaskedLM(config).eval(), "cpu", tokenizer=tokenizer)

    def score(sentences):
        for start in range(0, len(sentences), FLAGS.peer_batch_size):
            scorer.sequence_score(sentences[start : start + FLAGS.peer_batch_size])

    return score


def main(_):
    keras.utils.set_random_seed(0)
    count = FLAGS.vocabulary_size - len(SPECIAL_TOKENS)
    words = [f"word{i}" for i in range(count)]
    calls = scorers([*SPECIAL_TOKENS, *words])
    rng = np.random.default_rng(0)
    rows = []
    for tokens in FLAGS.tokens:
        sentences = [
            " ".join(rng.choice(words, tokens)) for _ in range(FLAGS.sentences)
        ]
        timed = {name: partial(score, sentences) for name, score in calls.items()}
        for name, seconds in median_seconds(timed, FLAGS.repeats).items():
            rate = FLAGS.sentences / seconds
            rows.append(
                {
                    "backend": keras.backend.backend(),
                    "tokens": tokens,
                    "scorer": name,
                    "sentences_per_second": rate,
                }
            )
    report(rows, FLAGS.output)


if __name__ == "__main__":
    app.run(main)
