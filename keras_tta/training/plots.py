"""Pictures of a training run."""

import os

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from keras_tta.training.metrics_csv import read_metrics

_TRAINING, _HELD_OUT, _INK, _MUTED = "#d98c3f", "#0b6e99", "#1f2933", "#7b8794"


def plot_curves(csv_or_rows, path, unigram=None, title=None):
    """Draw training and held-out nats a token to a picture.

    The horizontal axis counts tokens if the rows have them, else steps. Training is
    `nats_per_token`, else `loss`; held-out is `val_nats_per_token`, else `val_loss`.

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
    trained = _series(rows, across, "nats_per_token") or _series(rows, across, "loss")
    held_out = _series(rows, across, "val_nats_per_token") or _series(
        rows, across, "val_loss"
    )
    if not trained:
        raise ValueError(
            "`csv_or_rows` must hold rows with a `loss` and a `step` or `tokens`, as "
            f"`MetricsCSV` writes them. Received {len(rows)} rows."
        )

    figure = Figure(figsize=(7.2, 4.2), dpi=160, layout="constrained")
    axes = figure.add_subplot()
    if unigram is not None:
        axes.axhline(
            unigram,
            color=_MUTED,
            lw=1.2,
            ls=(0, (4, 3)),
            label=f"unigram {unigram:.2f}",
        )
    for points, name, style in (
        (trained, "training", {"color": _TRAINING, "lw": 1.6, "ms": 3}),
        (held_out, "held-out", {"color": _HELD_OUT, "lw": 2.2, "ms": 4.5}),
    ):
        if points:
            x, y = zip(*points, strict=True)
            marker = "o" if len(points) <= 30 else None
            axes.plot(x, y, marker=marker, label=f"{name} {y[-1]:.2f}", **style)

    axes.set_xlabel("tokens read" if across == "tokens" else "step")
    axes.set_ylabel("nats a token")
    axes.set_title(title or "", loc="left", color=_INK, weight="bold", pad=10)
    axes.set_xlim(left=0)
    axes.margins(y=0.08)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(axis="y", color="#e4e7eb", lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_MUTED, length=0)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set_color(_INK)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color("#cbd2d9")
    axes.legend(
        frameon=False,
        labelcolor="linecolor",
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=3,
    )
    os.makedirs(os.path.dirname(os.fspath(path)) or ".", exist_ok=True)
    figure.savefig(path)


def _series(rows, across, name):
    return [(row[across], row[name]) for row in rows if across in row and name in row]
