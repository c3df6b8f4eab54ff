"""The rules that texts are scored under."""

from keras_tta.visibility import Visibility, Window, named_rule


def scoring_rule(
    visibility: str | Visibility | None,
    window: int | None,
    own: Visibility,
) -> Visibility:
    """The rule that `visibility` and `window` ask for.

    Args:
        visibility: a rule, a name of one, or `None` for the model's own.
        window: the farthest that a token may look, to either side; `None` for no limit.
        own: the rule of the model.

    Raises:
        ValueError: if the name is none of ours, or the rule does not hide self.
    """
    rule = own if visibility is None else visibility
    if isinstance(rule, str):
        rule = named_rule(rule)
    if not isinstance(rule, Visibility):
        raise ValueError(
            "`visibility` must be a name, a rule such as `NotSelf()`, or None. "
            f"Received: visibility={rule!r}"
        )
    if window is not None:
        rule = rule & Window(window)
    if not rule.hides_self:
        raise ValueError(
            "A token that sees itself is copied, not predicted, so its score would "
            "mean nothing. Score under a rule that hides self, such as `NotSelf()`, "
            f"with a model trained under one. Received: {rule!r}"
        )
    return rule
