"""Training under several visibility rules at once."""

from keras_tta.layers import MixedVisibilityMask
from keras_tta.models.inputs import backbone_inputs
from keras_tta.visibility import And, SameSegment, named_rule


def read_under_mix(backbone, mix, packed, seed):
    """What a backbone's layers say when each row is under a rule of a mix.

    Args:
        backbone: with static keys and values, such as a `TTABackbone`.
        mix: dict from the names of rules to their shares.
        packed: whether rows hold several sequences.
        seed: of the draws.

    Returns:
        Symbolic inputs by name, and hidden states (B, T, D).
    """
    rules = [named_rule(name, "visibility_mix") for name in mix]
    if packed:
        rules = [rule & SameSegment() for rule in rules]
    inputs = backbone_inputs(And(*rules))
    mask = MixedVisibilityMask(rules, mix.values(), seed, name="mixed_visibility")
    optional = {
        name: inputs[name] for name in ("segment_ids", "word_ids") if name in inputs
    }
    visible = mask(inputs["token_ids"], inputs["padding_mask"], **optional)
    query, key_value = backbone.embeddings(
        inputs["token_ids"], position_ids=inputs.get("position_ids")
    )
    return inputs, backbone.encoder(query, key_value, visible)
