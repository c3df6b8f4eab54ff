"""What each corruption costs: its share of a training step, tokens per second on hosts.

    KERAS_BACKEND=jax python benchmarks/corruption_speed.py --output corruption.csv

The step is that of a small T5 under span corruption. A corruption is timed alone,
compiled as Keras compiles (not at all on PyTorch), transfers to the host included, and
through its NumPy entry point. On the same rows are timed, where they are installed,
`transformers`' collator for masked language models (it has none for the others) and the
span corruption of the package `t5`, a `tf.data` pipeline. Prints medians and appends
them to `--output` as CSV.
"""

import importlib.util
from functools import partial

import keras
import keras_hub
import numpy as np
from absl import app, flags
from peers import transformers_collator
from report import median_seconds, report

from keras_tta.layers.corruption import (
    BARTDenoising,
    Deshuffling,
    MASSDenoising,
    PrefixLM,
    SpanCorruption,
    TokenDenoising,
    TokenMasking,
    UL2Denoising,
)
from keras_tta.pretraining import Seq2SeqDenoiser

FLAGS = flags.FLAGS
flags.DEFINE_integer("num_layers", 2, "Layers of the encoder, and of the decoder.")
flags.DEFINE_integer("hidden_dim", 256, "Width.")
flags.DEFINE_integer("vocabulary_size", 8000, "Vocabulary.")
flags.DEFINE_integer("batch_size", 32, "Rows in a batch.")
flags.DEFINE_integer("sequence_length", 128, "Tokens in a row, none of them padding.")
flags.DEFINE_integer("repeats", 9, "Calls that are timed, after one that is not.")
flags.DEFINE_string("output", None, "CSV file to append to.")

PAD, MASK, STOP = 0, 4, 10


def corruptions(vocabulary_size):
    return {
        "token masking": TokenMasking(vocabulary_size, MASK),
        "span corruption": SpanCorruption(vocabulary_size),
        "token denoising": TokenDenoising(vocabulary_size),
        "deshuffling": Deshuffling(vocabulary_size),
        "prefix LM": PrefixLM(vocabulary_size),
        "UL2": UL2Denoising(vocabulary_size),
        "MASS": MASSDenoising(vocabulary_size, MASK),
        "BART infilling": BARTDenoising(vocabulary_size, MASK),
        "BART infilling, permutation": BARTDenoising(
            vocabulary_size, MASK, permutation_rate=1.0, sentence_end_token_ids=(STOP,)
        ),
    }


def compiled(corruption):
    """A model that only corrupts."""
    inputs = {
        name: keras.Input((FLAGS.sequence_length,), dtype="int32", name=name)
        for name in ("token_ids", "padding_mask")
    }
    model = keras.Model(inputs, corruption(**inputs))
    model.compile()
    return model.predict_on_batch


def training_step():
    backbone = keras_hub.models.T5Backbone(
        FLAGS.vocabulary_size,
        FLAGS.num_layers,
        num_heads=max(1, FLAGS.hidden_dim // 64),
        hidden_dim=FLAGS.hidden_dim,
        intermediate_dim=4 * FLAGS.hidden_dim,
    )
    corruption = SpanCorruption(FLAGS.vocabulary_size)
    model = Seq2SeqDenoiser(backbone, corruption, FLAGS.sequence_length)
    model.compile()
    return model.train_on_batch


def transformers_masking(vocabulary_size):
    """Hugging Face's BERT masking as a function of rows, or None."""
    if importlib.util.find_spec("transformers") is None:
        return None
    collator = transformers_collator(vocabulary_size, PAD, MASK, return_tensors="np")
    return lambda rows: collator([{"input_ids": row} for row in rows.tolist()])


def t5_span_corruption(vocabulary_size):
    """T5's span corruption as a function of rows, or None."""
    if importlib.util.find_spec("t5") is None:
        return None
    import seqio
    import tensorflow as tf
    from t5.data import preprocessors

    vocabulary = seqio.PassThroughVocabulary(vocabulary_size, eos_id=1)
    features = {name: seqio.Feature(vocabulary) for name in ("inputs", "targets")}

    def corrupt(rows):
        dataset = preprocessors.denoise(
            tf.data.Dataset.from_tensor_slices({"inputs": rows, "targets": rows}),
            features,
            noise_density=0.15,
            noise_mask_fn=preprocessors.random_spans_noise_mask,
            inputs_fn=preprocessors.noise_span_to_unique_sentinel,
            targets_fn=preprocessors.nonnoise_span_to_unique_sentinel,
        )
        for _ in dataset:
            pass

    return corrupt


def main(_):
    keras.utils.set_random_seed(0)
    shape = (FLAGS.batch_size, FLAGS.sequence_length)
    last = FLAGS.vocabulary_size - 200  # No sentinels in the text.
    token_ids = np.random.default_rng(0).integers(STOP, last, shape).astype("int32")
    # A sentence of about 16 tokens.
    token_ids[:, 15::16] = STOP
    batch = {"token_ids": token_ids, "padding_mask": np.ones(shape, "int32")}

    # Enough rows that what a pipeline costs to start is little.
    many = {name: np.tile(array, (32, 1)) for name, array in batch.items()}

    step = training_step()
    in_step, on_host = {"training step": lambda: step(batch)}, {}
    for name, corruption in corruptions(FLAGS.vocabulary_size).items():
        in_step[name] = partial(compiled(corruption), batch)
        on_host[name] = partial(corruption.numpy, **many)
    for name, peer in (
        ("transformers' token masking", transformers_masking),
        ("t5's span corruption", t5_span_corruption),
    ):
        if corrupt := peer(FLAGS.vocabulary_size):
            on_host[name] = partial(corrupt, many["token_ids"])
    in_step = median_seconds(in_step, FLAGS.repeats)
    on_host = median_seconds(on_host, FLAGS.repeats)
    rows = []
    for name in in_step | on_host:
        row = {"corruption": name}
        if name in in_step:
            row["ms"] = 1000 * in_step[name]
            row["share_of_step"] = in_step[name] / in_step["training step"]
        if name in on_host:
            row["host_tokens_per_second"] = many["token_ids"].size / on_host[name]
        rows.append(row)
    backend = keras.backend.backend()
    report([{"backend": backend, **row} for row in rows], FLAGS.output)


if __name__ == "__main__":
    app.run(main)
