"""The learning-rate schedule of the official recipes, as long as the training."""

import keras

from keras_tta.training import WarmupLinearDecay


def warmup_linear_decay(
    learning_rate, warmup, total_steps, start_step=0, warmup_form="override"
):
    """The schedule, with a `warmup` that is a share of it if below 1, else steps."""
    steps = round(warmup * total_steps) if warmup < 1 else int(warmup)
    return WarmupLinearDecay(
        learning_rate, steps, total_steps, start_step=start_step, warmup=warmup_form
    )


@keras.saving.register_keras_serializable(package="keras_tta")
class UnknownLength(keras.optimizers.schedules.LearningRateSchedule):
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
