"""Tokenizers trained from a corpus in one call."""

import io
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Sequence

from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer, WordPieceTrainer

from keras_tta.data.corpus import Document, iterate_sentences
from keras_tta.data.optional_packages import import_optional
from keras_tta.data.subword_tokenizers import (
    TTABytePairTokenizer,
    TTAUnigramTokenizer,
    byte_pair,
)
from keras_tta.data.tokenizers import SPECIAL_TOKENS, TTATokenizer, wordpiece

CHUNK_SENTENCES = 1000


def train_wordpiece(
    documents: Iterable[str | Document],
    vocabulary_size: int,
    lowercase: bool = True,
    strip_accents: bool | None = None,
    split_on_cjk: bool = True,
    reserved_tokens: Sequence[str] = (),
    character_coverage: float = 0.9995,
    min_frequency: int = 2,
) -> TTATokenizer:
    """Train a WordPiece tokenizer; the same text gives the same tokenizer.

    The vocabulary begins with `SPECIAL_TOKENS` ([PAD] = 0, [EOS] = 1, [UNK] = 2,
    [SOS] = 3, [MASK] = 4, [CLS] = 5, [SEP] = 6) and `reserved_tokens`, then holds the
    characters, then the pieces in the order in which they were merged. The sentences
    are held in memory while training: pass a sample of a corpus larger than that.

    Args:
        documents: sentences, or documents (lists of sentences).
        vocabulary_size: int, the most tokens the vocabulary may have. A small corpus
            gives fewer.
        lowercase: bool.
        strip_accents: bool, or `None` for the value of `lowercase`.
        split_on_cjk: bool, whether every Chinese character is a word.
        reserved_tokens: tokens to keep room for, such as `"[unused0]"` or
            `"<extra_id_0>"`. They never match text.
        character_coverage: share of the text's characters, the most frequent ones,
            that the vocabulary must hold. Words of rarer ones become `[UNK]`.
        min_frequency: int, how often two pieces must meet to be merged.

    Raises:
        ValueError: there is no text, or `vocabulary_size` has no room for the special
            tokens and the characters.

    Example:
    ```python
    from keras_tta.data import train_wordpiece

    tokenizer = train_wordpiece(["low lower lowest", "new newer newest"] * 5, 60)
    assert tokenizer.detokenize(tokenizer.encode("Newer, lower")) == "newer [UNK] lower"
    ```
    """
    options = {
        "lowercase": lowercase,
        "strip_accents": lowercase if strip_accents is None else strip_accents,
        "split_on_cjk": split_on_cjk,
    }
    specials = [*SPECIAL_TOKENS, *reserved_tokens]
    sentences = list(iterate_sentences(documents))
    trained = wordpiece(**options)
    for token in reserved_tokens:
        if len(trained.pre_tokenizer.pre_tokenize_str(token)) < 2:
            raise ValueError(
                "`reserved_tokens` must hold punctuation, as '[unused0]' does, so that "
                "no word of the text can equal them. Received: "
                f"reserved_tokens={tuple(reserved_tokens)!r}"
            )
    characters, pieces = _alphabet(trained, sentences, character_coverage)
    if not characters:
        raise ValueError("There is no text to train a tokenizer on.")
    base = [*specials, *(token for token in pieces if token not in specials)]
    if len(base) > vocabulary_size:
        raise ValueError(
            f"`vocabulary_size` must be at least {len(base)} to hold the "
            f"{len(specials)} special and reserved tokens and the "
            f"{len(base) - len(specials)} characters of this text (alone and as "
            "continuations); lower `character_coverage` to keep fewer. Received: "
            f"vocabulary_size={vocabulary_size}"
        )
    trainer = WordPieceTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        # Left to itself, the trainer numbers continuations in the order of a hash
        # table, another one each run, and breaks ties by these numbers.
        special_tokens=base,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    trained.train_from_iterator(sentences, trainer)
    vocabulary = trained.get_vocab(with_added_tokens=False)
    return TTATokenizer(sorted(vocabulary, key=vocabulary.get), **options)


def train_byte_pair(
    documents: Iterable[str | Document],
    vocabulary_size: int,
    lowercase: bool = False,
    reserved_tokens: Sequence[str] = (),
    min_frequency: int = 2,
) -> TTABytePairTokenizer:
    """Train a byte-level BPE tokenizer; the same text gives the same tokenizer.

    The vocabulary begins with `SPECIAL_TOKENS` and `reserved_tokens`, then holds the
    256 bytes, then the merges in their order. Arguments are those of
    `train_wordpiece`.

    Raises:
        ValueError: there is no text, or `vocabulary_size` has no room for the special
            tokens and the bytes.

    Example:
    ```python
    from keras_tta.data import train_byte_pair

    tokenizer = train_byte_pair(["low lower lowest", "new newer newest"] * 5, 290)
    assert tokenizer.vocabulary_size() <= 290
    assert tokenizer.detokenize(tokenizer.encode("Été, slower")) == "Été, slower"
    ```
    """
    specials = [*SPECIAL_TOKENS, *reserved_tokens]
    if vocabulary_size < len(specials) + 256:
        raise ValueError(
            f"`vocabulary_size` must be at least {len(specials) + 256}: "
            f"{len(specials)} special and reserved tokens and 256 bytes. Received: "
            f"vocabulary_size={vocabulary_size}"
        )
    trained = byte_pair(lowercase=lowercase)
    trainer = BpeTrainer(
        vocab_size=vocabulary_size,
        min_frequency=min_frequency,
        special_tokens=specials,
        initial_alphabet=sorted(ByteLevel.alphabet()),
        show_progress=False,
    )
    trained.train_from_iterator(_some_text(documents), trainer)
    model = json.loads(trained.to_str())["model"]
    return TTABytePairTokenizer(model["vocab"], model["merges"], lowercase=lowercase)


def train_unigram(
    documents: Iterable[str | Document],
    vocabulary_size: int,
    lowercase: bool = True,
    reserved_tokens: Sequence[str] = (),
    character_coverage: float = 0.9995,
) -> TTAUnigramTokenizer:
    """Train a Unigram tokenizer; the same text gives the same tokenizer.

    The vocabulary begins with `SPECIAL_TOKENS` and `reserved_tokens`, then holds the
    pieces, the most probable first. Arguments are those of `train_wordpiece`.

    Raises:
        ImportError: sentencepiece is not installed.
        ValueError: there is no text, or `vocabulary_size` has no room for the special
            tokens and the characters.

    Example:
    ```python
    from keras_tta.data import train_unigram

    tokenizer = train_unigram(["low lower lowest", "new newer newest"] * 5, 30)
    assert tokenizer.vocabulary_size() <= 30
    assert tokenizer.detokenize(tokenizer.encode("Newer  LOW")) == "newer low"
    ```
    """
    sentencepiece = import_optional("sentencepiece", "data", "`train_unigram`")
    names = {"pad": 0, "eos": 1, "unk": 2, "bos": 3}
    pieces = {f"{name}_piece": SPECIAL_TOKENS[i] for name, i in names.items()}
    proto = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=_some_text(documents),
            model_writer=proto,
            model_type="unigram",
            vocab_size=vocabulary_size,
            hard_vocab_limit=False,
            character_coverage=character_coverage,
            normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
            control_symbols=[*SPECIAL_TOKENS[4:], *reserved_tokens],
            **{f"{name}_id": i for name, i in names.items()},
            **pieces,
            # Its default drops longer sentences.
            max_sentence_length=2**30,
            # Sums of probabilities depend on the number of threads.
            num_threads=4,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise ValueError(
            f"SentencePiece cannot train {vocabulary_size} pieces on this text: {error}"
        ) from error
    return TTAUnigramTokenizer(proto.getvalue())


def _some_text(documents):
    sentences = (s for s in iterate_sentences(documents) if s and not s.isspace())
    first = next(sentences, None)
    if first is None:
        raise ValueError("There is no text to train a tokenizer on.")
    return itertools.chain([first], sentences)


def _alphabet(trained, sentences, coverage):
    """The characters that cover the text, and as pieces: alone, then as ##c."""
    counts, pairs = Counter(), set()
    for start in range(0, len(sentences), CHUNK_SENTENCES):
        chunk = "\n".join(sentences[start : start + CHUNK_SENTENCES])
        text = trained.normalizer.normalize_str(chunk)
        counts.update(text)
        pairs.update(itertools.pairwise(text))
    split = trained.pre_tokenizer.pre_tokenize_str
    # White space vanishes between two letters; punctuation stands alone.
    words = {c: [word for word, _ in split(f"a{c}a")] for c in counts}
    counts = Counter({c: n for c, n in counts.items() if words[c] != ["a", "a"]})
    inside = {c for c in counts if len(words[c]) == 1}
    kept, covered = [], 0
    for character, count in sorted(
        counts.items(), key=lambda item: (-item[1], item[0])
    ):
        if covered >= coverage * counts.total():
            break
        kept.append(character)
        covered += count
    kept.sort()
    follows = {second for first, second in pairs if first in inside}
    continued = [c for c in kept if c in inside and c in follows]
    return kept, [*kept, *(f"##{c}" for c in continued)]
