"""Embeddings of text: vectors whose cosine says how alike two texts are."""

import warnings
from numbers import Real

import numpy as np
from rich.progress import track

from keras_tta.checks import check_one_of, check_positive_integers
from keras_tta.presets import load_backbone, load_tokenizer
from keras_tta.tasks.checks import checked_texts, checked_tokenizer
from keras_tta.tasks.embedding_models import embedding_model
from keras_tta.tasks.embedding_transforms import top_component_removal, whitening
from keras_tta.tasks.encoded_texts import EncodedTexts, encode_texts
from keras_tta.tasks.length_buckets import bucket_widths, length_buckets

POOLING = ("mean", "mean_with_specials", "first", "max", "first_last", "idf")


class TextEmbedder:
    """Embeds text: one vector a text, whose cosine says how alike two texts are.

    A text is read as [SOS] w1..wn [EOS], and what a layer says of its tokens is pooled.
    The defaults are those of the T-TA paper: the mean over the last layer, without the
    special tokens. An embedding depends on its text alone, up to rounding, and not on
    the texts that come with it.

    A T-TA's output at a token is read from all others, never from the token. To
    have the words themselves in the embedding, mix their vectors in: `fuse_tokens`.

    Args:
        model: a backbone of `keras_tta.models`, or what has a `backbone`, such as a
            `keras_tta.pretraining.LanguageAutoencoder`. It is not copied.
        tokenizer: of `keras_tta.data`. Defaults to the one the model came with.
        pooling: `"mean"`, over the text's own tokens; `"mean_with_specials"`, over
            [SOS] and [EOS] too; `"first"`, [SOS] alone; `"max"`, the greatest value of
            each dimension; `"first_last"`, the mean over the embeddings (layer 0) and
            `layer`; `"idf"`, a mean in which rare tokens weigh more, after `fit_idf`.
            Defaults to `"mean"`.
        layer: which layer, from 0, the embeddings (token and position), to the number
            of layers. Negative ones count from the last. Defaults to -1.
        fuse_tokens: the share of each token's own embedding, normalised as the model
            does, in what is pooled: 0 for none, 1 for nothing else. Defaults to 0.

    Attributes:
        transform: `EmbeddingTransform` or `None`, what `fit_whitening` or
            `fit_top_component_removal` has found. `encode` applies it.

    Raises:
        ValueError: if an option is out of range, or the tokenizer has more tokens than
            the model.

    Example:
    ```python
    from keras_tta.data import SPECIAL_TOKENS, TTATokenizer
    from keras_tta.models import TTABackbone
    from keras_tta.tasks import TextEmbedder

    tokenizer = TTATokenizer([*SPECIAL_TOKENS, "the", "cat", "dog", "sat"])
    backbone = TTABackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    embedder = TextEmbedder(backbone, tokenizer)

    embeddings = embedder.encode(["the cat sat", "the dog sat", "the cat sat"])
    assert embeddings.shape == (3, 8)
    similarities = embedder.similarity(embeddings, embeddings)
    assert similarities.shape == (3, 3) and abs(similarities[0, 2] - 1) < 1e-5
    ```
    """

    def __init__(
        self, model, tokenizer=None, pooling="mean", layer=-1, fuse_tokens=0.0
    ):
        check_one_of(self, POOLING, pooling=pooling)
        backbone = getattr(model, "backbone", model)
        tokenizer = checked_tokenizer(tokenizer, model, backbone)
        last = backbone.num_layers
        if isinstance(layer, bool) or layer not in range(-last - 1, last + 1):
            raise ValueError(
                f"`layer` must lie between 0, the embeddings, and {last}, the last "
                f"layer, or count from the last, -1. Received: layer={layer!r}"
            )
        if not isinstance(fuse_tokens, Real) or not 0 <= fuse_tokens <= 1:
            raise ValueError(
                "`fuse_tokens` must be a share between 0 and 1. "
                f"Received: fuse_tokens={fuse_tokens!r}"
            )
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.pooling = pooling
        self.layer = range(last + 1)[layer]
        self.fuse_tokens = fuse_tokens
        self.max_sequence_length = backbone.max_sequence_length
        self.transform = None
        self._idf = None
        self._model = embedding_model(
            backbone,
            (0, self.layer) if pooling == "first_last" else (self.layer,),
            fuse_tokens,
            pooling == "max",
        )

    @classmethod
    def from_preset(cls, directory, dtype=None, **options):
        """Load an embedder from a preset folder, with the guard of `load_backbone`.

        Args:
            directory: a local folder with a backbone and a tokenizer.
            dtype: a dtype or policy. Defaults to the current global policy.
            **options: other arguments of the constructor.

        Raises:
            FileNotFoundError: if the folder or its tokenizer is missing.
            PresetError: a ValueError that names the file and what is wrong with it.
        """
        backbone = load_backbone(directory, dtype=dtype)
        return cls(backbone, load_tokenizer(directory), **options)

    def encode(
        self, texts, normalize=False, batch_size=64, truncate=False, progress=False
    ):
        """The embeddings of texts.

        A text without tokens, such as an empty one, embeds as zeros, whose cosine with
        anything is 0; under `"mean_with_specials"` and `"first"` its special tokens
        give it an embedding like any other.

        Args:
            texts: list of str, or one str.
            normalize: whether to scale embeddings to length 1; zeros stay zeros.
                Defaults to `False`.
            batch_size: most texts that go through the model at once. Defaults to 64.
            truncate: read the first tokens of a text too long for the model, as many as
                it takes, and warn with the number of such texts. Defaults to `False`:
                such a text is an error.
            progress: whether to show a progress bar. Defaults to `False`.

        Returns:
            float32 array (N, D), in the order of the texts; for one str (D,).

        Raises:
            ValueError: if a text is too long, or `fit_idf` has not been called for
                `pooling="idf"`.
            TypeError: if a text is not a string.
        """
        check_positive_integers(self, batch_size=batch_size)
        texts, is_one = checked_texts(texts)
        if is_one:
            return self.encode(texts, normalize, batch_size, truncate, progress)[0]
        encoded = self._tokens(texts, truncate)
        weights = self._pooling_weights(encoded)
        embeddings = self._pool(encoded, weights, batch_size, progress)
        if self.transform is not None:
            is_zero = np.bincount(encoded.text_of_token, weights, len(encoded)) == 0
            embeddings = self.transform(embeddings.astype("float64"))
            embeddings[is_zero] = 0
        if normalize:
            embeddings = _normalized(embeddings)
        return embeddings.astype("float32")

    def similarity(self, a, b):
        """The cosines between two sets of embeddings.

        Args:
            a, b: embeddings (N, D) and (M, D), as `encode` gives them.

        Returns:
            float32 array (N, M). The cosine with an embedding that is zero is 0.
        """
        a, b = (_normalized(np.atleast_2d(np.asarray(x, "float64"))) for x in (a, b))
        return (a @ b.T).astype("float32")

    def fit_idf(self, texts):
        """Learn how rare each token is from texts, for `pooling="idf"`.

        A token that is in `n` of `N` texts weighs `1 + log((1 + N) / (1 + n))`.

        Args:
            texts: list of str, such as those that are to be embedded.

        Returns:
            The embedder itself.
        """
        texts, _ = checked_texts(texts)
        encoded = EncodedTexts.encode(texts, self.tokenizer)
        pairs = np.stack([encoded.text_of_token, encoded.token_ids])
        size = self.tokenizer.vocabulary_size()
        counts = np.bincount(np.unique(pairs, axis=1)[1], minlength=size)
        self._idf = 1 + np.log((1 + len(texts)) / (1 + counts))
        return self

    def fit_whitening(self, texts, dim=None, **options):
        """Learn from texts the map after which their embeddings have unit covariance.

        Su et al. (2021). Any two dimensions are then uncorrelated and weigh the
        same. It takes the place of any map fitted before.

        Args:
            texts: list of str, of the kind that is to be embedded, many times as many
                as the model is wide.
            dim: how many dimensions to keep. Defaults to all in which they vary.
            **options: as for `encode`.

        Returns:
            The embedder itself.

        Raises:
            ValueError: if the embeddings vary in fewer than `dim` directions.
        """
        return self._fit(whitening, texts, dim, options)

    def fit_top_component_removal(self, texts, count=1, **options):
        """Learn from texts what all their embeddings share, to take it out.

        That is their mean and the `count` directions in which they vary most (Mu and
        Viswanath, ICLR 2018). It takes the place of any map fitted before.

        Args:
            texts: list of str, of the kind that is to be embedded.
            count: how many directions to take out. Defaults to 1.
            **options: as for `encode`.

        Returns:
            The embedder itself.
        """
        return self._fit(top_component_removal, texts, count, options)

    def _fit(self, transform, texts, argument, options):
        self.transform = None
        embeddings = self.encode(checked_texts(texts)[0], **options)
        embeddings = embeddings[embeddings.any(axis=1)]
        if len(embeddings) < 2:
            raise ValueError(
                "A map needs at least two texts with tokens to learn from. "
                f"Received: {len(embeddings)}"
            )
        self.transform = transform(embeddings.astype("float64"), argument)
        return self

    def _tokens(self, texts, truncate):
        size = self.max_sequence_length - 2
        token_ids, word_ids = encode_texts(
            texts, self.tokenizer, "word_ids" in self.backbone.visibility.needs
        )
        too_long = [index for index, ids in enumerate(token_ids) if len(ids) > size]
        if too_long:
            found = (
                f"{len(too_long)} of {len(texts)} texts have more than the {size} "
                "tokens that the model reads between [SOS] and [EOS]; the first is the "
                f"one at index {too_long[0]}, with {len(token_ids[too_long[0]])}."
            )
            if not truncate:
                raise ValueError(
                    f"{found} Shorten or split them, or pass `truncate=True` to embed "
                    f"their first {size} tokens."
                )
            warnings.warn(
                f"{found} Their first {size} tokens are embedded.", stacklevel=3
            )
            token_ids, word_ids = (
                rows and [row[:size] for row in rows] for rows in (token_ids, word_ids)
            )
        encoded = EncodedTexts(token_ids, word_ids, self.tokenizer)
        if unknown := encoded.describe_unknown_tokens(texts):
            warnings.warn(f"{unknown} They are embedded as such.", stacklevel=3)
        return encoded

    def _pooling_weights(self, encoded):
        """How much each of the flat tokens weighs, float64."""
        if self.pooling == "first":
            weights = np.zeros(len(encoded.token_ids))
            weights[encoded.offsets[:-1]] = 1
            return weights
        if self.pooling == "mean_with_specials":
            return np.ones(len(encoded.token_ids))
        weights = encoded.is_scored("exclude").astype("float64")
        if self.pooling == "idf":
            if self._idf is None:
                raise ValueError(
                    '`pooling="idf"` must know how rare tokens are: call '
                    "`fit_idf(texts)` first."
                )
            weights *= self._idf[encoded.token_ids]
        return weights

    def _pool(self, encoded, weights, batch_size, progress):
        embeddings = np.zeros((len(encoded), self._model.output.shape[-1]), "float32")
        starts, lengths = encoded.offsets[:-1], encoded.lengths
        buckets = length_buckets(
            lengths, bucket_widths(self.max_sequence_length), batch_size
        )
        if progress:
            buckets = track(list(buckets), "Embedding")
        for part, shape in buckets:
            inputs = encoded.inputs(
                starts[part], lengths[part], shape, self.backbone.visibility.needs
            )
            if getattr(self.backbone, "num_segments", 0):
                inputs["segment_ids"] = np.zeros(shape, "int32")
            inputs["pooling_weights"] = np.zeros(shape, "float32")
            slots = np.arange(shape[1])
            is_real = slots < lengths[part, None]
            at = (starts[part, None] + slots)[is_real]
            inputs["pooling_weights"][: len(part)][is_real] = weights[at]
            embeddings[part] = self._model.predict_on_batch(inputs)[: len(part)]
        return embeddings


def _normalized(embeddings):
    # Scaled first: squares of very large or very small numbers are none.
    largest = np.abs(embeddings).max(axis=-1, keepdims=True, initial=0)
    embeddings = embeddings / np.where(largest > 0, largest, 1)
    norms = np.linalg.norm(embeddings, axis=-1, keepdims=True)
    return embeddings / np.maximum(norms, 1)
