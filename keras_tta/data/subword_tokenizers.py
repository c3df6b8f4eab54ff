"""Tokenizers that lose no text: byte-level BPE and Unigram."""

import json
import os

import keras
import keras_hub
import numpy as np
import tokenizers

from keras_tta.data.optional_packages import import_optional
from keras_tta.data.tokenizer_mixin import TokenizerMixin

SPACE = "\u2581"


class _SubwordTokenizer(TokenizerMixin, keras_hub.tokenizers.Tokenizer):
    """The special tokens and the vocabulary look-ups of the tokenizers below."""

    def __init__(self, dtype="int32", **kwargs):
        self._tokens = self._ids = None
        super().__init__(dtype=dtype, **kwargs)
        self._name_special_tokens()

    def _set_tokens(self, tokens):
        self._tokens = list(tokens)
        self._ids = {token: index for index, token in enumerate(self._tokens)}
        self._update_special_token_ids()

    def _check_vocabulary(self):
        if self._tokens is None:
            raise ValueError(
                f"No vocabulary has been set for `{type(self).__name__}`: train one, "
                "or load a preset that holds one."
            )

    def get_vocabulary(self):
        """All tokens, in the order of their ids."""
        self._check_vocabulary()
        return list(self._tokens)

    def vocabulary_size(self):
        """The number of tokens."""
        self._check_vocabulary()
        return len(self._tokens)

    def id_to_token(self, id):
        """The token of an id."""
        self._check_vocabulary()
        if not 0 <= id < len(self._tokens):
            raise ValueError(
                f"`id` must be in range [0, {len(self._tokens) - 1}]. Received: "
                f"id={id!r}"
            )
        return self._tokens[id]

    def token_to_id(self, token):
        """The id of a token."""
        self._check_vocabulary()
        if token not in self._ids:
            raise ValueError(
                f"`token` is not in the vocabulary. Received: token={token!r}"
            )
        return self._ids[token]

    def detokenize(self, inputs):
        """The text of one row of ids, or the texts of several rows."""
        self._check_vocabulary()
        if self._use_tf_workflow():
            return self._detokenize_tf(inputs)
        for to_python in ("to_list", "numpy", "tolist"):
            if hasattr(inputs, to_python):
                inputs = getattr(inputs, to_python)()
        if any(hasattr(row, "__len__") for row in inputs):
            return [self.detokenize(row) for row in inputs]
        return self._decode([int(index) for index in inputs])

    def call(self, inputs, training=None):
        return self.tokenize(inputs)


@keras.saving.register_keras_serializable(package="keras_tta")
class TTABytePairTokenizer(_SubwordTokenizer):
    """Byte-level BPE (Sennrich et al., 2016; Radford et al., 2019): no unknown words.

    Text is split into words, spaces and punctuation as in GPT-2, and every word's
    UTF-8 bytes are joined by the merges in their order. With `lowercase=False`,
    `detokenize(encode(text)) == text` for every text. Special tokens spelt out in the
    text are read as characters. Entry points and presets are those of `TTATokenizer`.

    Args:
        vocabulary: dict from token to id; a preset fills it in from `vocabulary.json`.
        merges: list of `(left, right)` pairs; a preset's `merges.txt`.
        lowercase: bool. Defaults to `False`.
        **kwargs: `name` and other arguments of `keras.layers.Layer`.

    Example:
    ```python
    from keras_tta.data import train_byte_pair

    tokenizer = train_byte_pair(["low lower lowest", "new newer newest"] * 5, 290)
    text = "Newer: [MASK] été 新 \U0001f600"
    assert tokenizer.detokenize(tokenizer.encode(text)) == text
    assert tokenizer.word_ids("low lower")[-1] == 1
    ```
    """

    def __init__(self, vocabulary=None, merges=None, lowercase=False, **kwargs):
        super().__init__(**kwargs)
        self.lowercase = lowercase
        self._huggingface = None
        self.file_assets = ["vocabulary.json", "merges.txt"]
        if vocabulary is not None:
            self.set_vocabulary(vocabulary, merges)

    def set_vocabulary(self, vocabulary, merges):
        """Set the tokens (a dict from token to id) and the merges (pairs)."""
        self._merges = [tuple(pair) for pair in merges]
        self._huggingface = byte_pair(dict(vocabulary), self._merges, self.lowercase)
        self._set_tokens(sorted(vocabulary, key=vocabulary.get))

    def save_assets(self, dir_path):
        self._check_vocabulary()
        with open(
            os.path.join(dir_path, "vocabulary.json"), "w", encoding="utf-8"
        ) as file:
            json.dump(self._ids, file, ensure_ascii=False)
        with open(os.path.join(dir_path, "merges.txt"), "w", encoding="utf-8") as file:
            file.writelines(f"{left} {right}\n" for left, right in self._merges)

    def load_assets(self, dir_path):
        with open(os.path.join(dir_path, "vocabulary.json"), encoding="utf-8") as file:
            vocabulary = json.load(file)
        with open(os.path.join(dir_path, "merges.txt"), encoding="utf-8") as file:
            lines = (line.rstrip("\n") for line in file)
            merges = [line.split(" ") for line in lines if not line.startswith("#v")]
        self.set_vocabulary(vocabulary, merges)

    @property
    def huggingface(self):
        """The `tokenizers.Tokenizer` inside; its `save` writes a `tokenizer.json`."""
        self._check_vocabulary()
        return self._huggingface

    def _encode_texts(self, texts, return_word_ids):
        if not return_word_ids:
            encodings = self.huggingface.encode_batch_fast(
                texts, add_special_tokens=False
            )
            return [encoding.ids for encoding in encodings], []
        encodings = self.huggingface.encode_batch(texts, add_special_tokens=False)
        return (
            [encoding.ids for encoding in encodings],
            [encoding.word_ids for encoding in encodings],
        )

    def _decode(self, ids):
        return self.huggingface.decode(ids, skip_special_tokens=False)

    def get_config(self):
        config = super().get_config()
        config.update({"vocabulary": None, "merges": None, "lowercase": self.lowercase})
        return config


@keras.saving.register_keras_serializable(package="keras_tta")
class TTAUnigramTokenizer(_SubwordTokenizer):
    """A Unigram language model over pieces (Kudo, 2018): SentencePiece inside.

    The most probable segmentation of the text, after SentencePiece's NFKC
    normalisation (and lower-casing, if the model was trained so), with `▁` for a
    space. `detokenize(encode(text))` is the normalised text, up to characters that are
    not in the vocabulary. A new word begins at `▁`. Special tokens spelt out in the
    text are read as characters. Entry points and presets are those of `TTATokenizer`.

    Args:
        proto: bytes, a trained SentencePiece model whose pieces include our special
            tokens; a preset fills it in from `vocabulary.spm`.
        **kwargs: `name` and other arguments of `keras.layers.Layer`.

    Attributes:
        starts_word: (V,) bool, whether a token begins a word.

    Example:
    ```python
    from keras_tta.data import train_unigram

    tokenizer = train_unigram(["low lower lowest", "new newer newest"] * 5, 30)
    assert tokenizer.detokenize(tokenizer.encode("Newer  LOW")) == "newer low"
    assert tokenizer.word_ids("low lower")[-1] == 1
    ```
    """

    def __init__(self, proto=None, **kwargs):
        super().__init__(**kwargs)
        self._proto = self._processor = None
        self.file_assets = ["vocabulary.spm"]
        if proto is not None:
            self.set_proto(proto)

    def set_proto(self, proto):
        """Set the trained SentencePiece model (bytes)."""
        purpose = f"`{type(self).__name__}`"
        sentencepiece = import_optional("sentencepiece", "data", purpose)
        self._processor = sentencepiece.SentencePieceProcessor(model_proto=proto)
        self._proto = proto
        size = self._processor.get_piece_size()
        self._set_tokens(self._processor.id_to_piece(list(range(size))))
        self.starts_word = np.array([token.startswith(SPACE) for token in self._tokens])

    def save_assets(self, dir_path):
        self._check_vocabulary()
        with open(os.path.join(dir_path, "vocabulary.spm"), "wb") as file:
            file.write(self._proto)

    def load_assets(self, dir_path):
        with open(os.path.join(dir_path, "vocabulary.spm"), "rb") as file:
            self.set_proto(file.read())

    def _encode_texts(self, texts, return_word_ids):
        self._check_vocabulary()
        # SentencePiece encodes lone surrogates, which are no text, without a word.
        for text in texts:
            if not isinstance(text, str) or not text.isascii():
                _require_unicode(text)
        ids = self._processor.encode(texts)
        if not return_word_ids:
            return ids, []
        starts = [self.starts_word[row] for row in ids]
        return ids, [(np.cumsum(row) - row[:1]).tolist() for row in starts]

    def _decode(self, ids):
        return self._processor.decode(ids)

    def get_config(self):
        config = super().get_config()
        config.update({"proto": None})
        return config


def byte_pair(vocabulary=None, merges=None, lowercase=False):
    """Hugging Face's byte-level BPE tokenizer."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, merges))
    if lowercase:
        tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    return tokenizer


def _require_unicode(text):
    """Raise the `TypeError` that Hugging Face raises for what is not text."""
    try:
        text.encode("utf-8")
    except (AttributeError, UnicodeEncodeError):
        raise TypeError from None
