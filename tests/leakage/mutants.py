"""Ways a text autoencoder has been known to see what it must predict.

Each mutant is done to a `TTABackbone` in place, by replacing one method of its layers.
"""

from keras import ops


def token_in_query(backbone):
    """The query stream starts from the token, not from the position alone."""
    streams = backbone.embeddings.streams

    def mutated(*args, **kwargs):
        _, key_value = streams(*args, **kwargs)
        return key_value, key_value

    backbone.embeddings.streams = mutated


def contextual_keys(backbone):
    """Each layer reads the output of the layer before, as an ordinary encoder does."""
    encoder = backbone.encoder

    def mutated(query, key_value, visible, training=None):
        outputs = []
        for index in range(encoder.num_layers):
            memory = encoder.key_value_dense(key_value)
            memory = ops.split(memory, 2 * encoder.num_layers, -1)
            key, value = memory[2 * index : 2 * index + 2]
            attended = encoder.attentions[index](query, key, value, visible)
            query = encoder.blocks[index](query, attended)
            key_value = query
            outputs.append(query)
        return outputs

    encoder.layer_outputs = mutated


def visible_diagonal(backbone):
    """The second layer sees the diagonal."""
    attention = backbone.encoder.attentions[1]
    read = attention.read

    def mutated(query, key, value, visible, training=None):
        diagonal = ops.eye(visible.shape[-1], dtype="bool")
        return read(query, key, value, ops.logical_or(visible, diagonal), training)

    attention.read = mutated


def unsafe_softmax(backbone):
    """A query that sees no key sees all of them.

    So it is where hidden scores have a finite number added, as in the official code:
    the softmax takes a number common to a whole row away again.
    """
    for attention in backbone.encoder.attentions:
        attention.read = _unsafe(attention.read)


def _unsafe(read):
    def mutated(query, key, value, visible, training=None):
        visible = ops.convert_to_tensor(visible)
        sees_any = ops.any(visible, axis=-1, keepdims=True)
        visible = ops.logical_or(visible, ops.logical_not(sees_any))
        return read(query, key, value, visible, training)

    return mutated
