"""Embed sentences and compare their cosines with people's judgement (STS-B, SICK).

    python examples/embed_sts.py --preset runs/tta/preset --pairs sts-dev.csv
    python examples/embed_sts.py --preset runs/tta/preset --pairs sts-dev.csv \\
        --pooling idf --fuse_tokens 0.5 --fit sts-train.csv --whiten

`--fit` names sentence pairs whose texts IDF and whitening learn from; their scores are
not used.
"""

from absl import app, flags

from keras_tta.evaluation import read_sentence_pairs, semantic_similarity
from keras_tta.tasks import TextEmbedder

FLAGS = flags.FLAGS
flags.DEFINE_string("preset", "runs/tta/preset", "Folder of the trained model.")
flags.DEFINE_string("pairs", None, "Scored pairs, as of STS-B or SICK.", required=True)
flags.DEFINE_string("pooling", "mean", "See keras_tta.tasks.TextEmbedder.")
flags.DEFINE_integer("layer", -1, "Which layer is pooled; 0 is the embeddings.")
flags.DEFINE_float("fuse_tokens", 0.0, "Share of the tokens' own embeddings.")
flags.DEFINE_string("fit", None, "Pairs whose texts the options below learn from.")
flags.DEFINE_boolean("whiten", False, "Whiten the embeddings.")
flags.DEFINE_integer("remove", 0, "Directions of most variance to take out.")
flags.DEFINE_string("plot", None, "Chart to draw.")


def main(_):
    embedder = TextEmbedder.from_preset(
        FLAGS.preset,
        pooling=FLAGS.pooling,
        layer=FLAGS.layer,
        fuse_tokens=FLAGS.fuse_tokens,
    )
    texts = [
        text
        for first, second, _ in read_sentence_pairs(FLAGS.fit or FLAGS.pairs)
        for text in (first, second)
    ]
    if FLAGS.pooling == "idf":
        embedder.fit_idf(texts)
    if FLAGS.whiten:
        embedder.fit_whitening(texts, truncate=True)
    elif FLAGS.remove:
        embedder.fit_top_component_removal(texts, FLAGS.remove, truncate=True)
    result = semantic_similarity(embedder, FLAGS.pairs, truncate=True, progress=True)
    print(result)
    if FLAGS.plot:
        result.plot(FLAGS.plot)


if __name__ == "__main__":
    app.run(main)
