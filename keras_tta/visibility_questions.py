"""What a visibility rule shows, found by asking it about every pair of positions."""

from itertools import product

import numpy as np

from keras_tta.visibility import Side, Visibility


def looks_left(rule: Visibility, length: int) -> bool:
    """Whether a rule shows any query of a row of `length` an earlier key.

    Asked are rows of one segment and rows whose every token is one, and both of them
    with one word and with every token a word.

    Example:
    ```python
    from keras_tta.visibility import Causal, NotSelf
    from keras_tta.visibility_questions import looks_left, looks_right

    assert looks_left(Causal(), 8) and not looks_right(Causal(), 8)
    assert looks_right(NotSelf(), 8)
    ```
    """
    return _shows(rule, length, np.tri(length, k=-1, dtype=bool))


def looks_right(rule: Visibility, length: int) -> bool:
    """As `looks_left`, a later key: the future."""
    return _shows(rule, length, ~np.tri(length, dtype=bool))


def _shows(rule, length, pairs):
    position = np.arange(length, dtype="int32")
    for segment, word in product((position * 0, position), repeat=2):
        query, key = (
            Side(position[at], segment[at], word[at])
            for at in (np.s_[:, None], np.s_[None, :])
        )
        if np.any(rule.visible(query, key) & pairs):
            return True
    return False
