"""What objectives with a generator share: two networks in one training graph.

Axes: B batch, T length, K predictions a row, D model width.
"""

from functools import cached_property
from pathlib import Path

import keras
import numpy as np
from absl import logging
from keras import ops

from keras_tta.checks import check_not_negative, check_one_of
from keras_tta.data import TTATokenizer
from keras_tta.layers import TokenSampler
from keras_tta.layers.corruption.replacement import write_samples
from keras_tta.layers.unigram_head import UnigramHead
from keras_tta.models.heads import token_prediction_head
from keras_tta.presets import load_backbone, save_electra_transformers
from keras_tta.presets.files import nested_preset
from keras_tta.presets.loading import load_head_weights
from keras_tta.presets.transformers_layout import check_no_preset
from keras_tta.pretraining.generators import (
    TIES,
    WithoutDropout,
    check_learnt_tables,
    restore_embeddings,
    tied_networks,
)
from keras_tta.pretraining.masked_lm import MaskedLM, at_positions, masked_rows
from keras_tta.pretraining.packing import training_backbone
from keras_tta.pretraining.pretrainer import Pretrainer
from keras_tta.training.replicas import mean_loss


class GeneratorObjective(Pretrainer):
    """A masked language model's samples replace tokens, and a second model reads them.

    Masked positions are filled with samples from the generator's softmax; a sample that
    equals the original is no replacement. The generator learns to predict the masked
    tokens, the discriminator what its subclass's head and `discriminator_loss` say, and
    the loss is the weighted sum of both. No gradient passes from the one to the other
    but by the weights they share.

    Subclasses document the arguments.
    """

    # ELECTRA-Small's peak, and the warm-up of all sizes, 10,000 of 1,000,000 steps.
    recipe = {"learning_rate": 5e-4, "warmup": 0.01, "warmup_form": "multiply"}

    def __init__(
        self,
        generator,
        discriminator,
        masking,
        make_head,
        discriminator_weight,
        loss_positions,
        tie=None,
        generator_weight=1.0,
        temperature=1.0,
        temperature_decay_steps=None,
        disallow_correct=False,
        sample_specials=False,
        sampling_dropout=True,
        sequence_length=None,
        packed=False,
        **kwargs,
    ):
        check_one_of(self, ("all", "masked"), loss_positions=loss_positions)
        check_not_negative(
            self,
            generator_weight=generator_weight,
            discriminator_weight=discriminator_weight,
        )
        trained_head = None
        if isinstance(generator, MaskedLM):
            generator, trained_head = generator.backbone, generator.head
        learns = generator is None or isinstance(generator, keras.Model)
        counts = None if learns else _counts(generator, discriminator.vocabulary_size)
        tie = _checked_tie(self, generator, tie, learns and generator_weight)
        if trained_head is not None:
            check_learnt_tables(generator, discriminator, tie)
        if learns:
            generator, discriminator = tied_networks(generator, discriminator, tie)
        reader, inputs, masked = masked_rows(
            self, discriminator, masking, sequence_length, packed
        )
        positions, labels = masked["masked_positions"], masked["labels"]

        def read(backbone, token_ids, layer=None):
            rows = {name: inputs[name] for name in backbone.input}
            return (layer or backbone)({**rows, "token_ids": token_ids})

        if learns:
            generator_head = token_prediction_head(
                generator,
                name="generator_head" if tie == "all" else "token_prediction_head",
            )
            if trained_head is not None:
                copy_head_weights(trained_head, generator_head)
            generator_reader = training_backbone(generator, packed)
            hidden = read(generator_reader, masked["token_ids"])
            hidden = at_positions(hidden, positions)
            sampled_from = hidden
            dropout = generator.dropout or generator.embeddings.dropout
            if not sampling_dropout and dropout:
                undropped = WithoutDropout(generator_reader, name="without_dropout")
                sampled_from = read(generator_reader, masked["token_ids"], undropped)
                sampled_from = at_positions(sampled_from, positions)
        else:
            generator_head = UnigramHead(counts, name="generator_head")
            hidden = sampled_from = ops.cast(ops.expand_dims(labels, -1), "float32")
        sampler = TokenSampler(
            generator_head,
            special_token_ids=() if sample_specials else masking.special_token_ids,
            temperature=temperature,
            temperature_decay_steps=temperature_decay_steps,
            disallow_correct=disallow_correct,
            seed=masking.seed,
            dtype=discriminator.dtype_policy,
            name="token_sampler",
        )
        sampled = sampler(
            sampled_from,
            positions,
            labels,
            token_ids=inputs["token_ids"],
            padding_mask=inputs["padding_mask"],
        )
        chosen = masked["dense_sample_weight"]
        corrupted = write_samples(inputs["token_ids"], chosen, sampled)
        judged = read(reader, corrupted)
        weights = ops.cast(masked["sample_weight"], "float32")
        targets = {
            "hidden": hidden,
            "labels": labels,
            "masked_positions": positions,
            "sampled_token_ids": sampled,
            "weights": weights,
            "num_clamped": masked["num_clamped"],
            "original_token_ids": inputs["token_ids"],
            "corrupted_token_ids": corrupted,
            # What the second loss is of, (B, T), or (B, K) at masked positions alone.
            "discriminator_hidden": judged,
            "discriminator_weights": ops.cast(inputs["padding_mask"], "float32"),
            "discriminator_labels": inputs["token_ids"],
            "discriminator_token_ids": corrupted,
        }
        if loss_positions == "masked":
            targets["discriminator_hidden"] = at_positions(judged, positions)
            targets["discriminator_weights"] = weights
            targets["discriminator_labels"] = labels
            targets["discriminator_token_ids"] = sampled
        super().__init__(
            discriminator,
            make_head(discriminator),
            inputs,
            targets,
            masking.special_token_ids,
            **kwargs,
        )
        self.generator = generator
        self.generator_head = generator_head
        self.token_sampler = sampler
        if learns and not generator_weight:
            generator.trainable = generator_head.trainable = False
        self.masking = masking
        self.tie = tie
        self.generator_weight = generator_weight if learns else 0.0
        self.discriminator_weight = discriminator_weight
        self.loss_positions = loss_positions
        self.sample_specials = sample_specials
        self.sampling_dropout = sampling_dropout
        self.sequence_length = inputs["token_ids"].shape[1]
        self.packed = packed

    @property
    def discriminator(self):
        """The model that is kept: `backbone` by the paper's name."""
        return self.backbone

    @cached_property
    def generator_language_model(self):
        """The generator with its head: inputs to logits, float32 (B, T, V).

        Raises:
            ValueError: if the generator is fixed counts.
        """
        if not isinstance(self.generator, keras.Model):
            raise ValueError(
                f"The generator of this {type(self).__name__} is fixed counts, which "
                "read no text: there is no language model. The counts are "
                "`generator_head.counts`."
            )
        logits = self.generator_head(self.generator.output)
        return keras.Model(self.generator.input, logits, name="generator")

    def objective_loss(self, targets, sample_weight, training, counts):
        weights = targets["discriminator_weights"] * sample_weight
        total, nats = self.discriminator_loss(targets, weights, training)
        loss = mean_loss(total, counts.get("discriminator_tokens", weights))
        learns = bool(training and self.generator_weight)
        generator_loss = self.generator_loss(
            targets, nats, sample_weight, learns, counts.get("tokens")
        )
        return self.generator_weight * generator_loss + self.discriminator_weight * loss

    def generator_loss(self, targets, nats, sample_weight, training, count):
        """The generator's mean loss; `nats` are the discriminator's."""
        return self.token_loss(
            self.generator_head, targets, sample_weight, training, count
        )

    def discriminator_loss(self, targets, weights, training):
        """The discriminator's weighted sum of nats, and these; keeps its metrics."""
        raise NotImplementedError

    def predicted_tokens(self, batch):
        return self.masking.count_masked(batch["token_ids"], batch["padding_mask"])

    def loss_counts(self, batch):
        counts = super().loss_counts(batch)
        real = (batch["padding_mask"] != 0).sum(axis=1)
        masked = self.loss_positions == "masked"
        tokens = self.predicted_tokens(batch) if masked else real
        return {**counts, "discriminator_tokens": tokens}

    def export_to_transformers(self, directory):
        """Write both networks for Hugging Face's transformers, each with the tokenizer.

        A generator of fixed counts, and a tokenizer of no word pieces, cannot be read
        there: they are left out, and a log line says so.

        Args:
            directory: the folder, for the folders `discriminator`, which
                `ElectraForPreTraining.from_pretrained` reads or, if its head predicts
                tokens, `ElectraForMaskedLM`; and `generator`, which
                `ElectraForMaskedLM` reads.

        Raises:
            ValueError: if a network is none that Hugging Face's ELECTRA can be, such as
                one that copies; or the folder holds a preset.
        """
        tokenizer = self.tokenizer
        if not isinstance(tokenizer, TTATokenizer | None):
            logging.warning("Not written: a %s.", type(tokenizer).__name__)
            tokenizer = None
        networks = {"discriminator": (self.backbone, self.head)}
        if isinstance(self.generator, keras.Model):
            networks["generator"] = self.generator, self.generator_head
        else:
            logging.warning("Not written: the generator, which is fixed counts.")
        for name in networks:
            check_no_preset(Path(directory, name))
        for name, network in networks.items():
            save_electra_transformers(Path(directory, name), *network, tokenizer)

    def preset_generator(self):
        if not self._has_generator_folder():
            return None
        return self.generator, {self.generator_head.name: self.generator_head}

    def preset_heads(self):
        return [self.head, self.generator_head] if self.tie == "all" else [self.head]

    def preset_settings(self):
        settings = super().preset_settings()
        del settings["discriminator"]
        if self._has_generator_folder():
            del settings["generator"]
        return settings

    @classmethod
    def from_preset_parts(cls, directory, dtype, settings):
        discriminator = load_backbone(directory, dtype=dtype)
        if "generator" in settings:
            return cls(discriminator=discriminator, **settings)
        directory = nested_preset(directory, "generator")
        generator = load_backbone(directory, dtype=dtype)
        pretrainer = cls(generator, discriminator, **settings)
        restore_embeddings(pretrainer, generator, discriminator)
        load_head_weights(directory, pretrainer.generator_head)
        return pretrainer

    def get_config(self):
        serialize = keras.saving.serialize_keras_object
        generator = self.generator
        if isinstance(generator, keras.Model):
            generator = None if self.tie == "all" else serialize(generator)
        elif not isinstance(generator, str):
            generator = self.generator_head.counts
        sampler = self.token_sampler
        return {
            "name": self.name,
            "generator": generator,
            "discriminator": serialize(self.discriminator),
            "masking": serialize(self.masking),
            "normalization": self.normalization,
            "tie": self.tie,
            "generator_weight": self.generator_weight,
            "temperature": sampler.temperature,
            "temperature_decay_steps": sampler.temperature_decay_steps,
            "disallow_correct": sampler.disallow_correct,
            "sample_specials": self.sample_specials,
            "sampling_dropout": self.sampling_dropout,
            "discriminator_weight": self.discriminator_weight,
            "loss_positions": self.loss_positions,
            "sequence_length": self.sequence_length,
            "packed": self.packed,
        }

    def _has_generator_folder(self):
        return self.tie != "all" and isinstance(self.generator, keras.Model)


def copy_head_weights(source, target):
    """Give a token prediction head another's weights, the table left out."""
    for name in ("transform_dense", "transform_norm"):
        getattr(target, name).set_weights(getattr(source, name).get_weights())
    # A copy: JAX gives away what a variable holds, and two must not hold the same.
    target.bias.assign(ops.convert_to_numpy(source.bias))


def _counts(generator, vocabulary_size):
    """V counts, from a generator that is no network."""
    if isinstance(generator, str) and generator == "uniform":
        return np.ones(vocabulary_size)
    if np.ndim(generator) != 1:
        raise ValueError(
            "`generator` must be a `keras_tta.models.TransformerBackbone`, a "
            "`MaskedLM`, 'uniform' or V counts of tokens; or None, with tie='all'. "
            f"Received: generator={generator!r}"
        )
    if len(generator) != vocabulary_size:
        raise ValueError(
            f"The generator has counts of {len(generator)} tokens, the discriminator "
            f"{vocabulary_size}: give both the same vocabulary."
        )
    return generator


def _checked_tie(owner, generator, tie, learns):
    """The tie, or what it is when left open."""
    if tie is None:
        tie = "embeddings" if learns and generator is not None else "none"
        tie = "all" if generator is None else tie
    check_one_of(owner, TIES, tie=tie)
    if (tie == "all") != (generator is None):
        raise ValueError(
            "With tie='all' the discriminator is its own generator: pass "
            f"generator=None, and only then. Received: tie={tie!r} and "
            f"generator={generator!r}"
        )
    if tie != "none" and not learns:
        raise ValueError(
            "A generator that does not learn (generator_weight=0, or fixed counts) "
            "shares no weights with a discriminator that does: set tie='none'. "
            f"Received: tie={tie!r}"
        )
    return tie
