"""The contextual encoder of BERT and its relatives, under any visibility rule."""

import keras
import keras_hub

from keras_tta.checks import (
    check_heads,
    check_initializer_name,
    check_positive_integers,
)
from keras_tta.layers import TransformerEmbedding, TransformerEncoder, VisibilityMask
from keras_tta.layers.sublayers import bert_initializer
from keras_tta.models.inputs import backbone_inputs, visible_keys
from keras_tta.models.layout_map import get_layout_map
from keras_tta.models.siblings import Siblings
from keras_tta.visibility import All


@keras.saving.register_keras_serializable(package="keras_tta")
class TransformerBackbone(Siblings, keras_hub.models.Backbone):
    """The Transformer encoder of Devlin et al. (2019): BERT, or with `Causal()` a GPT.

    Every layer reads what the layer before has made of the text. Post-norm, exact GELU
    and an epsilon of 1e-12 make it Hugging Face's BERT to the last digits; the pooler,
    which no token prediction needs, is left out. A rule that hides self does
    not keep a token from itself here, see `keras_tta.layers.TransformerEncoder`.

    Args:
        vocabulary_size: V.
        num_layers: number of layers.
        num_heads: number of attention heads; must divide `hidden_dim`.
        hidden_dim: D.
        intermediate_dim: width of the feed-forward layers.
        max_sequence_length: longest input, specials included. Defaults to 512.
        dropout: share dropped in training. Defaults to 0.1.
        embedding_dim: width of the embedding tables. If it is not `hidden_dim`, the
            default, a linear layer follows them, as in ELECTRA's small model.
        num_segments: number of segments that have an embedding: 2 in BERT, whose inputs
            may be pairs. Defaults to 0, for no such input.
        visibility: who sees whom. Defaults to `All()`.
        layer_norm_epsilon: defaults to 1e-12.
        kernel_initializer: the name of a Keras initializer, or `"bert"` for BERT's
            truncated normal of standard deviation 0.02. Defaults to `"lecun_normal"`.
        dtype: a dtype or policy for computations and weights.
        sibling: a backbone of the same sizes whose layers to use.
        embeddings: another model's `TransformerEmbedding`, to share it. It is not part
            of the config: who shares it shares it anew.

    Call arguments:
        inputs: a dict of `token_ids` (B, T) integers and `padding_mask` (B, T), true or
            1 at real tokens; also `segment_ids` if `num_segments` is not 0, and
            `segment_ids`, `position_ids` or `word_ids` where the rule needs them.

    Returns:
        Hidden states (B, T, D).

    Raises:
        ValueError: if a size is out of range, the input longer than
            `max_sequence_length`, or `segment_ids` would mean two things: a pair's
            sentences and the sequences of a packed row.

    Example:
    ```python
    import numpy as np
    from keras_tta.models import TransformerBackbone
    from keras_tta.visibility import Causal

    backbone = TransformerBackbone(
        vocabulary_size=30,
        num_layers=2,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=16,
        visibility=Causal(),
    )
    inputs = {
        "token_ids": np.array([[3, 12, 17, 9, 1, 0]]),
        "padding_mask": np.array([[1, 1, 1, 1, 1, 0]]),
    }
    assert tuple(backbone(inputs).shape) == (1, 6, 8)
    ```
    """

    static_key_value = False
    get_layout_map = staticmethod(get_layout_map)

    def __init__(
        self,
        vocabulary_size,
        num_layers,
        num_heads,
        hidden_dim,
        intermediate_dim,
        max_sequence_length=512,
        dropout=0.1,
        embedding_dim=None,
        num_segments=0,
        visibility=None,
        layer_norm_epsilon=1e-12,
        kernel_initializer="lecun_normal",
        dtype=None,
        sibling=None,
        embeddings=None,
        **kwargs,
    ):
        check_positive_integers(self, num_heads=num_heads, hidden_dim=hidden_dim)
        check_heads(hidden_dim, num_heads)
        check_initializer_name(kernel_initializer)
        embedding_dim = hidden_dim if embedding_dim is None else embedding_dim
        visibility = VisibilityMask(visibility or All(), name="visibility")
        if num_segments and "segment_ids" in visibility.rule.needs:
            raise ValueError(
                "`segment_ids` cannot name both the sentences of a pair, which have an "
                "embedding, and the sequences of a packed row, which do not see each "
                f"other. Received: num_segments={num_segments} and "
                f"visibility={visibility.rule!r}. For packed rows use num_segments=0."
            )

        # === Layers ===
        projection = None
        if embeddings is None and sibling is None:
            embeddings = TransformerEmbedding(
                vocabulary_size,
                embedding_dim,
                max_sequence_length,
                num_segments=num_segments,
                dropout=dropout,
                layer_norm_epsilon=layer_norm_epsilon,
                dtype=dtype,
                name="embeddings",
            )
        elif embeddings is not None:
            _check_shared(
                embeddings,
                vocabulary_size=vocabulary_size,
                hidden_dim=embedding_dim,
                max_sequence_length=max_sequence_length,
                num_segments=num_segments,
                layer_norm_epsilon=layer_norm_epsilon,
            )
        self.embeddings = sibling.embeddings if embeddings is None else embeddings
        if sibling is not None:
            self.encoder = sibling.encoder
            projection = sibling.embedding_projection
        else:
            if embedding_dim != hidden_dim:
                projection = keras.layers.Dense(
                    hidden_dim,
                    kernel_initializer=bert_initializer(kernel_initializer),
                    dtype=dtype,
                    name="embedding_projection",
                )
            self.encoder = TransformerEncoder(
                num_layers,
                num_heads,
                intermediate_dim,
                dropout=dropout,
                layer_norm_epsilon=layer_norm_epsilon,
                kernel_initializer=kernel_initializer,
                dtype=dtype,
                name="encoder",
            )
        self.embedding_projection = projection
        self.token_embedding = self.embeddings.token_embedding

        # === Functional Model ===
        inputs = backbone_inputs(
            visibility.rule, *(["segment_ids"] if num_segments else [])
        )
        hidden = self.embeddings(
            inputs["token_ids"],
            position_ids=inputs.get("position_ids"),
            segment_ids=inputs["segment_ids"] if num_segments else None,
        )
        if projection is not None:
            hidden = projection(hidden)
        hidden = self.encoder(hidden, visible_keys(visibility, inputs))
        super().__init__(inputs=inputs, outputs=hidden, dtype=dtype, **kwargs)

        # === Config ===
        self.vocabulary_size = vocabulary_size
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.hidden_dim = hidden_dim
        self.intermediate_dim = intermediate_dim
        self.max_sequence_length = max_sequence_length
        self.embedding_dim = embedding_dim
        self.num_segments = num_segments
        self.dropout = float(dropout)
        self.visibility = visibility.rule
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = kernel_initializer
        self._join_family(sibling if embeddings is None else None)

    def with_embeddings(self, embeddings, name=None):
        """The same layers on other embeddings, such as those of another model.

        Args:
            embeddings: a `keras_tta.layers.TransformerEmbedding` of the same sizes.
            name: defaults to this model's.

        Returns:
            A `TransformerBackbone` that shares all its other weights with this one.
        """
        return type(self)(
            **{**self._sibling_config(self.visibility), "name": name or self.name},
            sibling=self,
            embeddings=embeddings,
        )

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
            "embedding_dim": self.embedding_dim,
            "num_segments": self.num_segments,
            "visibility": keras.saving.serialize_keras_object(self.visibility),
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": self.kernel_initializer,
        }


def _check_shared(embeddings, **wanted):
    """Raise unless shared embeddings have the sizes that the model was to have."""
    for name, value in wanted.items():
        received = getattr(embeddings, name)
        if received != value:
            ours = "embedding_dim" if name == "hidden_dim" else name
            raise ValueError(
                f"The shared embeddings have {name}={received}, this model {ours}="
                f"{value}: models that share embeddings need the same {ours}. Their "
                "hidden_dim may differ: a projection follows the embeddings."
            )
