"""What all pretraining objectives share: the training graph and its use.

Axes: B batch, T length, D model width, V vocabulary.
"""

from functools import cached_property

import keras
from keras import ops

from keras_tta.layers.checks import check_one_of
from keras_tta.presets import (
    PresetError,
    load_backbone,
    load_tokenizer,
    save_preset,
)
from keras_tta.presets.loading import load_head_weights, load_objective
from keras_tta.pretraining.inputs import check_token_arrays
from keras_tta.pretraining.metrics import TokenMetrics
from keras_tta.training import (
    AdamWeightDecay,
    TokenCount,
    WarmupLinearDecay,
    check_policy,
    count_steps,
)
from keras_tta.training.loaders import with_tuple_batches


class Pretrainer(keras.Model):
    """A functional model whose graph ends where the loss begins.

    An objective names a corruption, a visibility rule and a head; this class does what
    they have in common. Its graph, from the model's inputs, ends in a dict of `hidden`
    (B, T, D), `labels` and `weights` (B, T), never in logits (B, T, V): the head's
    loss consumes them in chunks. What was learned is used through siblings over
    the same layers, `backbone` and `language_model`.

    Args:
        backbone: the encoder that is trained.
        head: the layer that predicts and owns the loss, such as
            `keras_tta.layers.TokenPredictionHead`.
        inputs: symbolic inputs of the training graph.
        targets: dict of the symbolic `hidden`, `labels` and `weights`; and of a
            corruption's `num_clamped`, whose sum is then a metric.
        special_token_ids: labels that reported figures leave out. The loss keeps them.
        normalization: `"tokens"`, the loss is the mean over real tokens, or
            `"positions"`, over all positions, padding included, as in T-TA's code.

    Attributes:
        tokenizer: the tokenizer the model came with, or `None`. Presets keep it,
            `.keras` files do not.
        recipe: the `learning_rate` and `warmup` of `compile()`.
    """

    tokenizer = None
    perplexity_name = "pseudo_perplexity"
    # T-TA's README: a peak of 1e-4 after 50,000 of 2,000,000 steps.
    recipe = {"learning_rate": 1e-4, "warmup": 0.025}

    def __init__(
        self,
        backbone,
        head,
        inputs,
        targets,
        special_token_ids,
        normalization="tokens",
        **kwargs,
    ):
        check_one_of(self, ("tokens", "positions"), normalization=normalization)
        super().__init__(inputs=inputs, outputs=targets, **kwargs)
        self.backbone = backbone
        self.head = head
        self.special_token_ids = tuple(int(i) for i in special_token_ids)
        self.normalization = normalization
        self._token_metrics = TokenMetrics(self.special_token_ids, self.perplexity_name)
        self._tracked_metrics = self._token_metrics.all()
        if "num_clamped" in targets:
            # Compiled steps cannot raise where the data break a corruption's contract.
            self._num_clamped = TokenCount(name="num_clamped")
            self._tracked_metrics.append(self._num_clamped)
        self._schedule = None

    @cached_property
    def language_model(self):
        """The sibling that predicts: backbone inputs to logits, float32 (B, T, V)."""
        logits = self.head(self.backbone.output)
        return keras.Model(self.backbone.input, logits, name="language_model")

    def compile(
        self,
        optimizer="auto",
        learning_rate=None,
        warmup=None,
        total_steps=None,
        **kwargs,
    ):
        """Configure training; without arguments, the official recipe.

        That is AdamW without bias correction, no decay of norms and biases, clipping
        by the global norm, and a linear warm-up followed by a linear decay to zero.
        The schedule is as long as the training: `total_steps`, or else what `fit`
        is told (epochs times steps in an epoch). A second `fit` begins a new schedule.

        Args:
            optimizer: `"auto"`, or any Keras optimizer; it then brings its own learning
                rate, and the arguments below cannot be given.
            learning_rate: the schedule's peak. Defaults to the class's `recipe`.
            warmup: a share of the schedule if below 1, else a number of steps.
                Defaults to the class's `recipe`.
            total_steps: steps of the schedule. Defaults to what `fit` is told.
            **kwargs: as for `keras.Model.compile`, but no `loss`.

        Raises:
            ValueError: if the weights are stored in half precision, a loss is given, or
                a schedule beside an optimizer, or the warm-up is longer than the
                schedule.
        """
        check_policy(self)
        if kwargs.get("loss") is not None:
            raise ValueError(
                f"{type(self).__name__} has its own loss; compile it without `loss`."
            )
        given = {
            "learning_rate": learning_rate,
            "warmup": warmup,
            "total_steps": total_steps,
        }
        given = {name: value for name, value in given.items() if value is not None}
        self._compile_arguments = kwargs
        self._schedule = None
        if optimizer == "auto":
            optimizer = AdamWeightDecay(_UnknownLength())
            self._schedule = {"total_steps": None, **self.recipe, **given}
        elif given:
            raise ValueError(
                "An optimizer brings its own learning rate: give `compile` either an "
                f"optimizer or {', '.join(f'`{name}`' for name in given)}. "
                f"Received: optimizer={optimizer!r} and {given}"
            )
        super().compile(optimizer=optimizer, **kwargs)
        if total_steps is not None:
            self._set_schedule(total_steps)

    def fit(self, x=None, y=None, batch_size=None, epochs=1, **kwargs):
        """Train on token batches, as `keras.Model.fit`.

        Args:
            x: batches of the model's inputs: NumPy arrays, a `tf.data.Dataset`, a Grain
                dataset, a `keras.utils.PyDataset` or a torch `DataLoader`.
            y: must be left out: the objective makes its own labels.
            batch_size, epochs, **kwargs: as for `keras.Model.fit`.

        Raises:
            ValueError: if the length of the schedule is known neither from the data nor
                from `steps_per_epoch` nor from `compile(total_steps=...)`; or if
                `sample_weight` is given, which Keras would drop.
        """
        self._refuse_sample_weight(kwargs)
        check_token_arrays(x, self.backbone)
        x = with_tuple_batches(x)
        if not isinstance(x, dict):
            # Data sets have their own order, which Keras would draw anew from Python's
            # global random numbers.
            kwargs.setdefault("shuffle", False)
        if "validation_data" in kwargs:
            kwargs["validation_data"] = with_tuple_batches(kwargs["validation_data"])
        if self._schedule and self._schedule["total_steps"] is None:
            steps = count_steps(
                x,
                batch_size,
                kwargs.get("steps_per_epoch"),
                kwargs.get("validation_split") or 0.0,
            )
            if steps is None:
                raise ValueError(_UnknownLength.message)
            # Steps made before this call belong to its schedule only if `fit` is told
            # so, by `initial_epoch`.
            made = int(self.optimizer.iterations)
            start = max(0, made - kwargs.get("initial_epoch", 0) * steps)
            self._set_schedule(steps * epochs, start)
        return super().fit(x, y, batch_size=batch_size, epochs=epochs, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        self._refuse_sample_weight(kwargs)
        check_token_arrays(x, self.backbone)
        return super().evaluate(with_tuple_batches(x), *args, **kwargs)

    def make_train_function(self, force=False):
        if isinstance(self.optimizer._learning_rate, _UnknownLength):
            raise ValueError(_UnknownLength.message)
        return super().make_train_function(force)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        if y is not None:
            raise ValueError(
                f"{type(self).__name__} makes its own labels; give it the inputs "
                "alone, without `y`."
            )
        if sample_weight is not None:
            sample_weight = ops.cast(sample_weight, "float32")
            if len(sample_weight.shape) == 1:
                sample_weight = ops.expand_dims(sample_weight, 1)
        return self.objective_loss(y_pred, sample_weight, training)

    def objective_loss(self, targets, sample_weight, training):
        """The loss, from what the graph ends in; an objective of more parts adds them.

        Args:
            targets: the graph's outputs.
            sample_weight: None, or float32 of shape (B, 1) or that of the weights.
            training: whether gradients will be asked for.
        """
        return self.token_loss(self.head, targets, sample_weight, training)

    def token_loss(self, head, targets, sample_weight, training):
        """The loss of `hidden`, `labels` and `weights` under a head; keeps metrics."""
        labels = targets["labels"]
        weights = ops.cast(targets["weights"], "float32")
        weights = ops.broadcast_to(weights, ops.shape(labels))
        if sample_weight is not None:
            weights = weights * sample_weight
        total, nats, correct = head.loss(
            targets["hidden"], labels, weights, training=training
        )
        self._token_metrics.update(nats, correct, labels, weights)
        if "num_clamped" in targets:
            self._num_clamped.update_state(targets["num_clamped"])
        if self.normalization == "positions":
            return total / ops.cast(ops.size(labels), "float32")
        return total / ops.maximum(ops.sum(weights), 1e-6)

    def get_compile_config(self):
        if not self.compiled:
            return None
        how = self._schedule or {"optimizer": self.optimizer}
        return keras.saving.serialize_keras_object({**how, **self._compile_arguments})

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))
        self.optimizer.build(self.trainable_variables)

    def get_config(self):
        return {
            "name": self.name,
            "backbone": keras.saving.serialize_keras_object(self.backbone),
        }

    @classmethod
    def from_config(cls, config):
        deserialize = keras.saving.deserialize_keras_object
        return cls(
            **{
                k: deserialize(v) if isinstance(v, dict) else v
                for k, v in config.items()
            }
        )

    def attach_tokenizer(self, tokenizer):
        """Keep a tokenizer with the model, to be saved with it."""
        # Around Keras, which would take it for a layer of the model.
        object.__setattr__(self, "tokenizer", tokenizer)

    def save_to_preset(self, directory, tokenizer=None, figures=None):
        """Save backbone, head, objective and tokenizer as a preset folder.

        Not the optimizer: what a training needs to go on is a checkpoint's business.

        Args:
            directory: the folder to write. A preset that is there is replaced once the
                new one is complete.
            tokenizer: saved along. Defaults to the one the model came with.
            figures: dict of training figures for the model card.
        """
        save_preset(
            directory,
            self.backbone,
            heads={head.name: head for head in self.preset_heads()},
            tokenizer=self.tokenizer if tokenizer is None else tokenizer,
            objective={
                "registered_name": keras.saving.get_registered_name(type(self)),
                "config": self.preset_settings(),
            },
            figures=figures,
        )

    @classmethod
    def from_preset(cls, directory, dtype=None, **options):
        """Load what `save_to_preset` saved, with the guard of `load_backbone`.

        Args:
            directory: a local preset folder.
            dtype: a dtype or policy. Defaults to the current global policy.
            **options: the objective's arguments to use in place of those saved.

        Returns:
            The pretrainer, not compiled, with the preset's `tokenizer` if it has one.

        Raises:
            FileNotFoundError: if the folder, or a file such as the head's, is missing.
            PresetError: a ValueError, if a file does not fit or is not to be trusted,
                or the preset was saved by another objective.

        Example:
        ```python
        from keras_tta.models import TTABackbone
        from keras_tta.pretraining import LanguageAutoencoder

        backbone = TTABackbone(
            vocabulary_size=30,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=16,
        )
        LanguageAutoencoder(backbone).save_to_preset("tiny")
        pretrainer = LanguageAutoencoder.from_preset("tiny")
        assert pretrainer.special_token_ids == (0, 1, 3, 4)
        ```
        """
        saved_by, settings = load_objective(directory)
        if saved_by not in (None, keras.saving.get_registered_name(cls)):
            raise PresetError(
                directory,
                f"saved by {saved_by}, not {cls.__name__}. To begin another training "
                f"from its backbone: {cls.__name__}(keras_tta.presets."
                "load_backbone(...)).",
            )
        pretrainer = cls.from_preset_parts(directory, dtype, {**settings, **options})
        for head in pretrainer.preset_heads():
            load_head_weights(directory, head)
        try:
            pretrainer.attach_tokenizer(load_tokenizer(directory))
        except FileNotFoundError:
            # A preset may come without one.
            pass
        return pretrainer

    def preset_heads(self):
        """The heads that a preset holds beside the backbone."""
        return [self.head]

    def preset_settings(self):
        """What a preset says of the objective: plain values and corruption layers."""
        settings = self.get_config()
        return {k: v for k, v in settings.items() if k not in ("name", "backbone")}

    @classmethod
    def from_preset_parts(cls, directory, dtype, settings):
        """The objective on the models of a preset; heads are loaded afterwards."""
        return cls(load_backbone(directory, dtype=dtype), **settings)

    def _refuse_sample_weight(self, arguments):
        if arguments.get("sample_weight") is not None:
            raise ValueError(
                "Keras drops the `sample_weight` of data without `y`, and pretraining "
                "has no `y`. Weigh rows in `train_on_batch` and `test_on_batch`, which "
                "keep it."
            )

    def _set_schedule(self, total_steps, start_step=0):
        warmup = self._schedule["warmup"]
        warmup = round(warmup * total_steps) if warmup < 1 else int(warmup)
        schedule = WarmupLinearDecay(
            self._schedule["learning_rate"],
            warmup,
            total_steps,
            start_step=start_step,
        )
        current = self.optimizer._learning_rate
        if current.get_config() != schedule.get_config():
            self.optimizer.learning_rate = schedule
            # A compiled step holds the old schedule's numbers.
            self.train_function = None


@keras.saving.register_keras_serializable(package="keras_tta")
class _UnknownLength(keras.optimizers.schedules.LearningRateSchedule):
    """Stands where the schedule will be once the length of the training is known."""

    message = (
        "The learning-rate schedule must know how long the training is, and neither "
        "the data nor the arguments say it. Give `fit` `steps_per_epoch=...`, or "
        "`compile` `total_steps=...`, or `compile` an optimizer of your own."
    )

    def __call__(self, step):
        return 0.0

    def get_config(self):
        return {}
