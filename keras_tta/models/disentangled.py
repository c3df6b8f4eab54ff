"""Models whose tables follow another's, as models of their own."""

from keras_tta.layers import DisentangledEmbedding


def with_own_tables(backbone):
    """A backbone whose tables are sums of two with these sums; any other as it is.

    All layers but the embeddings are the backbone's own.
    """
    embeddings = getattr(backbone, "embeddings", None)
    table = getattr(embeddings, "token_embedding", None)
    if not isinstance(table, DisentangledEmbedding):
        return backbone
    return backbone.with_embeddings(embeddings.copy())
