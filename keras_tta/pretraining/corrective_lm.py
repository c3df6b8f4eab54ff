"""ELECTRA's ablations between BERT and ELECTRA: replaced tokens are put right.

Axes: B batch, T length, V vocabulary.
"""

from functools import cached_property

import keras

from keras_tta.models.heads import token_prediction_head
from keras_tta.pretraining.generator_objective import GeneratorObjective
from keras_tta.pretraining.replacement_metrics import CorrectionMetrics


@keras.saving.register_keras_serializable(package="keras_tta")
class CorrectiveLM(GeneratorObjective):
    """Predicts the text's own tokens where a small generator has replaced some.

    The inputs are those of `ReplacedTokenDetection`, and what is kept predicts tokens
    as a `MaskedLM`, without ever reading a mask token. Of the paper's ablations
    (Clark et al., ICLR 2020, section 3.4) it is, as it stands, "All-Tokens MLM": every
    real token is predicted, and may be copied. With `loss_positions="masked"` and
    `copy=False` it is "Replace MLM".

    `nats_per_token`, `accuracy` and `pseudo_perplexity` are the generator's. Of what is
    kept, over the tokens in the loss: `discriminator_loss` and
    `discriminator_accuracy`, `replaced_share`, and `corrected_share`, how many of the
    replaced tokens are put right. To copy all tokens has an accuracy of
    `1 - replaced_share` and corrects none.

    Args:
        generator, discriminator, masking: as for `ReplacedTokenDetection`.
        copy: whether tokens may be taken over as they are read, see
            `keras_tta.layers.CopyHead`. Defaults to `True`.
        discriminator_weight: of the token prediction, beside 1 for the generator's. The
            paper gives none. Defaults to 1.0.
        loss_positions: `"all"` real tokens, or `"masked"`. Defaults to `"all"`.
        **kwargs: the other arguments of `ReplacedTokenDetection`, but `adversarial`.

    Call arguments:
        inputs: as for `MaskedLM`.

    Returns:
        A dict of what the loss needs, as `ReplacedTokenDetection`.

    Raises:
        ValueError: as for `ReplacedTokenDetection`.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import TokenMasking
    from keras_tta.models import TransformerBackbone
    from keras_tta.pretraining import CorrectiveLM

    sizes = {"vocabulary_size": 30, "num_layers": 1, "max_sequence_length": 8}
    generator = TransformerBackbone(
        **sizes, num_heads=1, hidden_dim=4, intermediate_dim=8, embedding_dim=8
    )
    discriminator = TransformerBackbone(
        **sizes, num_heads=2, hidden_dim=8, intermediate_dim=16
    )
    masking = TokenMasking(30, 4, (0, 1, 3), mask_share=0.85, random_share=0.0)
    replace_mlm = CorrectiveLM(
        generator, discriminator, masking, copy=False, loss_positions="masked"
    )
    replace_mlm.compile()

    batch = {
        "token_ids": np.random.default_rng(0).integers(5, 30, (64, 8)),
        "padding_mask": np.ones((64, 8), bool),
    }
    history = replace_mlm.fit(batch, epochs=1, verbose=0).history
    assert 6 < history["loss"][0] < 8  # 2 ln 30 = 6.8
    assert tuple(replace_mlm.language_model(batch).shape) == (64, 8, 30)
    ```
    """

    def __init__(
        self,
        generator,
        discriminator,
        masking,
        copy=True,
        discriminator_weight=1.0,
        loss_positions="all",
        **kwargs,
    ):
        def make_head(backbone):
            return token_prediction_head(backbone, "correction_head", copy)

        super().__init__(
            generator,
            discriminator,
            masking,
            make_head,
            discriminator_weight,
            loss_positions,
            **kwargs,
        )
        self.copy = copy
        self._correction_metrics = CorrectionMetrics()
        self._tracked_metrics += self._correction_metrics.all()

    @cached_property
    def language_model(self):
        """The sibling that puts tokens right: inputs to logits, float32 (B, T, V)."""
        inputs = self.backbone.input
        read = (inputs["token_ids"],) if self.copy else ()
        logits = self.head(self.backbone.output, *read)
        return keras.Model(inputs, logits, name="language_model")

    def discriminator_loss(self, targets, weights, training):
        read = targets["discriminator_token_ids"]
        labels = targets["discriminator_labels"]
        total, nats, correct = self.head.loss(
            targets["discriminator_hidden"],
            labels,
            weights,
            training=training,
            **{"token_ids": read} if self.copy else {},
        )
        self._correction_metrics.update(nats, correct, read != labels, weights)
        return total, nats

    def get_config(self):
        return {**super().get_config(), "copy": self.copy}
