"""Pretrain a text encoder on your own text, from raw files to a preset.

    python examples/pretrain.py
    python examples/pretrain.py --corpus 'books/*.txt' --output runs/books --minutes 60
    python examples/pretrain.py --objective mlm

What can be learned is in `objectives.py`. Text is UTF-8, one sentence per line, a blank
line between documents. Without `--corpus` it trains on the documentation of Python. The
output folder holds the preset, `metrics.csv` and `loss.png`.

An interrupted run (Ctrl-C, a lost machine) goes on when the same command is run again;
one that is finished trains no more. Other settings need another `--output`: what they
find there of another run is refused, not replaced.
"""

from itertools import islice
from pathlib import Path

import keras
import numpy as np
from absl import app, flags
from objectives import DENOISERS, OBJECTIVES, WITH_GENERATOR
from rich.console import Console
from rich.table import Table

from keras_tta.data import (
    TokenBatches,
    python_documentation,
    read_documents,
    train_wordpiece,
    unigram_nats_per_token,
    write_token_store,
)
from keras_tta.layers.corruption import MASSDenoising
from keras_tta.models import TTABackbone
from keras_tta.tasks import TextScorer
from keras_tta.training import (
    AdamWeightDecay,
    CheckpointError,
    MetricsCSV,
    NonFiniteGuard,
    Progress,
    SharedClock,
    TrainingCheckpoint,
    WallClockBudget,
    distribute,
    plot_curves,
)

FLAGS = flags.FLAGS
flags.DEFINE_enum("objective", "tta", list(OBJECTIVES), "What is learned.")
flags.DEFINE_multi_string("corpus", [], "Text files, folders or patterns.")
flags.DEFINE_string("output", None, "Folder to write; by default runs/<objective>.")
flags.DEFINE_float("minutes", 2.0, "Training time; the learning rate ends with it.")
flags.DEFINE_integer("vocabulary_size", 2000, "Word pieces to train.")
flags.DEFINE_integer("tokenizer_documents", 100_000, "Documents it learns from.")
flags.DEFINE_float("held_out", 0.05, "Share of documents that is not trained on.")
flags.DEFINE_integer("num_layers", 2, "Layers.")
flags.DEFINE_integer("hidden_dim", 128, "Width.")
flags.DEFINE_integer("num_heads", 2, "Attention heads.")
flags.DEFINE_integer("sequence_length", 64, "Longest row, in tokens.")
flags.DEFINE_integer("batch_size", 8, "Rows of that length in a batch.")
flags.DEFINE_float("learning_rate", None, "Highest; 3e-2 for denoisers, else 1e-3.")
flags.DEFINE_float("dropout", 0.0, "Dropout; more than 0 if the text is read often.")
flags.DEFINE_integer("steps_per_evaluation", 200, "Steps between evaluations.")
flags.DEFINE_integer("devices", None, "How many; by default all there are.")
flags.DEFINE_enum("strategy", "data", ["data", "model"], "What devices divide.")
flags.DEFINE_integer("model_devices", None, "Devices that hold a weight together.")
flags.DEFINE_integer("seed", 0, "For weights, dropout and the order of the text.")
flags.register_multi_flags_validator(
    ["strategy", "objective"],
    lambda given: given["strategy"] == "data" or given["objective"] not in DENOISERS,
    "--strategy=model knows how to split our encoders, not KerasHub's T5.",
)

console = Console()


def main(arguments):
    if arguments[1:]:
        raise SystemExit(
            f"Not understood: {' '.join(arguments[1:])}. Quote a pattern, so that the "
            "shell does not expand it: --corpus 'texts/*.txt'"
        )
    layout = TTABackbone.get_layout_map if FLAGS.strategy == "model" else None
    devices = distribute(FLAGS.devices, FLAGS.strategy, layout, FLAGS.model_devices)
    keras.utils.set_random_seed(FLAGS.seed)
    output = Path(FLAGS.output or f"runs/{FLAGS.objective}")
    checkpoints = output / "checkpoints"
    if devices.process:  # The first process speaks and writes for all.
        console.quiet = True
        output = output / f"process-{devices.process}"
    output.mkdir(parents=True, exist_ok=True)
    # Encoders read sentences with [SOS] and [EOS], several in a row; denoisers, which
    # add the ends themselves, a piece of a document.
    denoises = FLAGS.objective in DENOISERS
    unit = "documents" if denoises else "sentences"
    rows = (
        {"start_token_id": None, "end_token_id": None} if denoises else {"packed": True}
    )

    console.print("Reading the text.")
    try:
        tokenizer, store = read_corpus(output)
        train, held_out = store.split(FLAGS.held_out, unit)
    except (OSError, ValueError) as error:
        raise SystemExit(f"The corpus cannot be used. {error}") from error
    unigram = unigram_nats_per_token(train, held_out, tokenizer.vocabulary_size())
    shape = {
        "batch_size": FLAGS.batch_size,
        "sequence_length": FLAGS.sequence_length,
        **rows,
        **devices.shares(),
    }
    train_batches = TokenBatches(
        train, seed=FLAGS.seed, steps_per_epoch=FLAGS.steps_per_evaluation, **shape
    )
    held_out_batches = TokenBatches(held_out, shuffle=False, **shape)
    report = store.info["report"]
    console.print(
        f"{report['stored_documents']:,} documents, {report['stored_sentences']:,} "
        f"sentences; dropped: {report['dropped'] or 'nothing'}.\n"
        f"{train.lengths.sum():,} tokens to train on, {held_out.lengths.sum():,} held "
        f"out, {train_batches.padding_share:.1%} padding. "
        f"Backend: {keras.backend.backend()}."
    )

    # The model and its training.
    pretrainer = build_pretrainer(tokenizer)
    # T5's optimizer, whose steps are relative to the weights; or AdamW.
    learning_rate = FLAGS.learning_rate
    if learning_rate is None:
        learning_rate = 3e-2 if denoises else 1e-3
    pretrainer.compile(
        keras.optimizers.Adafactor(learning_rate, relative_step=False)
        if denoises
        else AdamWeightDecay(learning_rate, bias_correction=True)
    )
    clock = SharedClock(devices)
    budget = WallClockBudget(FLAGS.minutes, learning_rate, clock=clock)
    metrics = MetricsCSV(output / "metrics.csv")
    checkpoint = TrainingCheckpoint(checkpoints, train_batches, [budget, metrics])
    progress = Progress(budget, train_batches)
    try:
        pretrainer.fit(
            train_batches,
            validation_data=held_out_batches,
            epochs=1_000_000,  # The budget ends it.
            callbacks=[
                checkpoint,
                NonFiniteGuard(checkpoint),
                clock,
                budget,
                *[progress] * (devices.process_count == 1),
                metrics,
            ],
            verbose=2 * (not devices.process),
        )
    except CheckpointError as error:
        raise SystemExit(str(error)) from error
    except KeyboardInterrupt:
        console.print(f"Stopped. The same command goes on from {checkpoints}.")
        raise SystemExit(130) from None

    # What was learned.
    held_out_figures = pretrainer.evaluate(
        held_out_batches, verbose=0, return_dict=True
    )
    nats = held_out_figures["nats_per_token"]
    console.print(
        f"Held-out nats per token: {nats:.2f}; a unigram model has {unigram:.2f}."
    )
    if "discriminator_recall" in held_out_figures:
        loss, auc, recall = (
            held_out_figures[f"discriminator_{x}"] for x in ("loss", "auc", "recall")
        )
        console.print(
            f"Discriminator: {loss:.3f} nats per token, area under the curve "
            f"{auc:.2f}, recall {recall:.1%}."
            + (" It finds hardly a replacement yet." if recall < 0.01 else "")
        )
    has_generator = FLAGS.objective in WITH_GENERATOR
    what = "generator's held-out nats" if has_generator else "held-out nats"
    figures = {f"{what} per token": nats, "of a unigram model": unigram}
    if has_generator:
        loss = held_out_figures["discriminator_loss"]
        figures["discriminator's held-out nats per token"] = loss
    pretrainer.save_to_preset(output / "preset", tokenizer=tokenizer, figures=figures)
    plot_curves(metrics.rows, output / "loss.png", unigram=unigram)
    console.print(f"Written: {output}/preset, metrics.csv, loss.png.")
    if devices.count > 1:
        return  # A few sentences do not divide among many.
    if denoises:
        show_completions(pretrainer, tokenizer, held_out_batches[0][0])
    else:
        part = "preset/generator" if has_generator else "preset"
        if has_generator:
            console.print("The generator scores:")
        scorer = TextScorer.from_preset(output / part)
        show_pairs(scorer, map(tokenizer.detokenize, held_out))


def read_corpus(output):
    """A tokenizer, and its tokens on disk, where a second run finds them."""
    corpus = FLAGS.corpus or [write_demo_corpus(output / "corpus.txt")]
    # Long documents are cut, so that some of a single long one can be held out.
    documents = read_documents(corpus, max_sentences=100)
    tokenizer = train_wordpiece(
        islice(documents, FLAGS.tokenizer_documents), FLAGS.vocabulary_size
    )
    folder = output / f"tokens-{FLAGS.vocabulary_size}"
    return tokenizer, write_token_store(folder, corpus, tokenizer, max_sentences=100)


def build_pretrainer(tokenizer):
    """The objective, over a network of the size the flags ask for."""
    size = {
        "vocabulary_size": tokenizer.vocabulary_size(),
        "num_layers": FLAGS.num_layers,
        "num_heads": FLAGS.num_heads,
        "hidden_dim": FLAGS.hidden_dim,
        "intermediate_dim": 4 * FLAGS.hidden_dim,
        "max_sequence_length": FLAGS.sequence_length,
        "dropout": FLAGS.dropout,
    }
    return OBJECTIVES[FLAGS.objective](size, tokenizer)


def write_demo_corpus(path):
    """Python's own documentation as a text file, in the format `--corpus` takes."""
    documents = python_documentation(docstrings=True)
    path.write_text("\n\n".join(map("\n".join, documents)) + "\n", encoding="utf-8")
    return str(path)


def show_pairs(scorer, sentences, count=200, shown=6):
    """Scores sentences against themselves with two neighbouring words swapped."""
    rng = np.random.default_rng(FLAGS.seed)
    good, bad = [], []
    for sentence in islice((s for s in sentences if 6 <= len(s.split()) <= 14), count):
        words = sentence.split()
        i = rng.integers(len(words) - 1)
        words[i], words[i + 1] = words[i + 1], words[i]
        if " ".join(words) != sentence:
            good.append(sentence)
            bad.append(" ".join(words))
    if not good:
        return
    good_scores, bad_scores = scorer.score(good), scorer.score(bad)
    table = Table("held-out sentence", "log p", "two words swapped", "log p")
    for row in islice(zip(good, good_scores, bad, bad_scores, strict=True), shown):
        table.add_row(row[0], f"{row[1]:.1f}", row[2], f"{row[3]:.1f}")
    console.print(table)
    share = np.mean(good_scores > bad_scores)
    console.print(f"The original scores higher in {share:.0%} of {len(good)} pairs.")


def show_completions(denoiser, tokenizer, batch, shown=3):
    """Lets the decoder answer corrupted held-out text, beside the right answer."""
    corruption = denoiser.corruption
    if isinstance(corruption, MASSDenoising):
        console.print("MASS's decoder answers hidden slots alone: no completions.")
        return
    batch = {name: array[:shown] for name, array in batch.items()}
    corrupted = corruption.numpy(**batch)
    read, read_mask = corrupted["encoder_token_ids"], corrupted["encoder_padding_mask"]
    labels = corrupted["labels"]
    answers = denoiser.complete(read, read_mask, max_length=labels.shape[1])

    def text(token_ids):
        # Sentinels and modes come after the tokenizer's own tokens.
        known = tokenizer.vocabulary_size()
        pieces = [
            tokenizer.id_to_token(i)
            if i < known
            else f"<{corruption.vocabulary_size - 1 - i}>"
            for i in token_ids
            if i != corruption.pad_token_id
        ]
        return " ".join(pieces).replace(" ##", "")

    table = Table("the encoder reads", "the decoder writes", "the right answer")
    for row in zip(read, answers, labels, strict=True):
        table.add_row(*(text(ids.tolist()) for ids in row), end_section=True)
    console.print(table)


if __name__ == "__main__":
    app.run(main)
