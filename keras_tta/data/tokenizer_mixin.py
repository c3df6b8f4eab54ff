"""What our tokenizers share: every way in gives the same ids."""

import itertools

import keras_hub
import numpy as np

# Bounds the memory that the encoder's own records of a batch take.
CHUNK_TEXTS = 10_000


class TokenizerMixin:
    """One way to encode text, and the entry points that lead to it.

    A mixin for `keras_hub.tokenizers.Tokenizer` classes. A class says how to encode
    texts in `_encode_texts`; `encode`, `encode_batch`, `word_ids`, calls on strings,
    arrays and tensors, and `tf.data` graphs all go through it.
    """

    oov_token = "[UNK]"

    @classmethod
    def from_preset(cls, preset, **kwargs):
        """Load the tokenizer of a preset, whatever its backbone, as KerasHub does.

        For presets of strangers there is `keras_tta.presets.load_tokenizer`.

        Args:
            preset: a folder, or an address that KerasHub knows.
            **kwargs: for `keras_hub.models.Tokenizer.from_preset`.

        Raises:
            TypeError: if the preset's tokenizer is of another class.
        """
        # KerasHub would ask for a tokenizer of this class that is of the backbone.
        tokenizer = keras_hub.models.Tokenizer.from_preset(str(preset), **kwargs)
        if not isinstance(tokenizer, cls):
            raise TypeError(
                f"The tokenizer of {preset} is a {type(tokenizer).__name__}, no "
                f"{cls.__name__}. Load it as what it is."
            )
        return tokenizer

    def _name_special_tokens(self, start_token="[SOS]", end_token="[EOS]"):
        self._add_special_token("[PAD]", "pad_token")
        self._add_special_token(start_token, "start_token")
        self._add_special_token(end_token, "end_token")
        self._add_special_token("[MASK]", "mask_token")
        self._add_special_token("[CLS]", "cls_token")
        self._add_special_token("[SEP]", "sep_token")

    @property
    def special_token_ids(self):
        """Ids of PAD, EOS, SOS, MASK, CLS and SEP in ascending order, each once.

        The unknown token is not one of them: it stands for a word.
        """
        return tuple(sorted(super().special_token_ids))

    @property
    def unknown_token_id(self):
        return self.token_to_id(self.oov_token)

    def encode(self, text):
        """Token ids of one text, without special tokens: a list of int."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts, return_word_ids=False):
        """Token ids of many texts, without special tokens, on all processor cores.

        Args:
            texts: sequence of strings.
            return_word_ids: bool, whether to return the words' numbers as well.

        Returns:
            One list of int a text. With `return_word_ids`, two such lists: the ids,
            and for every token the number of the word it belongs to, from 0.
        """
        ids, word_ids = [], []
        for chunk in _chunks(texts, CHUNK_TEXTS):
            try:
                rows, words = self._encode_texts(chunk, return_word_ids)
            except TypeError:
                raise _bad_text(chunk, offset=len(ids)) from None
            ids += rows
            word_ids += words
        return (ids, word_ids) if return_word_ids else ids

    def word_ids(self, text):
        """For every token of one text, the number of its word: a list of int."""
        return self.encode_batch([text], return_word_ids=True)[1][0]

    def _encode_texts(self, texts, return_word_ids):
        """Lists of ids and, if asked for, of word numbers, of a list of strings."""
        raise NotImplementedError

    def tokenize(self, inputs):
        self._check_vocabulary()
        if self._use_tf_workflow():
            return self._tokenize_tf(inputs)
        for to_python in ("to_list", "numpy", "tolist"):
            if hasattr(inputs, to_python):
                inputs = getattr(inputs, to_python)()
        return self._tokenize_python(inputs)

    def _tokenize_python(self, inputs):
        if isinstance(inputs, (str, bytes)):
            return np.array(self.encode(_to_str(inputs)), dtype=self.compute_dtype)
        if all(isinstance(text, (str, bytes)) for text in inputs):
            return self.encode_batch(map(_to_str, inputs))
        return [self._tokenize_python(row) for row in inputs]

    def _tokenize_tf(self, inputs):
        import tensorflow as tf

        if isinstance(inputs, tf.RaggedTensor):
            return inputs.with_flat_values(self._tokenize_tf(inputs.flat_values))
        inputs = tf.convert_to_tensor(inputs)
        if inputs.shape.rank not in (0, 1):
            raise ValueError(
                "In a TensorFlow graph the tokenizer takes one string or a batch of "
                f"strings, (B,). Received: shape={inputs.shape}"
            )

        def encode(texts):
            rows = self.encode_batch(map(_to_str, texts))
            ids = np.array([i for row in rows for i in row], dtype=self.compute_dtype)
            return ids, np.array([len(row) for row in rows], dtype="int64")

        texts = tf.reshape(inputs, [-1])
        ids, lengths = tf.numpy_function(encode, [texts], (self.compute_dtype, "int64"))
        ids = tf.ensure_shape(ids, [None])
        lengths = tf.ensure_shape(lengths, [None])
        if inputs.shape.rank == 0:
            return ids
        return tf.RaggedTensor.from_row_lengths(ids, lengths)

    def _detokenize_tf(self, inputs):
        raise NotImplementedError(
            "`detokenize` works on arrays and lists, not in a TensorFlow graph."
        )


def _chunks(texts, size):
    texts = iter(texts)
    while chunk := list(itertools.islice(texts, size)):
        yield chunk


def _to_str(text):
    return text.decode("utf-8") if isinstance(text, bytes) else text


def _bad_text(texts, offset):
    for index, text in enumerate(texts, start=offset):
        if not isinstance(text, str):
            return TypeError(
                f"The text at index {index} is no string. Received: "
                f"texts[{index}]={text!r}"
            )
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            return ValueError(
                f"The text at index {index} is not valid Unicode: character "
                f"{error.start} is the lone surrogate {text[error.start]!r}. Mend it "
                "with text.encode('utf-8', 'replace').decode('utf-8')."
            )
