"""Scores of text: how probable a model finds each token, given the others."""

import warnings
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from keras_tta.checks import check_one_of, check_positive_integers
from keras_tta.presets import load_backbone, load_head, load_tokenizer
from keras_tta.tasks.checks import checked_model, checked_texts, checked_tokenizer
from keras_tta.tasks.encoded_texts import EncodedTexts
from keras_tta.tasks.length_buckets import bucket_widths
from keras_tta.tasks.readers import text_reader
from keras_tta.tasks.scoring_rules import scoring_rule

_OPTIONS = (
    "specials",
    "positions",
    "visibility",
    "window",
    "stride",
    "unknown",
    "progress",
)


class TokenScore(NamedTuple):
    """A token and its log-probability, in nats."""

    token: str
    log_probability: float


class RankedToken(NamedTuple):
    """A token of a text, where it stands, and its log-probability, in nats."""

    position: int
    token: str
    log_probability: float


class TextScorer:
    """Scores text: the log-probability of each token given the others.

    A T-TA does so in one pass. The sum over a text is its pseudo-log-likelihood
    (Salazar et al., ACL 2020). It ranks texts; it is no probability of the text, and
    not comparable with scores of left-to-right models.

    A masked language model is asked for the same and needs a pass for every token: what
    a token must not see reads [MASK]. A causal one predicts every token from those
    before it, in one pass; its scores are logarithms of probabilities.

    A text is read as [SOS] w1..wn [EOS]. Its score does not depend on the texts that
    come with it. Texts go through the model in batches of like length, few shapes in
    all, so that backends that compile (JAX, XLA) do so a few times only.

    Args:
        model: a `keras_tta.pretraining.LanguageAutoencoder`, `MaskedLM` or `CausalLM`,
            or anything that has a `backbone` and a `head`. It is not copied: train it
            further and the scores change.
        tokenizer: of `keras_tta.data`. Defaults to the one the model came with.
        batch_size: most rows that go through the model at once. Defaults to 64.
        bucket_lengths: widths that texts are padded to, specials included. Defaults to
            16, 24, 32, 40, 48, 64, 80, 96, 128, ..., as far as the model goes.

    Raises:
        ValueError: if the rule of a model with static keys lets tokens see themselves,
            or the tokenizer has more tokens than the model.

    Example:
    ```python
    from keras_tta.data import SPECIAL_TOKENS, TTATokenizer
    from keras_tta.models import TTABackbone
    from keras_tta.pretraining import LanguageAutoencoder
    from keras_tta.tasks import TextScorer

    tokenizer = TTATokenizer([*SPECIAL_TOKENS, "the", "cat", "##s", "sat"])
    backbone = TTABackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    scorer = TextScorer(LanguageAutoencoder(backbone), tokenizer)

    scores = scorer.score(["the cats sat", "sat the cats", ""])
    assert scores.shape == (3,) and scores[2] == 0.0

    (tokens,) = scorer.token_scores(["the cats sat"])
    assert [token for token, log_probability in tokens] == ["the", "cat", "##s", "sat"]
    assert abs(sum(score.log_probability for score in tokens) - scores[0]) < 1e-5
    ```
    """

    def __init__(self, model, tokenizer=None, batch_size=64, bucket_lengths=None):
        check_positive_integers(self, batch_size=batch_size)
        backbone = checked_model(model).backbone
        self.tokenizer = checked_tokenizer(tokenizer, model, backbone)
        self.max_sequence_length = backbone.max_sequence_length
        if bucket_lengths is None:
            bucket_lengths = bucket_widths(self.max_sequence_length)
        elif max(bucket_lengths) != self.max_sequence_length:
            raise ValueError(
                "The largest of `bucket_lengths` must be the model's longest input, "
                f"{self.max_sequence_length}. Received: bucket_lengths={bucket_lengths}"
            )
        self._reader = text_reader(
            backbone, model.head, batch_size, tuple(sorted(bucket_lengths))
        )
        self.visibility = scoring_rule(None, None, self._reader.visibility)

    @classmethod
    def from_preset(
        cls, directory, dtype=None, head="token_prediction_head", **options
    ):
        """Load a scorer from a preset folder, with the guard of `load_backbone`.

        Args:
            directory: a local folder with backbone, head and tokenizer, as
                `LanguageAutoencoder.save_to_preset` writes it.
            dtype: a dtype or policy. Defaults to the current global policy.
            head: the name of the head that predicts tokens: `"generator_head"` where
                ELECTRA's two networks are one. Defaults to `"token_prediction_head"`.
            **options: other arguments of the constructor.

        Raises:
            FileNotFoundError: if the folder, its head or its tokenizer is missing.
            PresetError: a ValueError that names the file and what is wrong with it.
        """
        backbone = load_backbone(directory, dtype=dtype)
        head = load_head(directory, backbone, head)
        model = SimpleNamespace(backbone=backbone, head=head)
        return cls(model, load_tokenizer(directory), **options)

    def score(self, texts, normalize="none", **options):
        """Log-probabilities of texts, in nats: sums over their tokens.

        Args:
            texts: list of str, or one str.
            normalize: `"none"` for sums; `"tokens"` or `"words"` for means over the
                tokens that count or the words they make up. Sums of long texts are
                lower, whatever they say; means are not. Defaults to `"none"`.
            **options: what counts, and what each token sees, as for `token_scores`.

        Returns:
            float64 array (N,), in the order of the texts; for one str, one number. A
            text of which nothing counts scores 0.0, such as an empty one: with
            `specials="end"` or `"all"` its special tokens still count.

        Raises:
            ValueError, TypeError: as for `token_scores`.
        """
        check_one_of(self, ("none", "tokens", "words"), normalize=normalize)
        texts, is_one, options = _as_lists(texts, options)
        encoded, log_probabilities, scored = self._score(
            texts, with_words=normalize == "words", **options
        )
        text = encoded.text_of_token[scored]
        sums = np.zeros(len(texts))
        np.add.at(sums, text, log_probabilities[scored])
        if normalize == "tokens":
            sums /= np.maximum(np.bincount(text, minlength=len(texts)), 1)
        elif normalize == "words":
            sums /= np.maximum(encoded.word_counts(scored), 1)
        return sums[0] if is_one else sums

    def token_scores(self, texts, **options):
        """The log-probability of every token of texts, in nats.

        Args:
            texts: list of str, or one str.
            specials: which special tokens count: `"exclude"` for none, as Salazar et
                al. do, `"end"` for [EOS], how well the text ends there, `"all"` for
                [SOS] too. Defaults to `"exclude"`.
            positions: for each text, the positions of the tokens that count, from 0.
                The model computes these alone. Defaults to all.
            visibility: what a token is predicted from. `"others"`, all other tokens;
                `"word_left_to_right"`, not the pieces of its own word that follow;
                `"whole_word"`, no piece of its own word; `"left"`, what precedes it; or
                a `keras_tta.visibility.Visibility`. Defaults to the model's own rule.
            window: how far away a token may look, in tokens. Defaults to no limit.
            stride: score texts too long for the model in windows that begin so many
                tokens apart. Each token is scored once, in the window where it stands
                farthest from the ends beyond which the text goes on. Defaults to
                `None`: a text too long is an error.
            unknown: `"score"` counts unknown tokens like others and warns once, with
                their number; `"raise"` refuses them. Defaults to `"score"`.
            progress: whether to show a progress bar. Defaults to `False`.

        Returns:
            For each text a list of `TokenScore`, pairs (token, log-probability), of
            the tokens that count; for one str, one such list.

        Raises:
            ValueError: if a text is too long, has unknown tokens that are refused, or
                an option is none of those listed.
            TypeError: if a text is not a string, or an option's name is none of these.
        """
        texts, is_one, options = _as_lists(texts, options)
        encoded, log_probabilities, scored = self._score(texts, **options)
        scores = self._token_scores(
            encoded.token_ids[scored], log_probabilities[scored]
        )
        ends = np.cumsum(scored)[encoded.offsets[1:] - 1].tolist()
        lists = [scores[a:b] for a, b in zip([0, *ends], ends, strict=False)]
        return lists[0] if is_one else lists

    def surprising(self, text, top_k=None, **options):
        """The tokens of a text, the most surprising first.

        Args:
            text: str.
            top_k: how many tokens to return. Defaults to all.
            **options: as for `token_scores`.

        Returns:
            List of `RankedToken`, (position, token, log-probability); position 0 is the
            text's first token.
        """
        if not isinstance(text, str):
            raise TypeError(
                "`surprising` takes one text, a str: call it for each of several. "
                f"Received: {text!r}"
            )
        if top_k is not None:
            check_positive_integers(self, top_k=top_k)
        texts, _, options = _as_lists(text, options)
        encoded, log_probabilities, scored = self._score(texts, **options)
        at = np.flatnonzero(scored)
        at = at[np.argsort(log_probabilities[at], kind="stable")][:top_k]
        scores = self._token_scores(encoded.token_ids[at], log_probabilities[at])
        positions = (at - 1).tolist()
        return [RankedToken(p, *s) for p, s in zip(positions, scores, strict=True)]

    def fill(self, text, top_k=5, blank="___", visibility=None, window=None):
        """The likeliest tokens for the blanks of a text.

        A blank stands for one token. Several blanks do not see each other, nor does
        any token see a blank.

        Args:
            text: str with one or more blanks.
            top_k: how many tokens to return for each blank. Defaults to 5.
            blank: what marks a blank. Defaults to `"___"`. With `None`, the tokens for
                every position of the text are returned, each from the others.
            visibility, window: as for `token_scores`.

        Returns:
            For each blank, or each token, a list of `TokenScore`, the likeliest first.
            Special and unknown tokens are left out.

        Raises:
            ValueError: if there is no blank, or the text is too long.

        Example:
        ```python
        from keras_tta.data import SPECIAL_TOKENS, TTATokenizer
        from keras_tta.models import TTABackbone
        from keras_tta.pretraining import LanguageAutoencoder
        from keras_tta.tasks import TextScorer

        tokenizer = TTATokenizer([*SPECIAL_TOKENS, "the", "cat", "dog", "sat"])
        backbone = TTABackbone(
            vocabulary_size=11,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=16,
        )
        scorer = TextScorer(LanguageAutoencoder(backbone), tokenizer)
        (candidates,) = scorer.fill("the ___ sat", top_k=2)
        token, log_probability = candidates[0]
        assert token in ("the", "cat", "dog", "sat")
        ```
        """
        check_positive_integers(self, top_k=top_k)
        if not isinstance(text, str) or not (blank is None or blank):
            raise TypeError(
                "`fill` takes one text, a str, and as `blank` what marks a blank in "
                f"it, or None. Received: text={text!r}, blank={blank!r}"
            )
        parts = [text] if blank is None else text.split(blank)
        if blank is not None and len(parts) == 1:
            raise ValueError(
                f"The text has no blank {blank!r}. Write one, or pass `blank=None` for "
                f"the likeliest tokens at every position. Received: {text!r}"
            )
        rule = scoring_rule(visibility, window, self.visibility)
        encoded = EncodedTexts.encode_with_blanks(parts, self.tokenizer)
        asked = encoded.is_scored("exclude") if blank is None else encoded.is_blank
        excluded = (*self.tokenizer.special_token_ids, self.tokenizer.unknown_token_id)
        count = min(top_k, self.tokenizer.vocabulary_size() - len(excluded))
        found = self._reader.candidates(encoded, asked, rule, count, excluded)
        return [
            self._token_scores(token_ids, log_probabilities)
            for log_probabilities, token_ids in zip(*found, strict=True)
        ]

    def _score(
        self,
        texts,
        specials="exclude",
        positions=None,
        visibility=None,
        window=None,
        stride=None,
        unknown="score",
        progress=False,
        with_words=False,
    ):
        """Encoded texts, and for each of their tokens the log-probability and whether
        it counts."""
        check_one_of(self, ("exclude", "end", "all"), specials=specials)
        check_one_of(self, ("score", "raise"), unknown=unknown)
        rule = scoring_rule(visibility, window, self.visibility)
        if stride is not None:
            check_positive_integers(self, stride=stride)
            if stride > self.max_sequence_length - 2:
                raise ValueError(
                    "`stride` must not exceed the tokens of a window, "
                    f"{self.max_sequence_length - 2}, or some would never be scored. "
                    f"Received: stride={stride}"
                )
        with_words = with_words or "word_ids" in rule.needs
        encoded = EncodedTexts.encode(texts, self.tokenizer, with_words)
        self._check_unknown(encoded, texts, unknown)
        scored = encoded.is_scored(specials, positions)
        log_probabilities = self._reader.log_probabilities(
            encoded, scored, rule, stride, positions is not None, progress
        )
        return encoded, log_probabilities, scored

    def _token_scores(self, token_ids, log_probabilities):
        tokens = map(self.tokenizer.id_to_token, token_ids.tolist())
        return list(map(TokenScore, tokens, log_probabilities.tolist()))

    def _check_unknown(self, encoded, texts, unknown):
        found = encoded.describe_unknown_tokens(texts)
        if found is None:
            return
        if unknown == "raise":
            raise ValueError(
                f'{found} Mend the texts, or pass `unknown="score"` to score '
                f"{self.tokenizer.oov_token} in their place."
            )
        warnings.warn(
            f"{found} They are scored as {self.tokenizer.oov_token}, any unknown word.",
            stacklevel=4,
        )


def _as_lists(texts, options):
    """One string as a list of one, its positions too, and whether that was done."""
    if strange := [name for name in options if name not in _OPTIONS]:
        raise TypeError(
            f"TextScorer's options are {', '.join(f'`{name}`' for name in _OPTIONS)}. "
            f"Received: {', '.join(f'{name}={options[name]!r}' for name in strange)}"
        )
    texts, is_one = checked_texts(texts)
    if is_one and options.get("positions") is not None:
        options = {**options, "positions": [options["positions"]]}
    return texts, is_one, options
