"""The look of evaluation charts."""

from keras_tta.training.plots import BLUE, INK, empty_chart, save_figure


def save_chart(path, draw, size, title):
    """Make a picture of what `draw` puts on the axes it is given."""
    figure, axes = empty_chart(size, title)
    draw(axes)
    save_figure(figure, path)


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
    axes.grid(axis="x", color="#e4e7eb", lw=0.8)
