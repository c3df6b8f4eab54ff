"""Tokenizers: text in, token ids out, the same ids at every entry point."""

import os

import keras
import keras_hub
import numpy as np
import tokenizers

from keras_tta.data.tokenizer_mixin import TokenizerMixin

SPECIAL_TOKENS = ("[PAD]", "[EOS]", "[UNK]", "[SOS]", "[MASK]", "[CLS]", "[SEP]")
MAX_CHARACTERS_PER_WORD = 100


@keras.saving.register_keras_serializable(package="keras_tta")
class TTATokenizer(TokenizerMixin, keras_hub.tokenizers.WordPieceTokenizer):
    """A WordPiece tokenizer: KerasHub outside, Hugging Face `tokenizers` inside.

    Text is normalised and split as in BERT (Devlin et al., 2019, appendix A.2):
    control characters are removed, white space and punctuation separate words, and a
    word is cut into the longest pieces of the vocabulary from left to right. A word
    that cannot be cut, or is longer than 100 characters, is one unknown token.

    Every entry point gives the same ids: `encode`, `encode_batch`, calling the
    tokenizer on strings, and `tf.data`'s `map` (which calls back into Python).
    TensorFlow is not needed. Saved presets keep every option;
    `keras_hub.models.Tokenizer.from_preset` returns this class once `keras_tta` is
    imported.

    A special token spelt out in the text, such as `"[MASK]"`, is read as the
    characters it is made of, so that text cannot smuggle special tokens in. Pass
    `special_tokens_in_strings=True` to read it as the special token.

    Args:
        vocabulary: list of tokens, or the path of a text file with one a line. A
            preset fills it in from its `vocabulary.txt`.
        lowercase: bool. Defaults to `True`.
        strip_accents: bool, or `None` for the value of `lowercase`, as in BERT. Among
            the accents are Japanese voicing marks: pass `False` for Japanese.
        split_on_cjk: bool, whether every Chinese character is a word.
        start_token: str, the token before a sequence, `"[SOS]"`. BERT's vocabularies
            have `"[CLS]"` in its place.
        end_token: str, the token after a sequence, `"[EOS]"`, or BERT's `"[SEP]"`.
        special_tokens_in_strings: bool. Defaults to `False`.
        **kwargs: other arguments of `keras_hub.tokenizers.WordPieceTokenizer`, of which
            `split=False`, `sequence_length` and string dtypes are refused.

    Attributes:
        starts_word: (V,) bool, whether a token begins a word.

    Example:
    ```python
    from keras_tta.data import SPECIAL_TOKENS, TTATokenizer

    tokenizer = TTATokenizer([*SPECIAL_TOKENS, "the", "cat", "##s", "sat"])
    assert tokenizer.encode("The cats sat") == [7, 8, 9, 10]
    assert tokenizer.word_ids("The cats sat") == [0, 1, 1, 2]
    assert tokenizer.detokenize([7, 8, 9, 10]) == "the cats sat"
    assert tokenizer.special_token_ids == (0, 1, 3, 4, 5, 6)
    ```
    """

    def __init__(
        self,
        vocabulary=None,
        lowercase=True,
        strip_accents=None,
        split_on_cjk=True,
        start_token="[SOS]",
        end_token="[EOS]",
        special_tokens_in_strings=False,
        **kwargs,
    ):
        self._name_special_tokens(start_token, end_token)
        super().__init__(
            vocabulary=vocabulary,
            lowercase=lowercase,
            strip_accents=lowercase if strip_accents is None else strip_accents,
            split_on_cjk=split_on_cjk,
            special_tokens_in_strings=special_tokens_in_strings,
            **kwargs,
        )
        refused = {
            "split": (self.split, True),
            "sequence_length": (self.sequence_length, None),
            "dtype": ("int" in self.compute_dtype, True),
        }
        for argument, (received, accepted) in refused.items():
            if received != accepted:
                raise ValueError(
                    f"`{type(self).__name__}` takes no `{argument}`: it splits text "
                    "itself, returns integer ids and never truncates. Received: "
                    f"{argument}={kwargs[argument]!r}"
                )

    @classmethod
    def from_vocabulary(cls, vocabulary, **options):
        """Build a tokenizer from a vocabulary file or list, T-TA's, BERT's or yours.

        The start and end tokens are `[SOS]` and `[EOS]` if the vocabulary has them,
        else BERT's `[CLS]` and `[SEP]`. `options` are the constructor's.
        """
        if isinstance(vocabulary, (str, bytes)) or hasattr(vocabulary, "__fspath__"):
            vocabulary = read_vocabulary(vocabulary)
        vocabulary = list(vocabulary)
        if "[SOS]" not in vocabulary and "[EOS]" not in vocabulary:
            options = {"start_token": "[CLS]", "end_token": "[SEP]", **options}
        return cls(vocabulary, **options)

    def set_vocabulary(self, vocabulary):
        self._huggingface = None
        super().set_vocabulary(vocabulary)
        if self.vocabulary is None:
            return
        if len(self._token_to_id_map) != len(self.vocabulary):
            token, first, second = _first_duplicate(self.vocabulary)
            raise ValueError(
                f"The vocabulary holds {token!r} twice, as ids {first} and {second}. "
                "Every token must have one id: replace the second by an unused token "
                "such as '[unused0]'."
            )
        self._huggingface = wordpiece(
            self._token_to_id_map,
            lowercase=self.lowercase,
            strip_accents=self.strip_accents,
            split_on_cjk=self.split_on_cjk,
            unknown_token=self.oov_token,
            suffix_indicator=self.suffix_indicator,
        )
        if self.special_tokens_in_strings:
            specials = {*self.special_tokens, *(self._init_special_tokens or ())}
            self._huggingface.add_special_tokens(sorted(specials))
        self.starts_word = np.array(
            [not token.startswith(self.suffix_indicator) for token in self.vocabulary]
        )

    def load_assets(self, dir_path):
        self.set_vocabulary(read_vocabulary(os.path.join(dir_path, "vocabulary.txt")))

    @property
    def huggingface(self):
        """The `tokenizers.Tokenizer` inside; its `save` writes a `tokenizer.json`."""
        self._check_vocabulary()
        return self._huggingface

    def _encode_texts(self, texts, return_word_ids):
        encodings = self.huggingface.encode_batch_fast(texts, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        if not return_word_ids:
            return ids, []
        return ids, [(np.cumsum(self.starts_word[row]) - 1).tolist() for row in ids]

    def _set_vocabulary_tf(self):
        # KerasHub's own TensorFlow tokenizer gives other ids on some texts.
        self._fast_word_piece = None

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "split_on_cjk": self.split_on_cjk,
                "start_token": self.start_token,
                "end_token": self.end_token,
            }
        )
        return config


def wordpiece(
    token_to_id=None,
    lowercase=True,
    strip_accents=True,
    split_on_cjk=True,
    unknown_token="[UNK]",
    suffix_indicator="##",
):
    """Hugging Face's WordPiece tokenizer with BERT's normaliser and word splitter."""
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordPiece(
            dict(token_to_id or {}),
            unk_token=unknown_token,
            continuing_subword_prefix=suffix_indicator,
            max_input_chars_per_word=MAX_CHARACTERS_PER_WORD,
        )
    )
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=split_on_cjk,
        strip_accents=strip_accents,
        lowercase=lowercase,
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return tokenizer


def read_vocabulary(path):
    """Read a vocabulary file, one token a line: the line's number is the id."""
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        return [line.rstrip("\r\n") for line in file]


def _first_duplicate(vocabulary):
    seen = {}
    for index, token in enumerate(vocabulary):
        if token in seen:
            return token, seen[token], index
        seen[token] = index
