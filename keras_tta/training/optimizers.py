"""Optimizers as the official pretraining codes define them."""

import keras
from keras import ops

from keras_tta.training.gradients import dense


@keras.saving.register_keras_serializable(package="keras_tta")
class AdamWeightDecay(keras.optimizers.Optimizer):
    """Adam with decoupled weight decay and, by default, no bias correction.

    The optimizer of the official BERT, T-TA and ELECTRA codes. Every step does

    ```
    m += (1 - beta_1) * (g - m)
    v += (1 - beta_2) * (g * g - v)
    p -= learning_rate * (m / (sqrt(v) + epsilon) + weight_decay * p)
    ```

    It differs from `keras.optimizers.AdamW` in having no bias correction, in
    leaving biases and normalisation weights undecayed, in clipping by the global
    norm, and in its defaults. Repeated token ids count fully: the sparse gradients
    that TensorFlow makes for an embedding are summed before they are clipped or
    squared.

    Args:
        learning_rate: float or `keras.optimizers.schedules.LearningRateSchedule`.
            Defaults to 1e-4, T-TA's peak.
        weight_decay: float or None (no decay). Defaults to 0.01.
        beta_1: float. Decay rate of the first moment. Defaults to 0.9.
        beta_2: float. Decay rate of the second moment. Defaults to 0.999.
        epsilon: float. Added to the square root. Defaults to 1e-6.
        bias_correction: bool. Whether moments are corrected for having begun at zero,
            as in Adam's paper. Without it, as in the official codes, the first
            thousand or so steps are up to three times as long; that needs a long
            warm-up or a low rate. Defaults to False.
        global_clipnorm: float or None. All gradients are scaled together so that
            their joint norm is at most this. Defaults to 1.0.
        no_decay: tuple of regular expressions. A variable whose `name` (not its
            path) matches one is not decayed. Defaults to
            `("bias", "gamma", "beta", "scale")`: biases and normalisation weights.
        **kwargs: the remaining arguments of `keras.optimizers.Optimizer`, such as
            `use_ema` and `gradient_accumulation_steps`. To clip otherwise, pass
            `global_clipnorm=None` with `clipnorm` or `clipvalue`.

    Reference:
        `optimization.py` of google-research/bert and
        `model/optimization.py` of google-research/electra.

    Example:

    ```python
    import keras
    import keras_tta

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    schedule = keras_tta.training.WarmupLinearDecay(
        1e-4, warmup_steps=10, total_steps=100
    )
    model.compile(keras_tta.training.AdamWeightDecay(schedule), loss="mse")
    ```
    """

    def __init__(
        self,
        learning_rate=1e-4,
        weight_decay=0.01,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        bias_correction=False,
        global_clipnorm=1.0,
        no_decay=("bias", "gamma", "beta", "scale"),
        **kwargs,
    ):
        super().__init__(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            global_clipnorm=global_clipnorm,
            **kwargs,
        )
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.bias_correction = bias_correction
        # A plain string would be read as a tuple of letters.
        self.no_decay = (no_decay,) if isinstance(no_decay, str) else tuple(no_decay)
        self.exclude_from_weight_decay(var_names=self.no_decay)

    def build(self, variables):
        if self.built:
            return
        super().build(variables)
        self._momentums, self._velocities = self.add_optimizer_variables(
            variables, ["momentum", "velocity"]
        )

    def apply(self, grads, trainable_variables=None):
        # Norms and squares are to be those of the sums of an embedding's rows.
        super().apply(dense(grads), trainable_variables)

    def _apply_weight_decay(self, variables):
        # Keras on PyTorch fails on an empty list: say, when only biases are trained.
        variables = [v for v in variables if self._use_weight_decay(v)]
        if variables:
            super()._apply_weight_decay(variables)

    def update_step(self, gradient, variable, learning_rate):
        gradient = ops.cast(gradient, variable.dtype)
        learning_rate = ops.cast(self._corrected(learning_rate), variable.dtype)
        index = self._get_variable_index(variable)
        m, v = self._momentums[index], self._velocities[index]
        self.assign_add(m, (gradient - m) * (1 - self.beta_1))
        self.assign_add(v, (ops.square(gradient) - v) * (1 - self.beta_2))
        self.assign_sub(variable, learning_rate * m / (ops.sqrt(v) + self.epsilon))

    def _corrected(self, learning_rate):
        if not self.bias_correction:
            return learning_rate
        step = ops.cast(self.iterations + 1, "float32")
        velocity_share = 1 - ops.power(self.beta_2, step)
        return (
            learning_rate
            * ops.sqrt(velocity_share)
            / (1 - ops.power(self.beta_1, step))
        )

    def _backend_update_step(self, grads, trainable_variables, learning_rate):
        # Without a compiler, a Python loop over small operations is what PyTorch
        # would spend its time on: Keras's own optimizers are fused the same way.
        if keras.backend.backend() != "torch":
            return super()._backend_update_step(
                grads, trainable_variables, learning_rate
            )
        import torch

        with torch.no_grad():
            indices = [self._get_variable_index(p) for p in trainable_variables]
            m = [self._momentums[i].value for i in indices]
            v = [self._velocities[i].value for i in indices]
            torch._foreach_lerp_(m, grads, 1 - self.beta_1)
            torch._foreach_mul_(v, self.beta_2)
            torch._foreach_addcmul_(v, grads, grads, value=1 - self.beta_2)
            update = torch._foreach_sqrt(v)
            torch._foreach_add_(update, self.epsilon)
            torch._foreach_reciprocal_(update)
            torch._foreach_mul_(update, m)
            learning_rate = ops.convert_to_tensor(self._corrected(learning_rate))
            torch._foreach_mul_(update, learning_rate)
            torch._foreach_sub_([p.value for p in trainable_variables], update)

    def get_config(self):
        config = super().get_config()
        config.update(
            {
                "beta_1": self.beta_1,
                "beta_2": self.beta_2,
                "epsilon": self.epsilon,
                "bias_correction": self.bias_correction,
                "no_decay": self.no_decay,
            }
        )
        return config
