"""Pictures of a training run."""

import math
import os

from matplotlib.ticker import EngFormatter

from keras_tta.charts import BASELINE, BLUE, GRID, ORANGE, empty_chart, save_figure
from keras_tta.training.metrics_csv import read_metrics


def plot_curves(csv_or_rows, path, unigram=None, title=None):
    """Draw training and held-out nats per token to a picture.

    Beside them, if there is a discriminator, its `discriminator_loss`, and as a
    baseline the loss of knowing no more than how many tokens are replaced.

    The horizontal axis counts tokens if the rows have them, else steps. Training is
    `nats_per_token`, else `loss`; held-out is `val_nats_per_token`, else `val_loss`.
    A row's training figure is a mean over what it is ahead of the row before: where
    that is under a tenth of the usual, as at the end of a budget, it is left out.

    Args:
        csv_or_rows: the path of a file of `MetricsCSV`, or its `rows`.
        path: str or path of the picture; its ending says the format (`.png`,
            `.svg`, `.pdf`). Its folder is made if need be.
        unigram: float or None. Held-out nats per token of the unigram model, drawn
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

    def curves(name):
        return _series(seen, across, name), _series(rows, across, f"val_{name}")

    nats, losses = curves("nats_per_token"), curves("loss")
    trained, held_out = (x or y for x, y in zip(nats, losses, strict=True))
    if not trained:
        raise ValueError(
            "`csv_or_rows` must hold rows with a `loss` and a `step` or `tokens`, as "
            f"`MetricsCSV` writes them. Received {len(rows)} rows."
        )
    label, unit = "nats per token", "tokens predicted"
    panels = [(label, trained, held_out, ("unigram", unigram))]
    found = curves("discriminator_loss")
    if any(found):
        unit = "masked tokens"
        panels[0] = ("generator, nats per masked token", *panels[0][1:])
        base_rate = ("base rate", _base_rate_nats(rows))
        panels.append((f"discriminator, {label}", *found, base_rate))

    # Titles stand above the legends, which stand above the axes.
    width = 7.2 if len(panels) == 1 else 11.0
    figure, *grid = empty_chart((width, 4.2), title, 30, len(panels))
    for axes, panel in zip(grid, panels, strict=True):
        _draw_panel(axes, *panel)
        axes.set_xlabel(unit if across == "tokens" else "step")
    save_figure(figure, path)


def _draw_panel(axes, label, trained, held_out, baseline):
    name, value = baseline
    if value is not None:
        axes.axhline(value, label=f"{name} {value:.3g}", **BASELINE)
    for points, name, style in (
        (trained, "training", {"color": ORANGE, "lw": 1.6, "ms": 3}),
        (held_out, "held-out", {"color": BLUE, "lw": 2.2, "ms": 4.5}),
    ):
        if points:
            x, y = zip(*points, strict=True)
            marker = "o" if len(points) <= 30 else None
            axes.plot(x, y, marker=marker, label=f"{name} {y[-1]:.3g}", **style)
    axes.set_ylabel(label)
    axes.set_xlim(left=0)
    axes.margins(y=0.08)
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.grid(axis="y", **GRID)
    axes.legend(
        frameon=False,
        labelcolor="linecolor",
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=3,
    )


def _base_rate_nats(rows):
    """The loss of knowing of replaced tokens only how many there are, or None."""
    names = ("majority_accuracy", "val_majority_accuracy")
    shares = [row[name] for row in rows for name in names if name in row]
    if not shares or not 0 < shares[-1] < 1:
        return None
    share = shares[-1]
    return -share * math.log(share) - (1 - share) * math.log(1 - share)


def _without_stubs(rows, across):
    """The rows whose training figures are means of enough."""
    ends = [row.get(across, 0) for row in rows]
    spans = [end - start for start, end in zip([0, *ends], ends, strict=False)]
    least = max(spans, default=0) / 10
    return [row for row, span in zip(rows, spans, strict=True) if span >= least]


def _series(rows, across, name):
    return [(row[across], row[name]) for row in rows if across in row and name in row]
