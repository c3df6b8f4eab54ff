"""How hypotheses are written for a model: in the case and punctuation of its text."""

from collections.abc import Sequence
from dataclasses import dataclass

from keras_tta.checks import check_one_of

ENDS = (".", "!", "?", "…", "。", "！", "？")
CASES = {
    "keep": "as they are (the tokenizer sees to their case)",
    "lower": "in lower case",
    "sentence": "in lower case after a first capital",
}


@dataclass(frozen=True)
class HypothesisForm:
    """What is done to a hypothesis before the model reads it.

    Args:
        case: `"keep"`, `"lower"`, or `"sentence"`: lower case after a first capital.
        final_period: whether a text ends in a full stop.

    Raises:
        ValueError: if an argument is none of these.

    Example:
    ```python
    from keras_tta.tasks.hypothesis_form import HypothesisForm

    form = HypothesisForm("sentence", True)
    assert form.write("A CAT SAT") == "A cat sat ."
    ```
    """

    case: str
    final_period: bool

    def __post_init__(self):
        check_one_of(self, tuple(CASES), case=self.case)
        check_one_of(self, (True, False), final_period=self.final_period)

    @classmethod
    def matching(cls, texts: Sequence[str], tokenizer) -> "HypothesisForm":
        """The form in which a model with this tokenizer is likely to know such texts.

        Texts all in upper case are written as sentences if the tokenizer tells cases
        apart. Texts of which none ends a sentence get a full stop if the tokenizer
        knows it: a model that was trained on sentences expects one.
        """
        is_upper = any(map(str.isupper, texts)) and not any(map(_has_lower, texts))
        sample = texts[:100]
        tells_case = any(
            tokenizer.encode(t) != tokenizer.encode(t.lower()) for t in sample
        )
        knows_period = tokenizer.unknown_token_id not in tokenizer.encode(".")
        return cls(
            "sentence" if is_upper and tells_case else "keep",
            knows_period and not any(text.endswith(ENDS) for text in texts),
        )

    def write(self, text: str) -> str:
        if self.case != "keep":
            text = text.lower()
        if self.case == "sentence":
            text = text[:1].upper() + text[1:]
        if self.final_period and text and not text.endswith(ENDS):
            text += " ."
        return text

    def __str__(self):
        end = "a final full stop" if self.final_period else "no full stop added"
        return f"The model reads hypotheses {CASES[self.case]}, with {end}."


def _has_lower(text):
    return text != text.upper()
