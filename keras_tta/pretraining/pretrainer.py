"""What all pretraining objectives share: the training graph and its use.

Axes: B batch, T length, D model width, V vocabulary.
"""

from functools import cached_property

import keras
import numpy as np
from keras import ops

from keras_tta.checks import check_one_of, check_token_ids
from keras_tta.data import TokenBatches
from keras_tta.pretraining.gradient_accumulation import (
    batches_read,
    check_counts,
    innermost,
    micro_batches,
)
from keras_tta.pretraining.input_checks import (
    check_token_arrays,
    refuse_sample_weight,
    weights_of_rows,
)
from keras_tta.pretraining.metrics import TokenMetrics
from keras_tta.pretraining.preset_mixin import SavedAsPreset
from keras_tta.pretraining.recipe_schedule import UnknownLength, warmup_linear_decay
from keras_tta.training import AdamWeightDecay, TokenCount, check_policy, count_steps
from keras_tta.training.replicas import join_replicas, mean_loss, metrics_of_all
from keras_tta.training.torch_loader import with_tuple_batches


class Pretrainer(SavedAsPreset, keras.Model):
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
        recipe: the `learning_rate`, `warmup` and `warmup_form` of `compile()`.
    """

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
        size = backbone.vocabulary_size
        check_token_ids(self, size, special_token_ids=special_token_ids)
        super().__init__(inputs=inputs, outputs=targets, **kwargs)
        # By it Keras decides whether the loss is scaled; else by the global policy.
        self.dtype_policy = backbone.dtype_policy
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
        warmup_form=None,
        gradient_accumulation_steps=None,
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
            warmup_form: how warm-up and decay meet, `"override"` or `"multiply"`, see
                `keras_tta.training.WarmupLinearDecay`. Defaults to the class's
                `recipe`, and where that has none to `"override"`.
            gradient_accumulation_steps: batches that make one update, as one batch of
                their size would; an optimizer of one's own has this argument itself. A
                schedule's steps are batches all the same. Defaults to 1.
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
            "warmup_form": warmup_form,
            "gradient_accumulation_steps": gradient_accumulation_steps,
        }
        given = {name: value for name, value in given.items() if value is not None}
        self._compile_arguments = kwargs
        self._schedule = None
        if optimizer == "auto":
            optimizer = AdamWeightDecay(
                UnknownLength(), gradient_accumulation_steps=gradient_accumulation_steps
            )
            self._schedule = {"total_steps": None, **self.recipe, **given}
        elif given:
            raise ValueError(
                "An optimizer brings its own settings: give `compile` either an "
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
                dataset, a `keras.utils.PyDataset` or a torch `DataLoader`. Where the
                optimizer accumulates gradients, a `keras_tta.data.TokenBatches`.
            y: must be left out: the objective makes its own labels.
            batch_size, epochs, **kwargs: as for `keras.Model.fit`.

        Raises:
            ValueError: if the length of the schedule is known neither from the data nor
                from `steps_per_epoch` nor from `compile(total_steps=...)`; or if
                `sample_weight` is given, which Keras would drop; if gradients are
                accumulated and the tokens of a group of batches cannot be counted; or
                if `validation_data` is the `TokenBatches` that are trained on.
        """
        refuse_sample_weight(kwargs)
        check_token_arrays(x, self.backbone)
        x = with_tuple_batches(x)
        if not isinstance(x, dict):
            # Data sets have their own order, which Keras would draw anew from Python's
            # global random numbers.
            kwargs.setdefault("shuffle", False)
        if isinstance(x, TokenBatches) and kwargs.get("validation_data") is x:
            raise ValueError(
                "Batches keep their place in the data, and evaluation would move it: "
                "give `validation_data` another `TokenBatches`, with `shuffle=False`."
            )
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
                raise ValueError(UnknownLength.message)
            # Steps made before this call belong to its schedule only if `fit` is told
            # so, by `initial_epoch`.
            made = batches_read(self.optimizer)
            start = max(0, made - kwargs.get("initial_epoch", 0) * steps)
            self._set_schedule(steps * epochs, start)
        x = micro_batches(x, self.optimizer, self.loss_counts)
        return super().fit(x, y, batch_size=batch_size, epochs=epochs, **kwargs)

    def evaluate(self, x=None, *args, **kwargs):
        refuse_sample_weight(kwargs)
        check_token_arrays(x, self.backbone)
        return super().evaluate(with_tuple_batches(x), *args, **kwargs)

    def make_train_function(self, force=False):
        rate = innermost(self.optimizer)._learning_rate
        if isinstance(rate, UnknownLength):
            raise ValueError(UnknownLength.message)
        join_replicas(self)
        return super().make_train_function(force)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        # Keras on TensorFlow would build the model, which is built, from the mean of a
        # batch over the replicas, and there is none of a boolean mask.
        pass

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        result = super().compute_metrics(x, y, y_pred, sample_weight)
        return metrics_of_all(self, result, super().get_metrics_result)

    def get_metrics_result(self):
        return getattr(self, "_metrics_of_all", None) or super().get_metrics_result()

    def zero_grad(self, set_to_none=True):
        # What Keras lists to PyTorch goes by path, and those of two backbones coincide:
        # of a pair, one would keep adding its gradients up.
        for variable in self.variables:
            variable.value.grad = None

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        check_counts(self, y, sample_weight, training)
        if sample_weight is None:
            sample_weight = 1.0
        else:
            sample_weight = weights_of_rows(sample_weight, y_pred)
        return self.objective_loss(y_pred, sample_weight, training, y or {})

    def objective_loss(self, targets, sample_weight, training, counts):
        """The loss, from what the graph ends in; an objective of more parts adds them.

        Args:
            targets: the graph's outputs.
            sample_weight: 1.0, or float32 of shape (B, 1) or that of the weights.
            training: whether gradients will be asked for.
            counts: dict of what the rows add to the denominators, (B,), by the names of
                `loss_counts`; empty where a batch counts for itself.
        """
        return self.token_loss(
            self.head, targets, sample_weight, training, counts.get("tokens")
        )

    def token_loss(self, head, targets, sample_weight, training, count=None):
        """The loss of `hidden`, `labels` and `weights` under a head; keeps metrics."""
        labels = targets["labels"]
        weights = ops.cast(targets["weights"], "float32")
        weights = ops.broadcast_to(weights, ops.shape(labels)) * sample_weight
        total, nats, correct = head.loss(
            targets["hidden"], labels, weights, training=training
        )
        self._token_metrics.update(nats, correct, labels, weights)
        if "num_clamped" in targets:
            self._num_clamped.update_state(targets["num_clamped"])
        if count is None:
            positions = self.normalization == "positions"
            count = ops.ones_like(weights) if positions else weights
        return mean_loss(total, count)

    def loss_counts(self, batch):
        """How many positions of each row the means of the loss are over.

        Args:
            batch: dict of the NumPy arrays of a batch.

        Returns:
            A dict of NumPy arrays (B,), with `"tokens"` in it.

        Raises:
            ValueError: if that is known only once the corruption has drawn.
        """
        if self.normalization == "positions":
            rows, length = batch["token_ids"].shape
            return {"tokens": np.full(rows, self.output["labels"].shape[1] or length)}
        return {"tokens": self.predicted_tokens(batch)}

    def predicted_tokens(self, batch):
        """Of each row, how many tokens will be predicted: NumPy (B,)."""
        raise ValueError(
            f"How many tokens {type(self).__name__} predicts is known only once they "
            "are drawn, and gradient accumulation needs to know it before: use larger "
            "batches without accumulation."
        )

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
            "normalization": self.normalization,
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

    def _set_schedule(self, total_steps, start_step=0):
        schedule = warmup_linear_decay(
            self._schedule["learning_rate"],
            self._schedule["warmup"],
            total_steps,
            start_step,
            self._schedule.get("warmup_form", "override"),
        )
        optimizer = innermost(self.optimizer)
        if optimizer._learning_rate.get_config() != schedule.get_config():
            optimizer.learning_rate = schedule
            # A compiled step holds the old schedule's numbers.
            self.train_function = None
