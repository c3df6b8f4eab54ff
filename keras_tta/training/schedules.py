"""Learning-rate schedules counted in steps."""

import keras
from keras import ops

from keras_tta.checks import check_not_negative, check_one_of


@keras.saving.register_keras_serializable(package="keras_tta")
class WarmupLinearDecay(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then linear decay to zero at `total_steps`.

    With step `t`, warm-up `W` and total `T`, the decay `peak * (1 - t / T)` runs
    from step 0 in both official forms, and they join the warm-up differently:

    - `warmup="override"` (BERT, T-TA): `peak * t / W` while `t < W`, the decay
      afterwards. The rate steps down by `peak * W / T` where they meet.
    - `warmup="multiply"` (ELECTRA): `peak * (1 - t / T) * min(1, t / W)`.

    Either is 0 at step 0, and 0 from step `T` on.

    Args:
        peak_learning_rate: float. What the warm-up rises to.
        warmup_steps: int from 0 (no warm-up) to `total_steps`.
        total_steps: int. Length of the whole schedule, warm-up included.
        start_step: int. The optimizer's step at which the schedule begins, for an
            optimizer that has made steps before. Defaults to 0.
        warmup: `"override"` or `"multiply"`. Defaults to `"override"`.
        name: string or None.

    Raises:
        ValueError: a number is out of range, or `warmup` is another word.

    Reference:
        `optimization.py` of google-research/bert;
        `model/optimization.py` of google-research/electra.

    Example:

    ```python
    import keras_tta

    schedule = keras_tta.training.WarmupLinearDecay(
        1e-4, warmup_steps=10, total_steps=100
    )
    assert float(schedule(0)) == 0.0
    assert abs(float(schedule(5)) - 0.5e-4) < 1e-9
    assert abs(float(schedule(50)) - 0.5e-4) < 1e-9
    assert float(schedule(100)) == 0.0
    ```
    """

    def __init__(
        self,
        peak_learning_rate,
        warmup_steps,
        total_steps,
        start_step=0,
        warmup="override",
        name=None,
    ):
        super().__init__()
        check_not_negative(
            self, peak_learning_rate=peak_learning_rate, start_step=start_step
        )
        check_one_of(self, ("override", "multiply"), warmup=warmup)
        if not total_steps >= 1:
            raise ValueError(
                "`total_steps` must be at least 1: epochs times steps per epoch, "
                f"warm-up included. Received: total_steps={total_steps!r}"
            )
        if not 0 <= warmup_steps <= total_steps:
            raise ValueError(
                "`warmup_steps` must lie between 0 and `total_steps`, of which it is "
                f"a part. Received: warmup_steps={warmup_steps!r}, "
                f"total_steps={total_steps!r}"
            )
        self.peak_learning_rate = peak_learning_rate
        self.warmup_steps = warmup_steps
        self.total_steps = total_steps
        self.start_step = start_step
        self.warmup = warmup
        self.name = name

    def __call__(self, step):
        # Subtracted as integers: float32 does not hold every step above 2**24.
        step = ops.convert_to_tensor(step) - self.start_step
        step = ops.cast(ops.clip(step, 0, self.total_steps), "float32")
        decay = 1.0 - step / self.total_steps
        rise = step / max(self.warmup_steps, 1)
        if self.warmup == "multiply":
            factor = decay * ops.minimum(rise, 1.0) if self.warmup_steps else decay
        else:
            factor = ops.where(step < self.warmup_steps, rise, decay)
        return self.peak_learning_rate * factor

    def get_config(self):
        return {
            "peak_learning_rate": self.peak_learning_rate,
            "warmup_steps": self.warmup_steps,
            "total_steps": self.total_steps,
            "start_step": self.start_step,
            "warmup": self.warmup,
            "name": self.name,
        }
