"""ELECTRA's objective: which tokens are those of the text, and which a generator's.

Axes: B batch, T length, K predictions a row, V vocabulary.
"""

from functools import cached_property

import keras
from keras import ops

from keras_tta.models.heads import replaced_token_head
from keras_tta.pretraining.adversarial import (
    check_policy_samples,
    policy_loss,
    reward_baseline,
)
from keras_tta.pretraining.generator_objective import GeneratorObjective
from keras_tta.pretraining.replacement_metrics import DetectionMetrics


@keras.saving.register_keras_serializable(package="keras_tta")
class ReplacedTokenDetection(GeneratorObjective):
    """Finds the tokens that a small generator has replaced (ELECTRA).

    The generator, a masked language model, fills masked positions with samples of its
    predictions; the discriminator says of every real token, specials included, whether
    it is the original. A sample that happens to be the original counts as one. The loss
    is `1 * masked LM + 50 * detection`, each a mean over its tokens (Clark et al., ICLR
    2020, section 2, and its code). Unlike that code, masked positions never coincide,
    and special tokens are not sampled.

    `nats_per_token`, `accuracy` and `pseudo_perplexity` are the generator's, over
    masked tokens, as in `MaskedLM`. Of the discriminator, over real tokens alone:
    `discriminator_loss`, `_accuracy`, `_precision`, `_recall` and `_auc`, and beside
    them `replaced_share` and `majority_accuracy`, the accuracy of calling every token
    original. A discriminator that stays at the latter with no recall learns nothing.

    Args:
        generator: a `keras_tta.models.TransformerBackbone`, a quarter to a half as wide
            as the discriminator; a `MaskedLM`, to go on with what it has learnt (a
            discriminator that shares its embeddings must begin with them);
            `"uniform"`; or V counts, for a unigram generator. `None` with `tie="all"`.
        discriminator: the `TransformerBackbone` that is kept.
        masking: a `keras_tta.layers.corruption.TokenMasking`; ELECTRA's has
            `mask_share=0.85, random_share=0.0, count_specials=True`.
        tie: what the two networks share: `"none"`, `"tokens"` (the token table),
            `"embeddings"` (all tables and their normalisation) or `"all"`, where they
            are one network with two heads. What is shared is the discriminator's; the
            generator is rebuilt on it as `pretrainer.generator`. Or
            `"disentangled"` (DeBERTaV3): both begin with the discriminator's tables,
            the generator's then learn from its own loss alone, and the discriminator
            reads them plus what it learns itself, see
            `keras_tta.layers.DisentangledEmbedding`. Defaults to `"embeddings"`, and to
            `"none"` for a generator that does not learn.
        generator_weight: of the masked LM's loss. Defaults to 1.0; 0 freezes the
            generator (the `trainable` of the model given becomes `False`), as the
            second stage of two-stage training and Fast-ELECTRA do.
        discriminator_weight: of the detection's loss. Defaults to 50.0.
        loss_positions: `"all"` real tokens, or `"masked"`, the positions that were
            masked alone (the paper's "ELECTRA 15%"). Defaults to `"all"`.
        adversarial: whether the generator learns to be found out less, instead of to
            predict, see `keras_tta.pretraining.adversarial.policy_loss`. Its samples
            must then be those of its softmax: no temperature, `disallow_correct` or
            `sampling_dropout=False`. Its part of `loss` and `val_loss` has a gradient
            that means something and a value that does not: watch `discriminator_loss`
            and `nats_per_token`. The baseline that it learns along is kept in `.keras`
            files, as the optimizer's state, and not in presets. Defaults to `False`.
        temperature, temperature_decay_steps, disallow_correct: see
            `keras_tta.layers.corruption.TokenSampler`.
        sample_specials: whether the masking's special tokens may be sampled, as in the
            authors' code. Defaults to `False`.
        sampling_dropout: whether samples come from the generator as it is trained, with
            its dropout, as in the authors' code. `False` runs it a second time.
        sequence_length, packed: as for `MaskedLM`.

    Call arguments:
        inputs: as for `MaskedLM`.

    Returns:
        A dict of what the loss needs, the rows among it: `original_token_ids` and
        `corrupted_token_ids` (B, T). For logits call `detector` (B, T) or
        `generator_language_model` (B, T, V), for hidden states `backbone`.

    Raises:
        ValueError: if the networks cannot share what `tie` says, an argument is out of
            range, or the masking does not fit, see `MaskedLM`.

    Example:
    ```python
    import numpy as np
    from keras_tta.layers.corruption import TokenMasking
    from keras_tta.models import TransformerBackbone
    from keras_tta.pretraining import ReplacedTokenDetection

    sizes = {"vocabulary_size": 30, "num_layers": 1, "max_sequence_length": 8}
    generator = TransformerBackbone(
        **sizes, num_heads=1, hidden_dim=4, intermediate_dim=8, embedding_dim=8
    )
    discriminator = TransformerBackbone(
        **sizes, num_heads=2, hidden_dim=8, intermediate_dim=16
    )
    masking = TokenMasking(
        30, 4, (0, 1, 3), mask_share=0.85, random_share=0.0, count_specials=True
    )
    pretrainer = ReplacedTokenDetection(generator, discriminator, masking)
    assert pretrainer.generator.embeddings is discriminator.embeddings
    pretrainer.compile()

    batch = {
        "token_ids": np.random.default_rng(0).integers(5, 30, (64, 8)),
        "padding_mask": np.ones((64, 8), bool),
    }
    history = pretrainer.fit(batch, epochs=1, verbose=0).history
    assert 30 < history["loss"][0] < 45  # ln 30 + 50 ln 2 = 38.1
    assert tuple(pretrainer.detector(batch).shape) == (64, 8)
    ```
    """

    def __init__(
        self,
        generator,
        discriminator,
        masking,
        discriminator_weight=50.0,
        loss_positions="all",
        adversarial=False,
        **kwargs,
    ):
        super().__init__(
            generator,
            discriminator,
            masking,
            replaced_token_head,
            discriminator_weight,
            loss_positions,
            **kwargs,
        )
        self._detection_metrics = DetectionMetrics()
        self._tracked_metrics += self._detection_metrics.all()
        self.adversarial = adversarial
        if adversarial:
            check_policy_samples(self)
            self.reward_baseline = reward_baseline(self.generator)

    @cached_property
    def detector(self):
        """The sibling that detects: backbone inputs to logits, float32 (B, T)."""
        logits = self.head(self.backbone.output)
        return keras.Model(self.backbone.input, logits, name="detector")

    @property
    def language_model(self):
        """The generator's, since the discriminator predicts no tokens."""
        return self.generator_language_model

    def discriminator_loss(self, targets, weights, training):
        read = targets["discriminator_token_ids"]
        labels = targets["discriminator_labels"]
        replaced = read != labels
        logits = self.head(targets["discriminator_hidden"])
        total, nats, correct = self.head.loss_of(logits, replaced, weights)
        logits, nats = ops.stop_gradient(logits), ops.stop_gradient(nats)
        self._detection_metrics.update(logits, nats, correct, replaced, weights)
        return total, nats

    def generator_loss(self, targets, nats, sample_weight, training, count):
        likelihood = training and not self.adversarial
        loss = super().generator_loss(targets, nats, sample_weight, likelihood, count)
        if not self.adversarial:
            return loss
        if self.loss_positions == "all":
            positions = targets["masked_positions"]
            nats = ops.take_along_axis(nats, positions, axis=1)
        return policy_loss(
            self.generator_head,
            self.reward_baseline,
            targets["hidden"],
            targets["sampled_token_ids"],
            nats,
            targets["weights"] * sample_weight,
            training,
            count,
            self.token_sampler.special_token_ids,
        )

    def get_config(self):
        return {**super().get_config(), "adversarial": self.adversarial}
