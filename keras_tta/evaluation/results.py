"""What an evaluation gives: a table that prints, is saved and is drawn."""

import csv
import json
import os
from typing import Any, ClassVar

from rich.console import Console
from rich.table import Table

from keras_tta.charts import empty_chart, save_figure


class Result:
    """A table of figures.

    A result says its `title`, has `figures` and `rows`, prints as a table, with `print`
    as with `rich.print`, and is kept with `to_csv`, `to_json` and `plot`.

    Attributes:
        figures: dict of what was found, over everything.
        rows: list of dicts, the lines of the table that `to_csv` writes.
    """

    title: ClassVar[str]
    formats: ClassVar[dict[str, str]] = {}
    chart_size: ClassVar[tuple[float, float]] = (6.4, 4.2)

    @property
    def figures(self) -> dict[str, Any]:
        raise NotImplementedError(f"{type(self).__name__} must define `figures`.")

    @property
    def rows(self) -> list[dict[str, Any]]:
        raise NotImplementedError(f"{type(self).__name__} must define `rows`.")

    def to_csv(self, path: str | os.PathLike) -> None:
        """Write the rows to a CSV file. Its folder is made if need be."""
        rows = self.rows
        with _open(path) as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else [])
            writer.writeheader()
            writer.writerows(rows)

    def to_json(self, path: str | os.PathLike) -> None:
        """Write figures and rows to a JSON file. Its folder is made if need be."""
        with _open(path) as file:
            json.dump(
                {**self.figures, "rows": self.rows}, file, ensure_ascii=False, indent=1
            )

    def plot(self, path: str | os.PathLike, title: str | None = None) -> None:
        """Draw a chart; the path's ending says the format (`.png`, `.svg`, `.pdf`)."""
        figure, axes = empty_chart(self.chart_size, title or self.title)
        self._draw(axes)
        save_figure(figure, path)

    def _printed(self) -> list[dict[str, Any]]:
        """The rows of the printed table."""
        return [self.figures]

    def _draw(self, axes) -> None:
        raise NotImplementedError(f"{type(self).__name__} must define `_draw`.")

    def __rich__(self):
        rows = self._printed()
        table = Table(title=self.title, title_justify="left", title_style="bold")
        for name, value in rows[0].items():
            is_number = isinstance(value, int | float)
            table.add_column(
                name.replace("_", " "), justify="right" if is_number else "left"
            )
        for row in rows:
            table.add_row(*(self._cell(*item) for item in row.items()))
        return table

    def __str__(self):
        # A width of its own: where the output is no terminal, rich would take 80.
        console = Console(width=120, color_system=None)
        with console.capture() as capture:
            console.print(self)
        return "\n".join(map(str.rstrip, capture.get().splitlines()))

    def _cell(self, name, value):
        default = "{:,}" if isinstance(value, int) else "{}"
        return self.formats.get(name, default).format(value)


def _open(path):
    os.makedirs(os.path.dirname(os.fspath(path)) or ".", exist_ok=True)
    return open(path, "w", encoding="utf-8", newline="")
