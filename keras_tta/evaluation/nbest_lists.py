"""n-best lists: what a recogniser or translator took an utterance for."""

import json
import math
import os
from collections.abc import Iterator
from numbers import Real
from typing import Any, NamedTuple

from keras_tta.data.compression import DamagedFile, open_bytes
from keras_tta.evaluation.files import json_rows


class Hypothesis(NamedTuple):
    """A text and its score, the logarithm of a probability."""

    text: str
    score: float


class NBestList(NamedTuple):
    """The hypotheses for an utterance, and what was said, if that is known.

    Args:
        utterance: its name.
        hypotheses: list of `Hypothesis`.
        reference: what was said, or `None`.

    Example:
    ```python
    from keras_tta.evaluation import Hypothesis, NBestList

    nbest = NBestList("u1", [Hypothesis("a cat", -1.0), Hypothesis("a bat", -0.5)])
    assert nbest.best == 1
    ```
    """

    utterance: str
    hypotheses: list[Hypothesis]
    reference: str | None = None

    @property
    def best(self) -> int:
        """The index of the hypothesis with the highest score, the 1-best."""
        return max(range(len(self.hypotheses)), key=lambda i: self.hypotheses[i].score)


def check_nbest_list(nbest: NBestList) -> None:
    """Raise unless a list has hypotheses, each a text and a finite score."""
    if not nbest.hypotheses:
        raise ValueError(f"Utterance {nbest.utterance!r} has no hypotheses.")
    for index, (text, score) in enumerate(nbest.hypotheses):
        if not _is_hypothesis(text, score):
            raise ValueError(
                f"Utterance {nbest.utterance!r}: hypothesis {index} must have a text "
                f"and a finite number as score. Received: {text!r:.60}, {score!r}"
            )


def _is_hypothesis(text, score):
    is_number = isinstance(score, Real) and not isinstance(score, bool)
    return isinstance(text, str) and is_number and math.isfinite(score)


def read_nbest_lists(path: str | os.PathLike) -> Iterator[NBestList]:
    """Read n-best lists, one at a time.

    JSONL, a list a line, which is never held in memory whole:

    ```text
    {"utt": "u1", "ref": "a cat sat", "hyps": [{"text": "a cat sad", "score": -1.2}]}
    ```

    `ref` may be left out. A `.json` file is read in the format of mlm-scoring, one
    object from utterances to `hyp_1`, `hyp_2`, ... and `ref`.

    Args:
        path: a UTF-8 file, plain, `.gz` or `.zst`.

    Raises:
        ValueError: if a line, or an utterance, is not such a list. It names file and
            line, or file and utterance.

    Example:
    ```python
    from pathlib import Path
    from keras_tta.evaluation import read_nbest_lists

    Path("lists.jsonl").write_text(
        '{"utt": "u1", "ref": "a cat", "hyps": [{"text": "a bat", "score": -0.5}]}'
    )
    (nbest,) = read_nbest_lists("lists.jsonl")
    assert nbest.reference == "a cat" and nbest.hypotheses[0].text == "a bat"
    ```
    """
    if os.fspath(path).endswith((".json", ".json.gz", ".json.zst")):
        yield from _read_mlm_scoring(os.fspath(path))
        return
    for place, row in json_rows(path):
        yield _nbest_list(place, row.get("utt"), row.get("hyps"), row.get("ref"))


def _read_mlm_scoring(path):
    with open_bytes(path) as file:
        try:
            utterances = json.load(file)
        except DamagedFile as error:
            raise ValueError(f"{path}: {error}.") from None
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{path}:{error.lineno}: the file is not JSON ({error.msg}). If it "
                "has an object a line, name it `.jsonl`."
            ) from None
    if not isinstance(utterances, dict):
        raise ValueError(f"{path}: expected one JSON object, utterances by name.")
    for utterance, entries in utterances.items():
        place = f"{path}: utterance {utterance!r}"
        if not isinstance(entries, dict):
            raise ValueError(f"{place}: expected an object with `hyp_1` and so on.")
        names = [name for name in entries if name.removeprefix("hyp_").isdigit()]
        names.sort(key=lambda name: int(name.removeprefix("hyp_")))
        hyps = [entries[name] for name in names]
        yield _nbest_list(place, utterance, hyps, entries.get("ref"))


def _nbest_list(place, utterance, hyps: Any, reference):
    if utterance is None or not isinstance(hyps, list) or not hyps:
        raise ValueError(
            f"{place}: an n-best list must have a name, `utt`, and at least one "
            f"hypothesis in `hyps`. Received: utt={utterance!r}, hyps={hyps!r:.60}"
        )
    if not isinstance(reference, str | None):
        raise ValueError(f"{place}: `ref` must be text. Received: {reference!r:.60}")
    hypotheses = []
    for index, hyp in enumerate(hyps):
        text, score = (
            (hyp.get("text"), hyp.get("score"))
            if isinstance(hyp, dict)
            else (None,) * 2
        )
        if not _is_hypothesis(text, score):
            raise ValueError(
                f"{place}: hypothesis {index} must have a `text` and a finite number "
                f"as `score`. Received: {hyp!r:.80}"
            )
        hypotheses.append(Hypothesis(text.strip(), float(score)))
    return NBestList(str(utterance), hypotheses, reference and reference.strip())
