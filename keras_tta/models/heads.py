"""The heads that go with a backbone, built and in its dtype."""

from keras_tta.layers import CopyHead, ReplacedTokenHead, TokenPredictionHead


def token_prediction_head(backbone, name="token_prediction_head", copy=False):
    """A built head over a backbone's token embedding, in its dtype.

    Args:
        backbone: a backbone of `keras_tta.models`.
        name: of the layer.
        copy: whether the head may take tokens over as they are read: a
            `keras_tta.layers.CopyHead` instead of a `TokenPredictionHead`. Defaults to
            `False`.

    Returns:
        The head, a layer from the backbone's output (B, T, D) to (B, T, V).

    Example:
    ```python
    import keras
    from keras_tta.models import TTABackbone, token_prediction_head

    backbone = TTABackbone(
        vocabulary_size=30,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    head = token_prediction_head(backbone)
    model = keras.Model(backbone.input, head(backbone.output))
    assert model.output_shape == (None, None, 30)
    ```
    """
    head = (CopyHead if copy else TokenPredictionHead)(
        backbone.token_embedding,
        layer_norm_epsilon=backbone.layer_norm_epsilon,
        kernel_initializer=backbone.kernel_initializer,
        dtype=backbone.dtype_policy,
        name=name,
    )
    head.build(backbone.output_shape)
    return head


def replaced_token_head(backbone):
    """A built head that finds replaced tokens, in a backbone's dtype.

    Args:
        backbone: a backbone of `keras_tta.models`.

    Returns:
        A `keras_tta.layers.ReplacedTokenHead`, a layer from the backbone's output
        (B, T, D) to logits (B, T).

    Example:
    ```python
    import keras
    from keras_tta.models import TransformerBackbone, replaced_token_head

    backbone = TransformerBackbone(
        vocabulary_size=30,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    head = replaced_token_head(backbone)
    detector = keras.Model(backbone.input, head(backbone.output))
    assert detector.output_shape == (None, None)
    ```
    """
    head = ReplacedTokenHead(
        backbone.kernel_initializer,
        dtype=backbone.dtype_policy,
        name="replaced_token_head",
    )
    head.build(backbone.output_shape)
    return head
