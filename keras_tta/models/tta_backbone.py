"""The T-TA backbone: every position read from all the others, in one pass."""

import keras
import keras_hub

from keras_tta.checks import (
    check_heads,
    check_initializer_name,
    check_positive_integers,
)
from keras_tta.layers import SharedKVEncoder, TTAEmbedding, VisibilityMask
from keras_tta.models.inputs import backbone_inputs, visible_keys
from keras_tta.models.layout_map import get_layout_map
from keras_tta.models.siblings import Siblings
from keras_tta.visibility import NotSelf


@keras.saving.register_keras_serializable(package="keras_tta")
class TTABackbone(Siblings, keras_hub.models.Backbone):
    """The Transformer-based text autoencoder of Shin et al. (ACL 2020).

    The output at a position is read from every token the visibility rule shows, in
    one pass and at any depth without the token itself: queries start from positions
    alone and read, in every layer, the same static token and position
    embeddings, with the diagonal hidden.

    Args:
        vocabulary_size: V.
        num_layers: number of layers.
        num_heads: number of attention heads; must divide `hidden_dim`.
        hidden_dim: D.
        intermediate_dim: width of the feed-forward layers.
        max_sequence_length: longest input, specials included. Defaults to 128.
        dropout: share dropped in training, wherever the authors drop. Defaults to 0.1.
        query: `"mask"`, queries start from the mask token's embedding plus position as
            in the authors' code, or `"position"`, from position alone as in the
            paper's figure 2. Defaults to `"mask"`.
        mask_token_id: the mask token of `query="mask"`. Defaults to 4.
        visibility: who sees whom. Defaults to `NotSelf()`.
        layer_norm_epsilon: defaults to 1e-12.
        kernel_initializer: the name of a Keras initializer, or `"bert"` for the
            authors' truncated normal of standard deviation 0.02. Defaults to
            `"lecun_normal"`, which keeps the scale of activations at any width: 0.02
            leaves the attention of narrow models uniform for a long time.
        dtype: a dtype or policy for computations and weights.

    Call arguments:
        inputs: a dict of `token_ids` (B, T) integers and `padding_mask` (B, T), true or
            1 at real tokens; also `segment_ids`, `position_ids` or `word_ids`, (B, T)
            integers, where the rule needs them.

    Returns:
        Hidden states (B, T, D).

    Raises:
        ValueError: if a size is out of range or the input longer than
            `max_sequence_length`.

    Example:
    ```python
    import numpy as np
    from keras_tta.models import TTABackbone
    from keras_tta.visibility import Causal

    backbone = TTABackbone(
        vocabulary_size=30,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=16,
    )
    inputs = {
        "token_ids": np.array([[3, 12, 17, 9, 1, 0]]),
        "padding_mask": np.array([[1, 1, 1, 1, 1, 0]]),
    }
    assert tuple(backbone(inputs).shape) == (1, 6, 8)

    # The same layers, reading only what lies to the left:
    left = backbone.with_visibility(Causal(strict=True))
    assert left.layers[-1] is backbone.layers[-1]
    ```
    """

    static_key_value = True
    get_layout_map = staticmethod(get_layout_map)

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        max_sequence_length=128,
        dropout=0.1,
        query="mask",
        mask_token_id=4,
        visibility=None,
        layer_norm_epsilon=1e-12,
        kernel_initializer="lecun_normal",
        dtype=None,
        sibling=None,
        **kwargs,
    ):
        check_positive_integers(self, num_heads=num_heads, hidden_dim=hidden_dim)
        check_heads(hidden_dim, num_heads)
        check_initializer_name(kernel_initializer)
        visibility = VisibilityMask(visibility or NotSelf(), name="visibility")

        # === Layers ===
        if sibling is None:
            self.embeddings = TTAEmbedding(
                vocabulary_size,
                hidden_dim,
                max_sequence_length,
                query=query,
                mask_token_id=mask_token_id,
                dropout=dropout,
                layer_norm_epsilon=layer_norm_epsilon,
                dtype=dtype,
                name="embeddings",
            )
            self.encoder = SharedKVEncoder(
                num_layers,
                num_heads,
                intermediate_dim,
                dropout=dropout,
                layer_norm_epsilon=layer_norm_epsilon,
                kernel_initializer=kernel_initializer,
                dtype=dtype,
                name="encoder",
            )
        else:
            self.embeddings = sibling.embeddings
            self.encoder = sibling.encoder
        self.token_embedding = self.embeddings.token_embedding

        # === Functional Model ===
        inputs = backbone_inputs(visibility.rule)
        visible = visible_keys(visibility, inputs)
        query_stream, key_value = self.embeddings(
            inputs["token_ids"], position_ids=inputs.get("position_ids")
        )
        hidden = self.encoder(query_stream, key_value, visible)
        super().__init__(inputs=inputs, outputs=hidden, dtype=dtype, **kwargs)

        # === Config ===
        self.vocabulary_size = vocabulary_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.max_sequence_length = max_sequence_length
        self.dropout = float(dropout)
        self.query = query
        self.mask_token_id = mask_token_id
        self.visibility = visibility.rule
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = kernel_initializer
        self._join_family(sibling)

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "num_layers": self.num_layers,
            "num_heads": self.num_heads,
            "hidden_dim": self.hidden_dim,
            "intermediate_dim": self.intermediate_dim,
            "max_sequence_length": self.max_sequence_length,
            "dropout": self.dropout,
            "query": self.query,
            "mask_token_id": self.mask_token_id,
            "visibility": keras.saving.serialize_keras_object(self.visibility),
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": self.kernel_initializer,
        }
