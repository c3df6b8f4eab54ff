"""Seconds a training step of masked language modelling takes, here and in transformers.

    KERAS_BACKEND=tensorflow python benchmarks/mlm_training_speed.py

A BERT of the same sizes, on the same padded rows, with the same share of masked tokens
and AdamW: `MaskedLM` on the Keras backend; on PyTorch, `transformers.BertForMaskedLM`
with its collator. Steps alternate, so that both meet the same machine. Prints medians
and their ratio, and appends them to `--output` as CSV.
"""

import keras
import numpy as np
from absl import app, flags
from peers import transformers_collator
from report import median_seconds, report

from keras_tta.layers.corruption import TokenMasking
from keras_tta.models import TransformerBackbone
from keras_tta.pretraining import MaskedLM

FLAGS = flags.FLAGS
flags.DEFINE_integer("num_layers", 3, "Layers.")
flags.DEFINE_integer("hidden_dim", 256, "Width.")
flags.DEFINE_integer("vocabulary_size", 8000, "Vocabulary.")
flags.DEFINE_integer("batch_size", 32, "Rows in a batch.")
flags.DEFINE_integer("sequence_length", 64, "Tokens in a row.")
flags.DEFINE_float("padding", 0.3, "Mean share of a row that is padding.")
flags.DEFINE_float("dropout", 0.1, "Dropout.")
flags.DEFINE_integer("steps", 10, "Steps that are timed, after two that are not.")
flags.DEFINE_string("output", None, "CSV file to append to.")

PAD, MASK, FIRST_WORD = 0, 4, 7


def rows():
    """Token ids (B, T) and which are real; lengths are uniform around their mean."""
    rng = np.random.default_rng(0)
    shape = FLAGS.batch_size, FLAGS.sequence_length
    spread = min(FLAGS.padding, 1 - FLAGS.padding)
    shares = 1 - FLAGS.padding + rng.uniform(-spread, spread, FLAGS.batch_size)
    lengths = np.maximum(1, np.round(shares * FLAGS.sequence_length))
    is_real = np.arange(FLAGS.sequence_length) < lengths[:, None]
    token_ids = rng.integers(FIRST_WORD, FLAGS.vocabulary_size, shape)
    return np.where(is_real, token_ids, PAD).astype("int32"), is_real


def ours(token_ids, is_real):
    backbone = TransformerBackbone(
        FLAGS.vocabulary_size,
        FLAGS.num_layers,
        num_heads=max(1, FLAGS.hidden_dim // 64),
        hidden_dim=FLAGS.hidden_dim,
        intermediate_dim=4 * FLAGS.hidden_dim,
        max_sequence_length=FLAGS.sequence_length,
        dropout=FLAGS.dropout,
    )
    masking = TokenMasking(
        FLAGS.vocabulary_size, MASK, special_token_ids=range(FIRST_WORD)
    )
    model = MaskedLM(backbone, masking)
    model.compile(total_steps=1000)
    batch = {"token_ids": token_ids, "padding_mask": is_real}
    return lambda: model.train_on_batch(batch)


def transformers(token_ids, is_real):
    import torch
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=FLAGS.vocabulary_size,
        num_hidden_layers=FLAGS.num_layers,
        num_attention_heads=max(1, FLAGS.hidden_dim // 64),
        hidden_size=FLAGS.hidden_dim,
        intermediate_size=4 * FLAGS.hidden_dim,
        max_position_embeddings=FLAGS.sequence_length,
        hidden_dropout_prob=FLAGS.dropout,
        attention_probs_dropout_prob=FLAGS.dropout,
    )
    model = BertForMaskedLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.01)
    collator = transformers_collator(FLAGS.vocabulary_size, PAD, MASK)
    examples = [
        {"input_ids": ids, "attention_mask": mask}
        for ids, mask in zip(
            token_ids.tolist(), is_real.astype(int).tolist(), strict=True
        )
    ]

    def step():
        optimizer.zero_grad()
        loss = model(**collator(examples)).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.item()

    return step


def main(_):
    keras.utils.set_random_seed(0)
    batch = rows()
    steps = {"keras_tta": ours(*batch), "transformers": transformers(*batch)}
    medians = median_seconds(steps, FLAGS.steps, untimed=2)
    row = {
        "backend": keras.backend.backend(),
        **{f"{name}_ms": 1000 * value for name, value in medians.items()},
        "ratio": medians["transformers"] / medians["keras_tta"],
        "padding": float(1 - batch[1].mean()),
    }
    report([row], FLAGS.output)


if __name__ == "__main__":
    app.run(main)
