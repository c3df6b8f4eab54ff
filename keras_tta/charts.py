"""The look of all charts."""

import os

from matplotlib.figure import Figure

BLUE, ORANGE, INK, MUTED = "#0b6e99", "#d98c3f", "#1f2933", "#7b8794"
GRID = {"color": "#e4e7eb", "lw": 0.8}
BASELINE = {"color": MUTED, "lw": 1.2, "ls": (0, (4, 3))}


def empty_chart(size, title, title_pad=10, panels=1):
    """A figure and its axes, one for each panel."""
    figure = Figure(figsize=size, dpi=160, layout="constrained")
    (row,) = figure.subplots(1, panels, squeeze=False)
    for axes in row:
        axes.set_axisbelow(True)
        axes.tick_params(colors=MUTED, labelcolor=INK, length=0)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.spines["bottom"].set_color("#cbd2d9")
        for label in (axes.xaxis.label, axes.yaxis.label):
            label.set_color(INK)
    row[0].set_title(title or "", loc="left", color=INK, weight="bold", pad=title_pad)
    return figure, *row


def save_figure(figure, path):
    """Write a figure; its folder is made if need be."""
    os.makedirs(os.path.dirname(os.fspath(path)) or ".", exist_ok=True)
    figure.savefig(path)


def draw_bars(axes, names, values, texts, intervals=None):
    """Horizontal bars, the first on top, with a text behind each.

    Args:
        intervals: (low, high) around each value, if known.
    """
    places = range(len(names))
    axes.barh(places, values, height=0.62, color=BLUE)
    ends = list(values)
    if intervals is not None:
        low, high = zip(*intervals, strict=True)
        axes.hlines(places, low, high, color=INK, lw=1.4)
        ends = [max(pair) for pair in zip(ends, high, strict=True)]
    for place, end, text in zip(places, ends, texts, strict=True):
        axes.annotate(
            text,
            (end, place),
            (4, 0),
            textcoords="offset points",
            va="center",
            color=INK,
            fontsize=9,
            bbox={"color": "white", "pad": 1},
        )
    axes.set_yticks(places, names)
    axes.invert_yaxis()
    axes.grid(axis="x", **GRID)
