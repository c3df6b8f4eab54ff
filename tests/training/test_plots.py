import matplotlib.image
import numpy as np
import pytest

from keras_tta.training import plot_curves
from keras_tta.training.plots import _base_rate_nats

pytestmark = pytest.mark.agnostic

ROWS = [
    {"step": step, "tokens": 64 * step, "loss": 6 - step / 50, "val_loss": 5.5}
    for step in (10, 20, 30)
]


def picture(path, *arguments, **keywords):
    plot_curves(*arguments, path, **keywords)
    return matplotlib.image.imread(path)


def test_rows_and_their_file_give_the_same_picture(tmp_path):
    csv = tmp_path / "metrics.csv"
    lines = [",".join(map(str, row.values())) for row in ROWS]
    csv.write_text("\n".join([",".join(ROWS[0]), *lines]))
    a = picture(tmp_path / "folder" / "a.png", csv)
    b = picture(tmp_path / "folder" / "b.png", ROWS)
    np.testing.assert_array_equal(a, b)
    assert a.shape[1] > 1000


@pytest.mark.parametrize(
    "change",
    [
        {"unigram": 5.8},
        {"title": "A run"},
        {"csv_or_rows": [{**row, "val_nats_per_token": 5.0} for row in ROWS]},
        {"csv_or_rows": [{"step": row["step"], "loss": 5.0} for row in ROWS]},
    ],
)
def test_what_is_given_is_drawn(tmp_path, change):
    plain = picture(tmp_path / "a.png", ROWS)
    changed = picture(tmp_path / "b.png", change.pop("csv_or_rows", ROWS), **change)
    assert plain.shape == changed.shape
    assert (plain != changed).any()


def test_a_discriminator_has_a_panel_of_its_own(tmp_path):
    found = {"discriminator_loss": 0.5, "val_discriminator_loss": 0.4}
    rows = [{**row, **found, "majority_accuracy": 0.9} for row in ROWS]
    plain = picture(tmp_path / "a.png", ROWS)
    with_panel = picture(tmp_path / "b.png", rows)
    assert with_panel.shape[0] == plain.shape[0]
    assert with_panel.shape[1] > plain.shape[1]
    rows = [{**row, "val_majority_accuracy": 0.8} for row in rows]
    assert (picture(tmp_path / "c.png", rows) != with_panel).any()


def test_the_base_rate_is_its_entropy():
    assert _base_rate_nats(ROWS) is None
    assert _base_rate_nats([{"majority_accuracy": 1.0}]) is None
    assert _base_rate_nats([{"majority_accuracy": 0.5}]) == pytest.approx(np.log(2))


def test_a_mean_of_too_few_is_not_drawn(tmp_path):
    stub = {"step": 31, "tokens": 64 * 30 + 9, "loss": 9.0, "val_loss": 5.5}
    rows = [*ROWS, {**stub, "loss": 5.4}]
    one = picture(tmp_path / "a.png", rows)
    other = picture(tmp_path / "b.png", [*ROWS, stub])
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("rows", [[], [{"step": 1}], [{"loss": 1.0}]])
def test_nothing_to_draw(tmp_path, rows):
    with pytest.raises(ValueError, match=f"Received {len(rows)} rows"):
        plot_curves(rows, tmp_path / "a.png")
