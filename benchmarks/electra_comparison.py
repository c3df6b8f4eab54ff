"""ELECTRA, its ablations, a masked LM and T-TA: equal encoders, text and time.

    python benchmarks/electra_comparison.py --corpus 'corpus/*.gz' --glue eval-glue \
        --minutes 10 --seeds 0 --seeds 1 --output runs/electra_comparison

Trains each objective for `--minutes` of wall-clock, compilation not counted, on the
same batches; "untrained" has been trained on nothing. Then asks linear probes on the
frozen encoders' mean-pooled tokens, of the last layer and of all, for SST-2 (accuracy)
and CoLA (Matthews correlation), and times the parts of an ELECTRA step. Writes a preset
of each model, `training.csv`, `probes.csv` and `step_time.csv`, where a run that is
begun again finds what is done, and prints the three tables.
"""

import csv
import dataclasses
import time
import warnings
from itertools import islice
from pathlib import Path

import keras
import numpy as np
from absl import app, flags
from report import median_seconds, report
from rich.console import Console
from rich.table import Table

from keras_tta.data import (
    TokenBatches,
    read_documents,
    train_wordpiece,
    write_token_store,
)
from keras_tta.layers.corruption import TokenMasking
from keras_tta.models import TTABackbone
from keras_tta.presets import ELECTRA_RECIPES
from keras_tta.pretraining import (
    CorrectiveLM,
    LanguageAutoencoder,
    MaskedLM,
    ReplacedTokenDetection,
)
from keras_tta.tasks import TextEmbedder
from keras_tta.training import AdamWeightDecay, WallClockBudget

OBJECTIVES = (
    "untrained",
    "MLM",
    "T-TA",
    "ELECTRA",
    "ELECTRA 15%",
    "Replace MLM",
    "All-Tokens MLM",
)
# Of the held-out text: of the generator where there is one, and of what is kept.
FIGURES = (
    "nats_per_token",
    "accuracy",
    "discriminator_loss",
    "discriminator_accuracy",
    "discriminator_auc",
    "corrected_share",
    "replaced_share",
)
FLAGS = flags.FLAGS
flags.DEFINE_multi_string("corpus", [], "Text files, folders or patterns.")
flags.DEFINE_string("glue", None, "Folder with SST-2 and CoLA.", required=True)
flags.DEFINE_string("output", "runs/electra_comparison", "Folder for what is written.")
flags.DEFINE_multi_enum("objectives", OBJECTIVES, OBJECTIVES, "What is compared.")
flags.DEFINE_multi_integer("seeds", [0, 1], "Of weights, corruption and order.")
flags.DEFINE_float("minutes", 10.0, "Training time of each.")
flags.DEFINE_float("learning_rate", 1e-3, "Highest learning rate of all.")
flags.DEFINE_integer("vocabulary_size", 8000, "Word pieces to train.")
flags.DEFINE_integer("tokenizer_documents", 20_000, "Documents it learns from.")
flags.DEFINE_integer("num_layers", 2, "Layers of every network.")
flags.DEFINE_integer("hidden_dim", 128, "Width of every encoder.")
flags.DEFINE_integer("sequence_length", 64, "Longest row, in tokens.")
flags.DEFINE_integer("batch_size", 32, "Rows in a batch.")
flags.DEFINE_integer("probe_examples", 10_000, "Most training examples of a probe.")
flags.DEFINE_integer("timed_steps", 30, "Steps that are timed; 0 for none.")


def main(_):
    output = Path(FLAGS.output)
    output.mkdir(parents=True, exist_ok=True)
    documents = islice(read_documents(FLAGS.corpus), FLAGS.tokenizer_documents)
    tokenizer = train_wordpiece(documents, FLAGS.vocabulary_size)
    store = write_token_store(output / "tokens", FLAGS.corpus, tokenizer)
    train, held_out = store.split(held_out_fraction=0.01)
    runs = [(name, seed) for seed in FLAGS.seeds for name in FLAGS.objectives]
    path = output / "training.csv"
    for objective, seed in not_in(path, runs):
        keras.utils.set_random_seed(seed)
        pretrainer = build(objective, tokenizer, seed)
        row = {"objective": objective, "seed": seed}
        row |= trained(pretrainer, train, held_out, seed, objective == "untrained")
        pretrainer.save_to_preset(output / f"{objective}, seed {seed}", tokenizer)
        report([row], path)
    show("Training", path)
    tasks = {name: read_glue(Path(FLAGS.glue, name)) for name in ("SST-2", "CoLA")}
    path = output / "probes.csv"
    for objective, seed in not_in(path, runs):
        embedders = [
            TextEmbedder.from_preset(output / f"{objective}, seed {seed}", layer=layer)
            for layer in range(FLAGS.num_layers + 1)
        ]
        row = {"objective": objective, "seed": seed}
        for name, task in tasks.items():
            row[f"{name}, last layer"] = probe(embedders[-1:], *task)
            row[f"{name}, all layers"] = probe(embedders, *task)
        report([row], path)
        # Long texts and unknown tokens are the same for all.
        warnings.filterwarnings("ignore", r".*tokens are embedded\.")
        warnings.filterwarnings("ignore", r".*embedded as such\.")
    show("Linear probes", path)
    path = output / "step_time.csv"
    if FLAGS.timed_steps and not path.exists():
        report(step_times(tokenizer, batches(train, 0)[0][0]), path)
    show("Step time", path)


def build(objective, tokenizer, seed):
    """An objective; all have encoders of the same sizes."""
    recipe = dataclasses.replace(
        ELECTRA_RECIPES["tiny"],
        num_layers=FLAGS.num_layers,
        hidden_dim=FLAGS.hidden_dim,
        num_heads=max(1, FLAGS.hidden_dim // 64),
        intermediate_dim=4 * FLAGS.hidden_dim,
        embedding_dim=FLAGS.hidden_dim,
        sequence_length=FLAGS.sequence_length,
    )
    special = tokenizer.mask_token_id, tokenizer.special_token_ids
    generator, encoder = recipe.backbones(tokenizer.vocabulary_size())
    masking = recipe.masking(tokenizer.vocabulary_size(), *special, seed=seed)
    if objective in ("untrained", "MLM"):
        masking = TokenMasking(tokenizer.vocabulary_size(), *special, seed=seed)
        return MaskedLM(encoder, masking, packed=True)
    if objective == "T-TA":
        encoder = TTABackbone(
            tokenizer.vocabulary_size(),
            num_layers=recipe.num_layers,
            num_heads=recipe.num_heads,
            hidden_dim=recipe.hidden_dim,
            intermediate_dim=recipe.intermediate_dim,
            max_sequence_length=recipe.sequence_length,
            dropout=recipe.dropout,
            mask_token_id=special[0],
        )
        return LanguageAutoencoder(encoder, special_token_ids=special[1], packed=True)
    cls, options = {
        "ELECTRA": (ReplacedTokenDetection, {}),
        "ELECTRA 15%": (ReplacedTokenDetection, {"loss_positions": "masked"}),
        "Replace MLM": (CorrectiveLM, {"loss_positions": "masked", "copy": False}),
        "All-Tokens MLM": (CorrectiveLM, {}),
    }[objective]
    return cls(generator, encoder, masking, packed=True, **options)


def batches(sequences, seed, **options):
    return TokenBatches(
        sequences,
        batch_size=FLAGS.batch_size,
        sequence_length=FLAGS.sequence_length,
        packed=True,
        seed=seed,
        **options,
    )


def trained(pretrainer, train, held_out, seed, untrained):
    """Trains for the time given; what came out, held-out figures among it."""
    pretrainer.compile(AdamWeightDecay(0.0, bias_correction=True))
    # One step that changes no weight, to compile.
    pretrainer.fit(batches(train, seed, steps_per_epoch=1), verbose=0)
    start = time.perf_counter()
    if not untrained:
        pretrainer.fit(
            batches(train, seed),
            epochs=1_000_000,  # The budget ends it.
            callbacks=[WallClockBudget(FLAGS.minutes, FLAGS.learning_rate)],
            verbose=0,
        )
    row = {
        "steps": int(pretrainer.optimizer.iterations) - 1,
        "seconds": time.perf_counter() - start,
    }
    held_out = batches(held_out, 0, shuffle=False)
    figures = pretrainer.evaluate(held_out, verbose=0, return_dict=True)
    return row | {name: float(figures.get(name, np.nan)) for name in FIGURES}


def read_glue(folder):
    """Texts and labels (0 or 1) of `train.tsv` and `dev.tsv`."""
    parts = []
    for name in ("train.tsv", "dev.tsv"):
        rows = [x.split("\t") for x in (folder / name).read_text("utf-8").splitlines()]
        if folder.name == "SST-2":
            texts, labels = zip(*rows[1:], strict=True)
        else:  # CoLA: source, label, the authors' mark, sentence.
            _, labels, _, texts = zip(*rows, strict=True)
        parts.append((texts, np.array(labels, int)))
    (texts, labels), dev = parts
    chosen = np.random.default_rng(0).permutation(len(texts))[: FLAGS.probe_examples]
    return folder.name, ([texts[i] for i in chosen], labels[chosen]), dev


def probe(embedders, name, train, dev):
    """How well ridge regression on frozen features tells the labels of `dev`.

    A fifth of the training examples chooses the penalty and the threshold.
    """
    (x, y), (x_dev, y_dev) = (
        (np.hstack([e.encode(texts, truncate=True) for e in embedders]), labels)
        for texts, labels in (train, dev)
    )
    score = matthews if name == "CoLA" else lambda y, found: float(np.mean(y == found))
    mean, deviation = x.mean(0), x.std(0) + 1e-6
    x, x_dev = (np.c_[(z - mean) / deviation, np.ones(len(z))] for z in (x, x_dev))
    cut = len(x) // 5
    best = (-1.0,)
    for penalty in 10.0 ** np.arange(-1, 5):
        fitted = x[cut:].T @ x[cut:] + penalty * np.eye(x.shape[1])
        weights = np.linalg.solve(fitted, x[cut:].T @ (2 * y[cut:] - 1))
        for threshold in np.linspace(-0.8, 0.8, 33):
            result = score(y[:cut], x[:cut] @ weights > threshold)
            best = max(best, (result, threshold, tuple(weights)))
    _, threshold, weights = best
    return score(y_dev, x_dev @ np.array(weights) > threshold)


def matthews(labels, found):
    if len(set(found)) < 2:
        return 0.0
    return float(np.corrcoef(labels, found)[0, 1])


def step_times(tokenizer, batch):
    """Milliseconds of the parts of an ELECTRA step, each by itself, and of all."""
    electra = build("ELECTRA", tokenizer, 0)
    generator = build("ELECTRA", tokenizer, 0).generator
    sampler, seen = electra.token_sampler, electra(batch)
    given = {
        "hidden": seen["hidden"],
        "positions": seen["masked_positions"],
        "labels": seen["labels"],
        "token_ids": batch["token_ids"],
        "padding_mask": batch["padding_mask"],
    }
    given = {name: keras.ops.convert_to_numpy(x) for name, x in given.items()}
    inputs = {
        name: keras.Input(x.shape[1:], dtype=x.dtype.name, name=name)
        for name, x in given.items()
    }
    sampling = keras.Model(inputs, sampler(**inputs))
    detector = electra.detector
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    detector.compile(AdamWeightDecay(1e-4), loss=loss)
    reading = {name: batch[name] for name in detector.input}
    labels = np.zeros(batch["token_ids"].shape, "float32")
    learner = MaskedLM(generator, electra.masking, packed=True)
    for model in (learner, electra):
        model.compile(AdamWeightDecay(1e-4))
    parts = {
        "generator": lambda: learner.train_on_batch(batch),
        "sampling": lambda: sampling.predict_on_batch(given),
        "discriminator": lambda: detector.train_on_batch(reading, labels),
        "all": lambda: electra.train_on_batch(batch),
    }
    medians = median_seconds(parts, FLAGS.timed_steps, untimed=3)
    backend = keras.backend.backend()
    return [
        {"backend": backend, "part": name, "milliseconds": 1000 * seconds}
        for name, seconds in medians.items()
    ]


def read_rows(path):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def not_in(path, runs):
    """The pairs of objective and seed of which a table has no row."""
    done = {(row["objective"], row["seed"]) for row in read_rows(path)}
    return [run for run in runs if tuple(map(str, run)) not in done]


def show(title, path):
    rows = read_rows(path)
    if not rows:
        return
    table = Table(*rows[0], title=title)
    for row in rows:
        table.add_row(*row.values())
    Console(width=200).print(table)


if __name__ == "__main__":
    app.run(main)
