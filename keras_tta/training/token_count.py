"""A metric that counts tokens."""

import keras
from keras import ops

_BLOCK = 2**20


@keras.saving.register_keras_serializable(package="keras_tta")
class TokenCount(keras.metrics.Metric):
    """Count the real tokens of an epoch, however many.

    `Progress` and `MetricsCSV` look for a metric of this name. `keras.metrics.Sum`
    would not do: its float32 stops counting exactly at 16.7 million, and on PyTorch its
    result changes when the metric is reset, so that an epoch's training tokens become
    those of its evaluation.

    `update_state(values)` adds up `values`: bool or int of any shape, such as a padding
    mask (B, T); at most 2**30 in one call. The result is a float32 scalar.

    Args:
        name: str. Defaults to `"tokens"`.

    Example:

    ```python
    import keras_tta
    import numpy as np

    tokens = keras_tta.training.TokenCount()
    tokens.update_state(np.array([[True, True, False]]))
    assert float(tokens.result()) == 2
    ```
    """

    def __init__(self, name="tokens"):
        super().__init__(name=name)
        # One int32 would end at two thousand million.
        self.blocks, self.rest = (
            self.add_variable((), initializer="zeros", dtype="int32", name=part)
            for part in ("blocks", "rest")
        )

    def update_state(self, values, sample_weight=None):
        if sample_weight is not None:
            raise ValueError(
                "TokenCount takes no `sample_weight`: pass it as `values`."
            )
        total = self.rest + ops.sum(ops.cast(values, "int32"))
        self.blocks.assign_add(total // _BLOCK)
        self.rest.assign(total % _BLOCK)

    def result(self):
        return ops.cast(self.blocks, "float32") * _BLOCK + ops.cast(
            self.rest, "float32"
        )

    def get_config(self):
        return {"name": self.name}
