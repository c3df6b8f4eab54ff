"""Denoising with an encoder and a decoder: T5, UL2, BART, MASS.

Axes: B batch, T text, S encoder (source), U decoder, D model width, V vocabulary.
"""

from functools import cached_property

import keras
import keras_hub
import numpy as np
from keras import ops

from keras_tta.checks import check_positive_integers
from keras_tta.layers import EmbeddingHead
from keras_tta.layers.corruption import MASSDenoising
from keras_tta.layers.corruption.seq2seq import Seq2SeqMasker
from keras_tta.pretraining.pretrainer import Pretrainer

SEQ2SEQ_LMS = {
    keras_hub.models.T5Backbone: keras_hub.models.T5Seq2SeqLM,
    keras_hub.models.BartBackbone: keras_hub.models.BartSeq2SeqLM,
}


@keras.saving.register_keras_serializable(package="keras_tta")
class Seq2SeqDenoiser(Pretrainer):
    """An encoder reads corrupted text, a decoder gives back what is missing.

    The corruption says which objective it is: span corruption (T5), a mixture of
    denoisers (UL2), infilling and shuffling (BART), one masked span (MASS), prefix LM.
    Training corrupts a row afresh in every step, on the device; validation always in
    the same way. The loss is the mean negative log-likelihood, in nats, over the
    labels, sentinels and [EOS] among them. Reported `nats_per_token`, `accuracy` and
    `perplexity` leave these and the other special tokens out.

    The backbone is KerasHub's, unchanged, and the logits are those of its `Seq2SeqLM`:
    the embedding table, for a tied T5 scaled by D ** -0.5, without a bias. With
    `MASSDenoising` the decoder's cross-attention does not see the hidden slots, and
    BART's decoder has the hidden tokens' own positions; T5's relative ones are theirs
    anyway.

    `compile()` without arguments takes T5's optimizer over a T5 backbone: Adafactor,
    with a rate of 1e-2 for 10,000 steps and of 1 / sqrt(step) after, relative to
    the size of a weight; T5's embeddings start with variance 1, and Adam's steps are
    too small for them. Over BART it is AdamW, with a peak of 5e-4 after 5 % of warm-up.

    Args:
        backbone: a `keras_hub.models.T5Backbone` or `keras_hub.models.BartBackbone`.
        corruption: an encoder-decoder layer of `keras_tta.layers.corruption`, such as
            `SpanCorruption`.
        sequence_length: T, to which every batch of text is padded: what encoder and
            decoder read follows from it.

    Call arguments:
        inputs: a dict of `token_ids` and `padding_mask` (B, T), plain text as the
            corruption takes it.

    Returns:
        A dict of `hidden` (B, U, D), `labels` and `weights` (B, U), and `num_clamped`
        (B,), see `Masker`; its sum is a metric. For logits (B, U, V) call
        `language_model`, which takes the backbone's inputs.

    Raises:
        ValueError: if backbone or corruption is none of these, they do not know the
            same tokens, or the corrupted text is too long for the backbone.

    Example:
    ```python
    import keras_hub
    import numpy as np
    from keras_tta.layers.corruption import SpanCorruption
    from keras_tta.pretraining import Seq2SeqDenoiser

    backbone = keras_hub.models.T5Backbone(
        vocabulary_size=40,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    corruption = SpanCorruption(40, num_sentinels=8)
    denoiser = Seq2SeqDenoiser(backbone, corruption, sequence_length=12)
    denoiser.compile()

    batch = {
        "token_ids": np.random.default_rng(0).integers(2, 32, (16, 12)),
        "padding_mask": np.ones((16, 12), bool),
    }
    denoiser.fit(batch, epochs=1, verbose=0)
    corrupted = corruption.numpy(**batch)
    completions = denoiser.complete(
        corrupted["encoder_token_ids"], corrupted["encoder_padding_mask"], max_length=5
    )
    assert completions.shape == (16, 5)
    ```
    """

    perplexity_name = "perplexity"
    recipe = {"learning_rate": 5e-4, "warmup": 0.05}

    def __init__(self, backbone, corruption, sequence_length, **kwargs):
        if not isinstance(backbone, tuple(SEQ2SEQ_LMS)):
            raise ValueError(
                "`backbone` must be a `keras_hub.models.T5Backbone` or a "
                f"`keras_hub.models.BartBackbone`. Received: backbone={backbone!r}"
            )
        if not isinstance(corruption, (Seq2SeqMasker, MASSDenoising)):
            raise ValueError(
                "`corruption` must be an encoder-decoder layer of "
                "`keras_tta.layers.corruption`, such as `SpanCorruption`. "
                f"Received: corruption={corruption!r}"
            )
        if corruption.vocabulary_size > backbone.vocabulary_size:
            raise ValueError(
                f"The corruption knows {corruption.vocabulary_size} tokens, the "
                f"backbone {backbone.vocabulary_size}: give both the same "
                "vocabulary_size."
            )
        check_positive_integers(self, sequence_length=sequence_length)
        inputs = {
            name: keras.Input((sequence_length,), dtype="int32", name=name)
            for name in ("token_ids", "padding_mask")
        }
        corrupted = corruption(inputs["token_ids"], inputs["padding_mask"])
        _check_lengths(backbone, corrupted)
        read = {name: ops.cast(corrupted[name], "int32") for name in backbone.input}
        if isinstance(corruption, MASSDenoising):
            hidden = _decode_hidden_span(backbone, read, corrupted)
        else:
            hidden = backbone(read)["decoder_sequence_output"]
        targets = {
            "hidden": hidden,
            "labels": corrupted["labels"],
            "weights": ops.cast(corrupted["sample_weight"], "float32"),
            "num_clamped": corrupted["num_clamped"],
        }
        super().__init__(
            backbone,
            _embedding_head(backbone),
            inputs,
            targets,
            _never_text(corruption),
            **kwargs,
        )
        self.corruption = corruption
        self.sequence_length = sequence_length
        self._sampler = None

    @cached_property
    def language_model(self):
        """The sibling that predicts: backbone inputs to logits, float32 (B, U, V)."""
        logits = self.head(self.backbone.output["decoder_sequence_output"])
        return keras.Model(self.backbone.input, logits, name="language_model")

    @cached_property
    def seq2seq_lm(self):
        """KerasHub's `Seq2SeqLM` over the same backbone, without a preprocessor."""
        for backbone_class, model_class in SEQ2SEQ_LMS.items():
            if isinstance(self.backbone, backbone_class):
                return model_class(self.backbone, preprocessor=None)

    def compile(self, optimizer="auto", learning_rate=None, **kwargs):
        """Configure training; without arguments, the recipe of the class's docstring.

        Args:
            optimizer: `"auto"`, or any Keras optimizer.
            learning_rate: the highest. Defaults to 1e-2 over T5, relative to the size
                of a weight, and to 5e-4 over BART.
            **kwargs: as for `Pretrainer.compile`. T5's optimizer has a schedule of its
                own: no `warmup` and no `total_steps`.

        Raises:
            ValueError: as for `Pretrainer.compile`.
        """
        if optimizer == "auto" and isinstance(
            self.backbone, keras_hub.models.T5Backbone
        ):
            rate = 1e-2 if learning_rate is None else learning_rate
            optimizer = keras.optimizers.Adafactor(rate)
            learning_rate = None
        super().compile(optimizer, learning_rate, **kwargs)

    def complete(
        self, encoder_token_ids, encoder_padding_mask, max_length, sampler="greedy"
    ):
        """Let the decoder answer corrupted text, by one of KerasHub's samplers.

        Args:
            encoder_token_ids: int (B, S), corrupted text as the encoder reads it in
                training: with sentinels or masks, and with the end token if the
                corruption appends it.
            encoder_padding_mask: bool or int (B, S).
            max_length: how many tokens are generated at most.
            sampler: a `keras_hub.samplers.Sampler` or its name, such as `"beam"` or
                `"top_k"`. Defaults to `"greedy"`.

        Returns:
            NumPy int32 (B, max_length): what follows the start token, through the end
            token, padded.

        Raises:
            ValueError: for `MASSDenoising`, whose decoder answers hidden slots only.
        """
        if isinstance(self.corruption, MASSDenoising):
            raise ValueError(
                "MASS's decoder reads the hidden tokens' predecessors and no start "
                "token: there is nothing to begin a completion with. Fine-tune the "
                "backbone, or train with another corruption."
            )
        check_positive_integers(self, max_length=max_length)
        encoder_token_ids = np.asarray(encoder_token_ids, "int32")
        shape = (len(encoder_token_ids), max_length + 1)
        prompt = np.full(shape, self.corruption.pad_token_id, "int32")
        prompt[:, 0] = self.corruption.start_token_id
        end = self.corruption.end_token_id
        if sampler != self._sampler:  # Compiled anew only where it changes.
            self.seq2seq_lm.compile(sampler=sampler)
            self._sampler = sampler
        answer = self.seq2seq_lm.generate(
            {
                "encoder_token_ids": encoder_token_ids,
                "encoder_padding_mask": np.asarray(encoder_padding_mask, "int32"),
                "decoder_token_ids": prompt,
                "decoder_padding_mask": np.arange(shape[1]) < np.ones((shape[0], 1)),
            },
            stop_token_ids=None if end is None else (end,),
        )
        real = np.asarray(answer["decoder_padding_mask"], bool)
        token_ids = np.asarray(answer["decoder_token_ids"])
        return np.where(real, token_ids, self.corruption.pad_token_id)[:, 1:]

    def get_config(self):
        return {
            **super().get_config(),
            "corruption": keras.saving.serialize_keras_object(self.corruption),
            "sequence_length": self.sequence_length,
        }


def _check_lengths(backbone, corrupted):
    most = getattr(backbone, "max_sequence_length", None)
    for side in ("encoder", "decoder"):
        length = corrupted[f"{side}_token_ids"].shape[1]
        if most is not None and length > most:
            raise ValueError(
                f"The {side} reads {length} tokens, and the backbone has positions for "
                f"{most}: lower `sequence_length`, or give the backbone a longer "
                "`max_sequence_length`."
            )


def _embedding_head(backbone):
    tied = getattr(backbone, "tie_embedding_weights", False)
    head = EmbeddingHead(
        backbone.token_embedding,
        # Only T5Backbone says that it is tied, and only T5 scales.
        scale=backbone.hidden_dim**-0.5 if tied else 1.0,
        dtype=backbone.dtype_policy,
        name="token_prediction_head",
    )
    head.build()
    return head


def _never_text(corruption):
    """Ids that labels may hold and that are no part of a text."""
    ends = (corruption.pad_token_id, getattr(corruption, "end_token_id", None))
    sentinels = getattr(corruption, "sentinel_token_ids", ())
    ids = {*corruption.special_token_ids, *ends, *sentinels} - {None}
    return sorted(ids)


def _decode_hidden_span(backbone, read, corrupted):
    """The decoder's hidden states with MASS's cross-attention mask and positions.

    KerasHub's graph is cut in two where the encoder ends, over the same layers.
    """
    inputs, outputs = backbone.input, backbone.output
    names = ("encoder_token_ids", "encoder_padding_mask")
    encoder = keras.Model(
        [inputs[name] for name in names],
        outputs["encoder_sequence_output"],
        name="encoder",
    )
    encoded = encoder([read[name] for name in names])
    visible = ops.cast(corrupted["cross_attention_mask"], "int32")
    pairs = [
        (outputs["encoder_sequence_output"], encoded),
        (inputs["encoder_padding_mask"], visible),
        (inputs["decoder_token_ids"], read["decoder_token_ids"]),
        (inputs["decoder_padding_mask"], read["decoder_padding_mask"]),
    ]
    if isinstance(backbone, keras_hub.models.BartBackbone):
        embedding = backbone.decoder_position_embedding
        positions = embedding(
            backbone.token_embedding(read["decoder_token_ids"]),
            positions=corrupted["decoder_position_ids"],
        )
        pairs.append((embedding.output, positions))
    cut, values = map(list, zip(*pairs, strict=True))
    decoder = keras.Model(cut, outputs["decoder_sequence_output"], name="decoder")
    return decoder(values)
