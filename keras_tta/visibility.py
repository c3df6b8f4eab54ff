"""Who may see whom: visibility rules and their algebra.

A rule answers one question, *which keys may query i see?*, from what each side
carries: its position in the row, its segment, its word. Rules are values: they
compose with `&` and `|`, compare by their config, and are saved with the model.
`keras_tta.layers.VisibilityMask` turns a rule into a mask and ANDs the padding last.

Axes: B batch, T target (query) length, S source (key) length.
"""

import json
from typing import Any, NamedTuple

import keras

register = keras.saving.register_keras_serializable(package="keras_tta")


class Side(NamedTuple):
    """What the queries, or the keys, of a batch carry.

    Every field is an integer tensor that broadcasts to (B, T, S): queries as
    (B or 1, T, 1), keys as (B or 1, 1, S). A field no rule needs may be `None`.

    Attributes:
        position: the slot in the row, 0 to T - 1 (never a restarted position id).
        segment: the packed sequence a token belongs to.
        word: the word a token belongs to; the pieces of one word share a number.
    """

    position: Any
    segment: Any = None
    word: Any = None


class Visibility:
    """Base of all rules: a pure, comparable and serialisable value.

    A rule gives `visible(query, key)`, a boolean tensor that broadcasts to
    (B, T, S) and is made with operators alone, so that it runs on NumPy arrays and
    on the tensors of every backend.

    Attributes:
        needs: the model inputs the rule asks for beyond `token_ids` and
            `padding_mask`, out of `"segment_ids"`, `"position_ids"`, `"word_ids"`.
        hides_self: whether no query ever sees the token at its own position. Only
            under such a rule may a model with static keys and values score text.

    Example:
    ```python
    import numpy as np
    from keras_tta.visibility import NotSelf, Side, Window

    rule = NotSelf() & Window(1)
    position = np.arange(4)
    seen = rule.visible(Side(position[:, None]), Side(position[None, :]))
    assert rule.hides_self
    assert seen.sum(axis=1).tolist() == [1, 2, 2, 1]
    ```
    """

    needs = ()
    hides_self = False

    def visible(self, query, key):
        raise NotImplementedError(f"{type(self).__name__} must define `visible`.")

    def get_config(self):
        if type(self).__init__ is not Visibility.__init__:
            # Rules are equal if their configs are: one without would equal another.
            raise NotImplementedError(
                f"{type(self).__name__} has an `__init__` of its own: it must define "
                "`get_config`, with the arguments to make it again."
            )
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def __and__(self, other):
        return And(self, other) if isinstance(other, Visibility) else NotImplemented

    def __or__(self, other):
        return Or(self, other) if isinstance(other, Visibility) else NotImplemented

    @property
    def _identity(self):
        return json.dumps(keras.saving.serialize_keras_object(self), sort_keys=True)

    def __eq__(self, other):
        return isinstance(other, Visibility) and self._identity == other._identity

    def __hash__(self):
        return hash(self._identity)

    def __repr__(self):
        config = ", ".join(f"{k}={v!r}" for k, v in self.get_config().items())
        return f"{type(self).__name__}({config})"


@register
class All(Visibility):
    """Every query sees every key (masked language models, fine-tuning).

    Example:
    ```python
    from keras_tta.visibility import All

    assert not All().hides_self
    ```
    """

    def visible(self, query, key):
        return (query.position >= 0) & (key.position >= 0)


@register
class NotSelf(Visibility):
    """Every query sees all keys but its own: the diagonal is hidden (T-TA).

    Example:
    ```python
    from keras_tta.visibility import NotSelf

    assert NotSelf().hides_self
    ```
    """

    hides_self = True

    def visible(self, query, key):
        return query.position != key.position


@register
class Causal(Visibility):
    """Every query sees the keys up to its own position.

    Args:
        strict: hide the query's own position too, so that only the left context
            remains. Defaults to `False`, as causal language models have it.

    Example:
    ```python
    from keras_tta.visibility import Causal

    assert Causal(strict=True).hides_self and not Causal().hides_self
    ```
    """

    def __init__(self, strict=False):
        self.strict = bool(strict)

    @property
    def hides_self(self):
        return self.strict

    def visible(self, query, key):
        if self.strict:
            return key.position < query.position
        return key.position <= query.position

    def get_config(self):
        return {"strict": self.strict}


@register
class SameSegment(Visibility):
    """Queries see only keys of their own segment: packed rows do not mix.

    It also asks for `position_ids`, since positions restart in every segment of a
    packed row.

    Example:
    ```python
    from keras_tta.visibility import NotSelf, SameSegment

    packed = NotSelf() & SameSegment()
    assert packed.needs == ("position_ids", "segment_ids")
    ```
    """

    needs = ("position_ids", "segment_ids")

    def visible(self, query, key):
        return query.segment == key.segment


@register
class Window(Visibility):
    """Queries see keys at most `size` positions away, on either side.

    Args:
        size: the largest distance that is visible, at least 1.

    Raises:
        ValueError: if `size` is not a positive integer.

    Example:
    ```python
    from keras_tta.visibility import NotSelf, Window

    assert (NotSelf() & Window(8)).hides_self
    ```
    """

    def __init__(self, size):
        if isinstance(size, bool) or int(size) != size or size < 1:
            raise ValueError(
                "`size` of Window must be a positive whole number of positions. "
                f"Received: size={size!r}"
            )
        self.size = int(size)

    def visible(self, query, key):
        distance = query.position - key.position
        return (distance <= self.size) & (distance >= -self.size)

    def get_config(self):
        return {"size": self.size}


@register
class HideWord(Visibility):
    """Queries do not see (the rest of) the word they belong to.

    `pieces="all"` hides the whole word. `pieces="right"` hides the query's own piece
    and those to its right, so that a word is scored piece by piece from left to right
    (PLL-word-l2r of Kauf and Ivanova, 2023), here by hiding the keys rather than
    by showing a mask token in their place.

    Word ids made from the target's own spelling, such as the `##` of WordPiece, tell
    whether the target continues a word: scores under this rule know that much.

    Args:
        pieces: `"all"` or `"right"`. Defaults to `"all"`.

    Raises:
        ValueError: if `pieces` is neither.

    Example:
    ```python
    import numpy as np
    from keras_tta.visibility import HideWord, Side

    position, word = np.arange(3), np.array([0, 0, 1])
    query = Side(position[:, None], word=word[:, None])
    key = Side(position[None, :], word=word[None, :])
    seen = HideWord("right").visible(query, key).astype(int)
    assert seen.tolist() == [[0, 0, 1], [1, 0, 1], [1, 1, 0]]
    ```
    """

    needs = ("word_ids",)
    hides_self = True

    def __init__(self, pieces="all"):
        if pieces not in ("all", "right"):
            raise ValueError(
                '`pieces` of HideWord must be "all" (hide the whole word) or "right" '
                "(hide the piece itself and those to its right). "
                f"Received: pieces={pieces!r}"
            )
        self.pieces = pieces

    def visible(self, query, key):
        other_word = query.word != key.word
        if self.pieces == "all":
            return other_word
        return other_word | (key.position < query.position)

    def get_config(self):
        return {"pieces": self.pieces}


class _Composition(Visibility):
    """Two or more rules as one."""

    def __init__(self, *rules):
        flat = []
        for rule in rules:
            if not isinstance(rule, Visibility):
                raise ValueError(
                    f"{type(self).__name__} composes visibility rules, such as "
                    f"`NotSelf()`. Received: {rule!r}"
                )
            flat.extend(rule.rules if type(rule) is type(self) else [rule])
        if not flat:
            raise ValueError(f"{type(self).__name__} needs at least one rule.")
        self.rules = tuple(flat)

    @property
    def needs(self):
        return tuple(sorted({name for rule in self.rules for name in rule.needs}))

    def get_config(self):
        return {"rules": [keras.saving.serialize_keras_object(r) for r in self.rules]}

    @classmethod
    def from_config(cls, config):
        return cls(*map(keras.saving.deserialize_keras_object, config["rules"]))

    def __repr__(self):
        return "(" + f" {self._symbol} ".join(map(repr, self.rules)) + ")"


@register
class And(_Composition):
    """A key is visible if every rule shows it; written `a & b`.

    Example:
    ```python
    from keras_tta.visibility import All, And, NotSelf

    assert And(All(), NotSelf()) == All() & NotSelf()
    ```
    """

    _symbol = "&"

    @property
    def hides_self(self):
        return any(rule.hides_self for rule in self.rules)

    def visible(self, query, key):
        first, *rest = (rule.visible(query, key) for rule in self.rules)
        for seen in rest:
            first = first & seen
        return first


@register
class Or(_Composition):
    """A key is visible if any rule shows it; written `a | b`.

    It hides self only if every branch does.

    Example:
    ```python
    from keras_tta.visibility import Causal, NotSelf, Window

    assert (NotSelf() | Causal(strict=True)).hides_self
    assert not (NotSelf() | Window(2)).hides_self
    ```
    """

    _symbol = "|"

    @property
    def hides_self(self):
        return all(rule.hides_self for rule in self.rules)

    def visible(self, query, key):
        first, *rest = (rule.visible(query, key) for rule in self.rules)
        for seen in rest:
            first = first | seen
        return first


NAMED_RULES = {
    "others": NotSelf(),
    "word_left_to_right": HideWord("right"),
    "whole_word": HideWord("all"),
    "left": Causal(strict=True),
}


def named_rule(name: str, argument: str = "visibility") -> Visibility:
    """The rule that goes by a name: what a token may be predicted from.

    `"others"`: all other tokens; `"word_left_to_right"`: not the pieces of its own word
    that follow; `"whole_word"`: no piece of its own word; `"left"`: what precedes it.

    Args:
        name: the name.
        argument: what to call it in an error.

    Raises:
        ValueError: if the name is none of these.

    Example:
    ```python
    from keras_tta.visibility import NotSelf, named_rule

    assert named_rule("others") == NotSelf()
    ```
    """
    if name not in NAMED_RULES:
        raise ValueError(
            f"`{argument}` must name rules out of "
            f"{', '.join(map(repr, NAMED_RULES))}. Received: {name!r}"
        )
    return NAMED_RULES[name]
