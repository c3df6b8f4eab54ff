"""T-TA's objective: language autoencoding."""

import keras
from keras import ops

from keras_tta.models.heads import token_prediction_head
from keras_tta.pretraining.packing import training_backbone
from keras_tta.pretraining.pretrainer import Pretrainer


@keras.saving.register_keras_serializable(package="keras_tta")
class LanguageAutoencoder(Pretrainer):
    """Predicts every token from all the others, in one pass (T-TA).

    Nothing is corrupted: the visibility rule alone keeps a token from itself, so every
    token teaches. The loss is the mean negative log-likelihood, in nats, over
    the real tokens, [SOS] and [EOS] included as in the code of Shin et al. (ACL
    2020); reported `nats_per_token`, `accuracy` and `pseudo_perplexity` leave specials
    out.

    Args:
        backbone: a `keras_tta.models.TTABackbone` whose rule hides self.
        special_token_ids: ids that reported figures leave out. Defaults to those of
            [PAD], [EOS], [SOS] and [MASK] in T-TA's vocabulary, (0, 1, 3, 4).
        normalization: `"tokens"` or, as in the official code, `"positions"`: padding
            counted in the denominator. Defaults to `"tokens"`.
        packed: whether rows hold several sequences. Training then takes `segment_ids`
            and `position_ids` too, and no sequence sees another; `backbone` and
            `language_model` stay as they are. Defaults to `False`.

    Call arguments:
        inputs: the backbone's inputs, and `segment_ids` and `position_ids` if packed.

    Returns:
        A dict of `hidden` (B, T, D), `labels` and `weights` (B, T). For logits call
        `language_model`, for hidden states `backbone`.

    Raises:
        ValueError: if the backbone's rule lets tokens see themselves, or its keys and
            values are contextual.

    Example:
    ```python
    import numpy as np
    from keras_tta.models import TTABackbone
    from keras_tta.pretraining import LanguageAutoencoder

    backbone = TTABackbone(
        vocabulary_size=30,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
        max_sequence_length=8,
    )
    pretrainer = LanguageAutoencoder(backbone)
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

    def __init__(
        self,
        backbone,
        special_token_ids=(0, 1, 3, 4),
        normalization="tokens",
        packed=False,
        **kwargs,
    ):
        if not backbone.visibility.hides_self:
            raise ValueError(
                "Language autoencoding needs a visibility rule that hides self, such "
                "as `NotSelf()`: otherwise every token is simply copied. "
                f"Received: visibility={backbone.visibility!r}"
            )
        if not getattr(backbone, "static_key_value", False):
            raise ValueError(
                "Language autoencoding needs static keys and values, as `TTABackbone` "
                "has them: where they are contextual, a hidden token comes back by way "
                f"of its neighbours. Received: a {type(backbone).__name__}"
            )
        reader = training_backbone(backbone, packed)
        inputs = reader.input
        targets = {
            "hidden": reader(inputs),
            "labels": inputs["token_ids"],
            "weights": ops.cast(inputs["padding_mask"], "float32"),
        }
        super().__init__(
            backbone,
            token_prediction_head(backbone),
            inputs,
            targets,
            special_token_ids,
            normalization,
            **kwargs,
        )
        self.packed = packed

    def get_config(self):
        return {
            **super().get_config(),
            "special_token_ids": self.special_token_ids,
            "normalization": self.normalization,
            "packed": self.packed,
        }
