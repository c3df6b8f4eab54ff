"""Which way a model reads texts to score them."""

from keras_tta.tasks.causal_pass import CausalPass
from keras_tta.tasks.masked_passes import MaskedPasses
from keras_tta.tasks.one_pass import OnePass
from keras_tta.visibility_questions import looks_right


def text_reader(backbone, head, batch_size, bucket_lengths):
    """The reader for a model, by what its rule shows and what its keys carry.

    Where keys are static and self is hidden, one pass tells everything. A model that
    never sees the future predicts the next token. Any other must have the token it
    predicts masked.
    """
    rule, static = backbone.visibility, backbone.static_key_value
    if static and rule.hides_self:
        reader = OnePass
    elif not looks_right(rule, backbone.max_sequence_length):
        reader = CausalPass
    else:
        reader = OnePass if static else MaskedPasses
    return reader(backbone, head, batch_size, bucket_lengths)
