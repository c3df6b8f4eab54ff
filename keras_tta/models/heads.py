"""The heads that go with a backbone, built and in its dtype."""

from keras_tta.layers import CopyHead, ReplacedTokenHead, TokenPredictionHead


def token_prediction_head(backbone, name="token_prediction_head", copy=False):
    """A built head over a backbone's token embedding, in its dtype."""
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
    """A built head that finds replaced tokens, in a backbone's dtype."""
    head = ReplacedTokenHead(
        backbone.kernel_initializer,
        dtype=backbone.dtype_policy,
        name="replaced_token_head",
    )
    head.build(backbone.output_shape)
    return head
