"""Replacement by samples: ELECTRA's corruption, drawn from a generator's predictions.

Axes: B batch, T sequence, K predictions a row, D model width, V vocabulary.
"""

import keras
import numpy as np
from keras import ops

from keras_tta.checks import check_positive, check_positive_integers
from keras_tta.layers.corruption.arrays import KerasArrays
from keras_tta.layers.corruption.draws import UNIT, Draws
from keras_tta.layers.corruption.seed_and_step import (
    add_seed_and_step,
    next_seed_and_step,
)


@keras.saving.register_keras_serializable(package="keras_tta")
class TokenSampler(keras.layers.Layer):
    """Draws a token for each masked position from what a head predicts there.

    A draw inverts the cumulative distribution at one uniform number a position, in
    float32 under every dtype policy: no noise a token, as Gumbel's method needs, and
    nothing that overflows. The uniforms are a hash of (seed, step, the row's tokens,
    position), as a `Masker`'s draws: fresh at every call in training, else fixed. Works
    through the K positions one after the other, so that the largest tensor is (B, V).
    No gradient passes.

    Args:
        head: a layer from hidden states (B, D) to logits (B, V).
        special_token_ids: ids that are never drawn. Defaults to none.
        temperature: divides the logits. Defaults to 1.0.
        temperature_decay_steps: None, the default, keeps the temperature. With n, it is
            `1 + (temperature - 1) exp(-step / n)` at a training step (Fast-ELECTRA,
            arXiv 2310.07347).
        disallow_correct: whether the label is never drawn. Defaults to False.
        seed: defaults to 0.

    Call arguments:
        hidden: (B, K, D), the generator's at the masked positions.
        positions, labels: int (B, K).
        token_ids: int (B, T), the row before it was masked.
        padding_mask: bool or int (B, T).
        training: whether to draw afresh.

    Returns:
        int32 (B, K).

    Raises:
        ValueError: if the temperature is not above 0, or an id not in the vocabulary.

    Example:
    ```python
    import keras
    import numpy as np
    from keras_tta.layers.corruption import TokenSampler

    logits = np.log([[[0.5, 0.5, 1e-9]]]).astype("float32")
    sampler = TokenSampler(keras.layers.Identity(), special_token_ids=(0,))
    one = np.ones((1, 1), "int32")
    sampled = sampler(logits, 0 * one, one, token_ids=one, padding_mask=one)
    assert int(sampled[0, 0]) == 1
    ```
    """

    def __init__(
        self,
        head,
        special_token_ids=(),
        temperature=1.0,
        temperature_decay_steps=None,
        disallow_correct=False,
        seed=0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive(self, temperature=temperature)
        if temperature_decay_steps is not None:
            check_positive_integers(
                self, temperature_decay_steps=temperature_decay_steps
            )
        self.head = head
        self.special_token_ids = tuple(int(i) for i in special_token_ids)
        self.temperature = temperature
        self.temperature_decay_steps = temperature_decay_steps
        self.disallow_correct = disallow_correct
        self.seed = int(seed)

    def build(self, hidden_shape, **shapes):
        if not self.head.built:
            self.head.build((hidden_shape[0], hidden_shape[-1]))
        self.state = add_seed_and_step(self, self.seed)
        self.built = True

    def call(self, hidden, positions, labels, token_ids, padding_mask, training=None):
        seed, step = next_seed_and_step(self.state, training)
        real = ops.cast(padding_mask, "int32") != 0
        draws = Draws(KerasArrays, KerasArrays.int32(token_ids), real, seed, step)
        units = draws.unit("sampled token", KerasArrays.int32(positions))
        temperature = self.temperature_now()
        columns = [
            ops.swapaxes(ops.stop_gradient(hidden), 0, 1),
            ops.transpose(ops.cast(labels, "int32")),
            ops.transpose(ops.cast(units, "float32") / UNIT),
        ]

        def draw(column):
            hidden, label, uniform = column
            logits = ops.cast(self.head(hidden), "float32") / temperature
            return inverse_cdf(logits, uniform, self._allowed(logits, label))

        return ops.stop_gradient(ops.transpose(ops.map(draw, columns)))

    def compute_output_spec(
        self, hidden, positions, labels, token_ids, padding_mask, training=None
    ):
        return keras.KerasTensor(positions.shape, dtype="int32")

    def temperature_now(self):
        """The temperature after the training calls that were made, float32."""
        if self.temperature_decay_steps is None:
            return ops.cast(self.temperature, "float32")
        share = ops.cast(self.state[1], "float32") / self.temperature_decay_steps
        return 1.0 + (self.temperature - 1.0) * ops.exp(-share)

    def get_config(self):
        return {
            **super().get_config(),
            "head": keras.saving.serialize_keras_object(self.head),
            "special_token_ids": self.special_token_ids,
            "temperature": self.temperature,
            "temperature_decay_steps": self.temperature_decay_steps,
            "disallow_correct": self.disallow_correct,
            "seed": self.seed,
        }

    @classmethod
    def from_config(cls, config):
        head = keras.saving.deserialize_keras_object(config["head"])
        return cls(**{**config, "head": head})

    def _allowed(self, logits, label):
        """Which tokens may be drawn, bool (B, V) or (1, V)."""
        size = logits.shape[-1]
        outside = [i for i in self.special_token_ids if not 0 <= i < size]
        if outside:
            raise ValueError(
                f"`special_token_ids` must lie in the vocabulary, 0 to {size - 1}. "
                f"Received: special_token_ids={outside}"
            )
        allowed = np.ones((1, size), bool)
        allowed[0, list(self.special_token_ids)] = False
        allowed = ops.convert_to_tensor(allowed)
        if self.disallow_correct:
            tokens = ops.expand_dims(ops.arange(size, dtype="int32"), 0)
            allowed = allowed & (tokens != ops.expand_dims(label, 1))
        return allowed


def inverse_cdf(logits, uniform, allowed):
    """The token where the cumulative softmax of the allowed logits passes `uniform`.

    Args:
        logits: float32 (B, V).
        uniform: float32 (B,), in [0, 1).
        allowed: bool, broadcastable to (B, V).

    Returns:
        int32 (B,), always an allowed token of positive probability if there is one.
    """
    logits = ops.where(allowed, logits, -1e30)
    weights = ops.exp(logits - ops.max(logits, axis=-1, keepdims=True))
    weights = ops.where(allowed, weights, 0.0)
    # A parallel sum need not be monotone in the last bit: a token of probability 0
    # could seem to pass, and the last one to fall short of the total.
    possible = weights > 0
    sums = ops.where(possible, ops.cumsum(weights, axis=-1), 0.0)
    total = ops.max(sums, axis=-1, keepdims=True)
    passes = (sums > ops.expand_dims(uniform, -1) * total) | (sums >= total)
    return ops.cast(ops.argmax(ops.cast(possible & passes, "int32"), -1), "int32")


def write_samples(token_ids, chosen, sampled):
    """Rows (B, T) with the j-th chosen position of each holding the j-th sample (B, K).

    Every position is written once at most, whatever the samples.
    """
    rank = ops.cumsum(chosen, axis=1) - 1
    written = ops.take_along_axis(sampled, ops.maximum(rank, 0), axis=1)
    return ops.where(ops.cast(chosen, "bool"), written, token_ids)
