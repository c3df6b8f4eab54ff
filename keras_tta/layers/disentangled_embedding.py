"""A table shared without its gradient, as DeBERTaV3 shares a generator's.

Axes: B batch, T length, D width of the table, V vocabulary.
"""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="keras_tta")
class DisentangledEmbedding(keras.layers.ReversibleEmbedding):
    """Another embedding's table, held constant, plus a table of its own.

    `E = stop_gradient(E_shared) + E_own`, and `E_own` starts at zero: gradient-
    disentangled embedding sharing (He et al., ICLR 2023, arXiv 2111.09543, section
    3.3). It follows what the other embedding learns and teaches it nothing. Weight
    decay draws it to the other; an optimizer leaves it out by its name,
    `own_embeddings`.

    Args:
        shared: a `keras.layers.Embedding` of V rows of width D.
        name, dtype, trainable: as for every layer.

    Call arguments:
        inputs: (B, T) integers; or (B, T, D) with `reverse=True`.
        reverse: whether to multiply with the table instead. Defaults to `False`.

    Returns:
        (B, T, D) in the compute dtype; in reverse logits (B, T, V).

    Example:
    ```python
    import keras
    import numpy as np
    from keras_tta.layers import DisentangledEmbedding

    shared = keras.layers.Embedding(10, 4)
    embedding = DisentangledEmbedding(shared)
    ids = np.array([[3, 7]])
    difference = embedding(ids) - shared(ids)
    assert not keras.ops.convert_to_numpy(difference).any()
    ```
    """

    def __init__(self, shared, name=None, dtype=None, trainable=True):
        super().__init__(
            shared.input_dim,
            shared.output_dim,
            name=name,
            dtype=dtype,
            trainable=trainable,
        )
        self.shared = shared

    def build(self, input_shape=None):
        if not self.shared.built:
            self.shared.build(input_shape)
        self._embeddings = self.add_weight(
            shape=(self.input_dim, self.output_dim),
            initializer="zeros",
            name="own_embeddings",
        )
        self.built = True

    @property
    def own(self):
        """The variable `E_own`."""
        return self._embeddings

    @property
    def embeddings(self):
        shared = ops.convert_to_tensor(self.shared.embeddings)
        return ops.stop_gradient(shared) + super().embeddings

    def save_own_variables(self, store):
        # Under a name of its own: no plain embedding shall take it for a whole table.
        store["own"] = self.own

    def load_own_variables(self, store):
        self.own.assign(store["own"])

    def get_config(self):
        shared = keras.saving.serialize_keras_object(self.shared)
        return {**keras.layers.Layer.get_config(self), "shared": shared}

    @classmethod
    def from_config(cls, config):
        shared = keras.saving.deserialize_keras_object(config["shared"])
        return cls(**{**config, "shared": shared})
