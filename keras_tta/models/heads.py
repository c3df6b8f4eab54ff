"""The head that a backbone's tokens are predicted with."""

from keras_tta.layers import TokenPredictionHead


def token_prediction_head(backbone):
    """A built head over a backbone's token embedding, in its dtype."""
    head = TokenPredictionHead(
        backbone.token_embedding,
        layer_norm_epsilon=backbone.layer_norm_epsilon,
        kernel_initializer=backbone.kernel_initializer,
        dtype=backbone.dtype_policy,
        name="token_prediction_head",
    )
    head.build(backbone.output_shape)
    return head
