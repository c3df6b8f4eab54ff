"""Steps whose gradients are no numbers: skipped, counted, named, and recovered from."""

import contextlib
import warnings

import keras
import numpy as np
from keras import ops

from keras_tta.checks import check_positive_integers
from keras_tta.training.gradients import built_optimizer, dense
from keras_tta.training.replicas import replica_count, sum_over_replicas

# The optimizer variables that the guard adds.
COUNTERS = ("skipped_steps", "skipped_in_a_row", "skipped_numbers")
_REMEMBERED = 16


class NonFiniteGuard(keras.callbacks.Callback):
    """Skip the update of a step whose gradients are not all finite, on the device.

    Such a step changes no weight and no optimizer variable but the count of steps, so
    that learning-rate schedules end when they should. How many an epoch had is in its
    logs as `skipped_steps`, and a warning names the steps: with a
    `keras_tta.data.TokenBatches` as data, `batches.batch(step)` is what was read.
    Metrics that became NaN begin anew at the next look, and tell of the rest of the
    epoch; where it ends before, its logs are NaN.

    Every `patience` steps, and at an epoch's end, it looks at the counts. If the last
    `patience` steps or more were such, weights and optimizer go back to the last
    `checkpoint`, and on with the data that follow; if that does not help, to the one
    before. That is after fewer than twice `patience` bad steps; a series that has ended
    when it looks needs no help.

    The gradients decide: of a loss that is no number, they are none either. It works
    with every Keras optimizer but `LossScaleOptimizer`, which skips by itself, and
    costs a sum over the gradients. Where gradients are accumulated or TensorFlow
    distributes the training, a bad batch counts as gradients of 0 instead.

    Args:
        checkpoint: a `TrainingCheckpoint` of the same `fit`, or None.
        patience: int. Steps in a row, and steps between two looks at the counts.
            Defaults to 10.

    Raises:
        ValueError: an argument is none of these; or when training begins, if the model
            is not built or its optimizer is a `LossScaleOptimizer`.
        FloatingPointError: `patience` steps in a row are skipped, and there is no
            checkpoint (any more) to go back to.

    Example:

    ```python
    import keras
    import keras_tta
    import numpy as np

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", loss="mse")
    x, y = np.ones((8, 4)), np.ones((8, 1))
    x[5] = np.nan
    guard = keras_tta.training.NonFiniteGuard()
    history = model.fit(x, y, batch_size=2, verbose=0, callbacks=[guard])
    assert history.history["skipped_steps"] == [1]
    assert np.isfinite(model.get_weights()[0]).all()
    ```
    """

    def __init__(self, checkpoint=None, patience=10):
        super().__init__()
        check_positive_integers(self, patience=patience)
        if checkpoint is not None and not hasattr(checkpoint, "roll_back"):
            raise ValueError(
                "`checkpoint` of NonFiniteGuard must be the `TrainingCheckpoint` of "
                f"the same `fit`, or None. Received: checkpoint={checkpoint!r}"
            )
        self._checkpoint = checkpoint
        self._patience = patience

    def set_model(self, model):
        super().set_model(model)
        # Before Keras compiles the step.
        skip_non_finite(model)

    def on_train_begin(self, logs=None):
        self._seen = self._epoch_seen = self._read("skipped_steps")
        self._steps = 0
        self._below = None

    def on_epoch_begin(self, epoch, logs=None):
        if self._steps == 0:
            # A checkpoint's, perhaps.
            self._seen = self._epoch_seen = self._read("skipped_steps")

    def on_train_batch_begin(self, batch, logs=None):
        if self._steps and self._steps % self._patience == 0:
            self._look()
        self._steps += 1

    def on_epoch_end(self, epoch, logs=None):
        self._look()
        if logs is not None:
            logs["skipped_steps"] = self._seen - self._epoch_seen
        self._epoch_seen = self._seen

    def _look(self):
        skipped, in_a_row = map(self._read, ("skipped_steps", "skipped_in_a_row"))
        if skipped > self._seen:
            self._warn(skipped - self._seen)
            self._seen = skipped
            for metric in self.model.metrics:
                values = [ops.convert_to_numpy(v) for v in metric.variables]
                if not all(np.isfinite(value).all() for value in values):
                    metric.reset_state()
        if in_a_row >= self._patience:
            self._recover(in_a_row)
        else:
            self._below = None

    def _warn(self, count):
        shown = min(count, _REMEMBERED)
        # The latest comes last.
        numbers = np.roll(self._read("skipped_numbers"), -self._read("skipped_steps"))
        steps = ", ".join(str(number) for number in numbers[-shown:])
        more = "the last " if count > shown else ""
        warnings.warn(
            f"The gradients of {count} steps were not finite, and no update was made: "
            f"{more}{steps}.",
            stacklevel=2,
        )

    def _recover(self, in_a_row):
        self._counter("skipped_in_a_row").assign(0)
        step = None
        if self._checkpoint is not None:
            step = self._checkpoint.roll_back(self._below)
        if step is None:
            raise FloatingPointError(
                f"{in_a_row} steps in a row had gradients that are not finite, and "
                "there is no checkpoint to go back to. A lower learning rate or a "
                "longer warm-up may help; mixed_float16 needs a loss scale."
            )
        self._below = step
        warnings.warn(
            f"{in_a_row} steps in a row had gradients that are not finite: weights and "
            f"optimizer are those of step {step} again. The data go on.",
            stacklevel=2,
        )

    def _read(self, name):
        value = ops.convert_to_numpy(self._counter(name))
        return int(value) if value.ndim == 0 else value

    def _counter(self, name):
        # Not kept: on JAX, asking for the model is what hands the variables back.
        return self.model.optimizer._non_finite_counters[name]


def skip_non_finite(model):
    """Make a model's optimizer skip updates whose gradients are not all finite."""
    optimizer = model.optimizer
    if isinstance(optimizer, keras.optimizers.LossScaleOptimizer):
        raise ValueError(
            "A LossScaleOptimizer skips steps whose gradients are not finite by "
            "itself, and NonFiniteGuard has nothing to do: leave the guard out."
        )
    if not model.built:
        raise ValueError("NonFiniteGuard needs a model that is built before `fit`.")
    built_optimizer(model)
    if hasattr(optimizer, "_non_finite_counters"):
        return
    strategy = getattr(model, "distribute_strategy", None)  # TensorFlow's
    with strategy.scope() if strategy else contextlib.nullcontext():
        counters = {
            name: optimizer.add_variable(
                shape,
                initializer="zeros",
                dtype="int",
                aggregation="only_first_replica",
                name=name,
            )
            for name, shape in zip(COUNTERS, [(), (), (_REMEMBERED,)], strict=True)
        }
    apply = optimizer.apply

    def guarded_apply(grads, trainable_variables=None):
        grads = list(grads)
        finite = _all_finite(grads)
        if replica_count() > 1:
            # All replicas skip together.
            bad = sum_over_replicas(ops.cast(ops.logical_not(finite), "int32"))
            finite = bad == 0
        _count(counters, finite, optimizer._iterations)
        if optimizer.gradient_accumulation_steps or (
            keras.backend.backend() == "tensorflow" and replica_count() > 1
        ):
            return apply(_or_zeros(finite, grads), trainable_variables)
        if keras.backend.backend() != "jax":

            def update():
                apply(grads, trainable_variables)

            def skip():
                optimizer._iterations.assign_add(1)

            return ops.cond(finite, update, skip)
        # Where state is passed along, nothing can be assigned in one branch alone.
        variables = [
            *(trainable_variables or model.trainable_variables),
            *(v for v in optimizer.variables if v is not optimizer._iterations),
        ]
        before = [variable.value for variable in variables]
        apply(grads, trainable_variables)
        for variable, value in zip(variables, before, strict=True):
            variable.assign(ops.where(finite, variable.value, value))

    optimizer.apply = guarded_apply
    optimizer._non_finite_counters = counters
    # What was compiled before knows nothing of it.
    model.train_function = None


def _all_finite(grads):
    grads = [grad for grad in grads if grad is not None]
    if keras.backend.backend() == "torch":
        import torch

        # A few kernels for all of them, in place of a few for each.
        norms = torch._foreach_norm(grads, float("inf"))
        return torch.isfinite(torch.stack(norms)).all()
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        # An embedding's gradient is a list of rows.
        grads = [g.values if isinstance(g, tf.IndexedSlices) else g for g in grads]
    return ops.all(ops.stack([ops.all(ops.isfinite(grad)) for grad in grads]))


def _or_zeros(finite, grads):
    return [
        None if grad is None else ops.where(finite, grad, 0) for grad in dense(grads)
    ]


def _count(counters, finite, iterations):
    skipped, in_a_row, numbers = (counters[name] for name in COUNTERS)
    bad = ops.cast(ops.logical_not(finite), skipped.dtype)
    slot = ops.arange(_REMEMBERED, dtype=skipped.dtype) == skipped % _REMEMBERED
    written = ops.logical_and(slot, ops.logical_not(finite))
    numbers.assign(ops.where(written, iterations.value, numbers.value))
    skipped.assign_add(bad)
    in_a_row.assign((in_a_row + 1) * bad)
