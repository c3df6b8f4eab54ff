"""Score sentences, or minimal pairs, with a trained model.

    python examples/score_sentences.py 'the cat sat on the mat .'
    python examples/score_sentences.py --tokens < sentences.txt
    python examples/score_sentences.py --preset runs/mine/preset --pairs blimp.jsonl.gz

Without arguments, sentences are read from standard input, one per line. Scores are sums
of log-probabilities, higher is better; minimal pairs are in BLiMP's format.
"""

import sys

from absl import app, flags

from keras_tta.evaluation import minimal_pairs
from keras_tta.tasks import TextScorer

FLAGS = flags.FLAGS
flags.DEFINE_string("preset", "runs/tta/preset", "Folder of the trained model.")
flags.DEFINE_string("visibility", None, "others, word_left_to_right, whole_word, left.")
flags.DEFINE_enum("normalize", "none", ["none", "tokens", "words"], "Sum or mean.")
flags.DEFINE_integer("stride", None, "Read long texts in windows so far apart.")
flags.DEFINE_boolean("tokens", False, "Show the score of every token.")
flags.DEFINE_string("pairs", None, "Minimal pairs to judge in place of sentences.")
flags.DEFINE_string("plot", None, "With --pairs: a chart to draw.")


def main(arguments):
    scorer = TextScorer.from_preset(FLAGS.preset)
    if FLAGS.pairs:
        result = minimal_pairs(
            scorer,
            FLAGS.pairs,
            normalize=FLAGS.normalize,
            visibility=FLAGS.visibility,
            progress=True,
        )
        print(result)
        if FLAGS.plot:
            result.plot(FLAGS.plot)
        return
    sentences = arguments[1:] or sys.stdin.read().splitlines()
    how = {"visibility": FLAGS.visibility, "stride": FLAGS.stride}
    scores = scorer.score(sentences, normalize=FLAGS.normalize, **how)
    tokens = (
        scorer.token_scores(sentences, **how) if FLAGS.tokens else [()] * len(sentences)
    )
    for sentence, score, parts in zip(sentences, scores, tokens, strict=True):
        print(f"{score:10.3f}  {sentence}")
        for token, log_probability in parts:
            print(f"{log_probability:20.3f}  {token}")


if __name__ == "__main__":
    app.run(main)
