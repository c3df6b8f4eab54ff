"""T-TA's objective: language autoencoding."""

import keras
from keras import ops

from keras_tta.models.heads import token_prediction_head
from keras_tta.pretraining.packing import training_backbone
from keras_tta.pretraining.pretrainer import Pretrainer
from keras_tta.pretraining.visibility_mix import read_under_mix


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
        visibility_mix: dict from names of rules (`keras_tta.visibility.named_rule`) to
            shares of sum 1, such as `{"others": 0.75, "word_left_to_right": 0.25}`:
            each row is trained under one of them, drawn at every step, so that a
            scorer's other rules are no news to the model. In evaluation a row always
            has the same rule. Rules by words need `word_ids`. `backbone` and
            `language_model` keep the backbone's rule. Defaults to `None`, that alone.
        seed: of the draws of the mix. Defaults to 0.

    Call arguments:
        inputs: the backbone's inputs, `segment_ids` and `position_ids` if packed, and
            `word_ids` if a rule of the mix needs them.

    Returns:
        A dict of `hidden` (B, T, D), `labels` and `weights` (B, T). For logits call
        `language_model`, for hidden states `backbone`.

    Raises:
        ValueError: if the backbone's rule lets tokens see themselves, its keys and
            values are contextual, or the mix names no rule or has other shares.

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
        visibility_mix=None,
        seed=0,
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
        if visibility_mix is None:
            reader = training_backbone(backbone, packed)
            inputs, hidden = reader.input, reader(reader.input)
        else:
            inputs, hidden = read_under_mix(backbone, visibility_mix, packed, seed)
        targets = {
            "hidden": hidden,
            "labels": inputs["token_ids"],
            "weights": ops.cast(ops.cast(inputs["padding_mask"], "bool"), "float32"),
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
        self.visibility_mix = visibility_mix and dict(visibility_mix)
        self.seed = seed

    def predicted_tokens(self, batch):
        return (batch["padding_mask"] != 0).sum(axis=1)

    def get_config(self):
        return {
            **super().get_config(),
            "special_token_ids": self.special_token_ids,
            "packed": self.packed,
            "visibility_mix": self.visibility_mix,
            "seed": self.seed,
        }
