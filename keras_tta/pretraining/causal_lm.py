"""GPT's objective: the causal language model."""

import keras
from keras import ops

from keras_tta.models.heads import token_prediction_head
from keras_tta.pretraining.packing import training_backbone
from keras_tta.pretraining.pretrainer import Pretrainer
from keras_tta.visibility_questions import looks_right


@keras.saving.register_keras_serializable(package="keras_tta")
class CausalLM(Pretrainer):
    """Predicts every next token from those up to now (GPT).

    Nothing is corrupted: the rule keeps the future from a token, and its output
    predicts the token after it. The first token of a row, [SOS], is predicted from
    nothing and so not at all; [EOS] is. The loss is the mean negative log-likelihood,
    in nats, over predicted tokens; reported `nats_per_token`, `accuracy` and
    `perplexity` leave specials out.

    Args:
        backbone: usually a `keras_tta.models.TransformerBackbone` under `Causal()`.
        special_token_ids: ids that reported figures leave out. Defaults to those of
            [PAD], [EOS], [SOS] and [MASK] in T-TA's vocabulary, (0, 1, 3, 4).
        packed: whether rows hold several sequences. Training then takes `segment_ids`
            and `position_ids` too, no sequence sees another, and the last token of one
            does not predict the first of the next; `backbone` and `language_model`
            stay as they are. Defaults to `False`.

    Call arguments:
        inputs: the backbone's inputs, and `segment_ids` and `position_ids` if packed.

    Returns:
        A dict of `hidden` (B, T, D), `labels` and `weights` (B, T), where those of the
        last position are 0. For logits call `language_model`: those at a position are
        of the token that follows.

    Raises:
        ValueError: if the backbone's rule shows any query a later key.

    Example:
    ```python
    import numpy as np
    from keras_tta.models import TransformerBackbone
    from keras_tta.pretraining import CausalLM
    from keras_tta.visibility import Causal

    backbone = TransformerBackbone(
        vocabulary_size=30,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=8,
        visibility=Causal(),
    )
    pretrainer = CausalLM(backbone)
    pretrainer.compile()

    batch = {
        "token_ids": np.random.default_rng(0).integers(5, 30, (64, 8)),
        "padding_mask": np.ones((64, 8), bool),
    }
    history = pretrainer.fit(batch, epochs=2, verbose=0)
    assert history.history["nats_per_token"][-1] < 4
    assert tuple(pretrainer.language_model(batch).shape) == (64, 8, 30)
    ```
    """

    perplexity_name = "perplexity"

    def __init__(
        self, backbone, special_token_ids=(0, 1, 3, 4), packed=False, **kwargs
    ):
        if looks_right(backbone.visibility, backbone.max_sequence_length):
            raise ValueError(
                "A causal language model needs a rule under which no token sees a "
                "later one, such as `Causal()`: otherwise the next token is simply "
                f"copied. Received: visibility={backbone.visibility!r}"
            )
        reader = training_backbone(backbone, packed)
        inputs = reader.input
        is_real = ops.cast(inputs["padding_mask"], "bool")
        predicts = ops.logical_and(is_real, _next(is_real))
        if "segment_ids" in reader.visibility.needs:
            segment = inputs["segment_ids"]
            predicts = ops.logical_and(predicts, ops.equal(segment, _next(segment)))
        targets = {
            "hidden": reader(inputs),
            "labels": _next(inputs["token_ids"]),
            "weights": ops.cast(predicts, "float32"),
        }
        super().__init__(
            backbone,
            token_prediction_head(backbone),
            inputs,
            targets,
            special_token_ids,
            **kwargs,
        )
        self.packed = packed

    def predicted_tokens(self, batch):
        is_real = batch["padding_mask"] != 0
        predicts = is_real[:, :-1] & is_real[:, 1:]
        if self.packed:
            segment = batch["segment_ids"]
            predicts &= segment[:, :-1] == segment[:, 1:]
        return predicts.sum(axis=1)

    def get_config(self):
        return {
            **super().get_config(),
            "special_token_ids": self.special_token_ids,
            "packed": self.packed,
        }


def _next(x):
    """What follows each position of (B, T); 0 or false after the last."""
    following = ops.pad(ops.cast(x[:, 1:], "int32"), [[0, 0], [0, 1]])
    return ops.cast(following, x.dtype)
