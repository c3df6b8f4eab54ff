"""Pictures of a training run."""

import os

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from keras_tta.training.metrics_csv import read_metrics

BLUE, ORANGE, INK, MUTED = "#0b6e99", "#d98c3f", "#1f2933", "#7b8794"


def empty_chart(size, title, title_pad=10):
    """A figure and its axes in the look of all our pictures."""
    figure = Figure(figsize=size, dpi=160, layout="constrained")
    axes = figure.add_subplot()
    axes.set_axisbelow(True)
    axes.tick_params(colors=MUTED, labelcolor=INK, length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#cbd2d9")
    axes.set_title(title or "", loc="left", color=INK, weight="bold", pad=title_pad)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(INK)
    return figure, axes


def save_figure(figure, path):
    """Write a figure; its folder is made if need be."""
    os.makedirs(os.path.dirname(os.fspath(path)) or ".", exist_ok=True)
    figure.savefig(path)


def plot_curves(csv_or_rows, path, unigram=None, title=None):
    """Draw training and held-out nats a token to a picture.

    The horizontal axis counts tokens if the rows have them, else steps. Training is
    `nats_per_token`, else `loss`; held-out is `val_nats_per_token`, else `val_loss`.
    A row's training figure is a mean over what it is ahead of the row before: where
    that is under a tenth of the usual, as at the end of a budget, it is left out.

    Args:
        csv_or_rows: the path of a file of `MetricsCSV`, or its `rows`.
        path: str or path of the picture; its ending says the format (`.png`,
            `.svg`, `.pdf`). Its folder is made if need be.
        unigram: float or None. Held-out nats a token of the unigram model, drawn
            as a baseline.
        title: str or None.

    Raises:
        ValueError: no row has a training loss.

    Example:

    ```python
    import keras_tta

    rows = [
        {"step": 10, "loss": 5.1, "val_nats_per_token": 5.0},
        {"step": 20, "loss": 4.6, "val_nats_per_token": 4.5},
    ]
    keras_tta.training.plot_curves(rows, "loss.png", unigram=5.6)
    ```
    """
    rows = csv_or_rows
    if isinstance(csv_or_rows, (str, os.PathLike)):
        rows = read_metrics(csv_or_rows)
    rows = list(rows)
    across = "tokens" if rows and all("tokens" in row for row in rows) else "step"
    seen = _without_stubs(rows, across)
    trained = _series(seen, across, "nats_per_token") or _series(seen, across, "loss")
    held_out = _series(rows, across, "val_nats_per_token") or _series(
        rows, across, "val_loss"
    )
    if not trained:
        raise ValueError(
            "`csv_or_rows` must hold rows with a `loss` and a `step` or `tokens`, as "
            f"`MetricsCSV` writes them. Received {len(rows)} rows."
        )

    # Above the legend, which stands above the axes.
    figure, axes = empty_chart((7.2, 4.2), title, title_pad=30)
    if unigram is not None:
        axes.axhline(
            unigram,
            color=MUTED,
            lw=1.2,
            ls=(0, (4, 3)),
            label=f"unigram {unigram:.2f}",
        )
    for points, name, style in (
        (trained, "training", {"color": ORANGE, "lw": 1.6, "ms": 3}),
        (held_out, "held-out", {"color": BLUE, "lw": 2.2, "ms": 4.5}),
    ):
        if points:
            x, y = zip(*points, strict=True)
            marker = "o" if len(points) <= 30 else None
            axes.plot(x, y, marker=marker, label=f"{name} {y[-1]:.2f}", **style)

    axes.set_xlabel("tokens predicted" if across == "tokens" else "step")
    axes.set_ylabel("nats a token")
    axes.set_xlim(left=0)
    axes.margins(y=0.08)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(axis="y", color="#e4e7eb", lw=0.8)
    axes.legend(
        frameon=False,
        labelcolor="linecolor",
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=3,
    )
    save_figure(figure, path)


def _without_stubs(rows, across):
    """The rows whose training figures are means of enough."""
    ends = [row.get(across, 0) for row in rows]
    spans = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    least = max(spans, default=0) / 10
    return [row for row, span in zip(rows, spans, strict=True) if span >= least]


def _series(rows, across, name):
    return [(row[across], row[name]) for row in rows if across in row and name in row]
