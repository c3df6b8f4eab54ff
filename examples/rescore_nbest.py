"""Rescore n-best lists with a trained model: tune on some, measure on others.

    python examples/rescore_nbest.py --preset runs/tta/preset \\
        --tune dev.jsonl.gz --apply test.jsonl.gz --output runs/rescored

A line of a file is `{"utt": ..., "ref": ..., "hyps": [{"text": ..., "score": ...}]}`;
`.json` files are read as mlm-scoring writes them. `ref` is needed for tuning, and for
word error rates. The output folder holds the lists, the best hypothesis first, the
tables, and their charts.
"""

import json
from pathlib import Path

from absl import app, flags

from keras_tta.evaluation import nbest_word_error_rates
from keras_tta.tasks import NBestRescorer, TextScorer

FLAGS = flags.FLAGS
flags.DEFINE_string("preset", "runs/tta/preset", "Folder of the trained model.")
flags.DEFINE_string("tune", None, "Lists to find weight and length penalty on.")
flags.DEFINE_string("apply", None, "Lists to rescore.", required=True)
flags.DEFINE_string("output", "runs/rescored", "Folder for all that is written.")
flags.DEFINE_float("weight", 1.0, "Weight of the model's score, without --tune.")
flags.DEFINE_float("length_penalty", 0.0, "Its length penalty, without --tune.")
flags.DEFINE_string("visibility", None, "others, word_left_to_right, whole_word, left.")
flags.DEFINE_integer("stride", None, "Read texts too long for the model in windows.")


def main(_):
    output = Path(FLAGS.output)
    output.mkdir(parents=True, exist_ok=True)
    rescorer = NBestRescorer(
        TextScorer.from_preset(FLAGS.preset),
        weight=FLAGS.weight,
        length_penalty=FLAGS.length_penalty,
        visibility=FLAGS.visibility,
        stride=FLAGS.stride,
        progress=True,
    )
    if FLAGS.tune:
        tuning = rescorer.tune(FLAGS.tune)
        print(tuning)
        tuning.to_csv(output / "tuning.csv")
        tuning.plot(output / "tuning.png")

    rescored = []
    with open(output / "rescored.jsonl", "w", encoding="utf-8") as file:
        for each in rescorer.rescore(FLAGS.apply):
            file.write(json.dumps(each.as_dict(), ensure_ascii=False) + "\n")
            rescored.append(each)
    if all(each.nbest.reference is not None for each in rescored):
        rates = nbest_word_error_rates(
            [each.nbest for each in rescored],
            {"rescored": [each.best for each in rescored]},
        )
        print(rates)
        rates.to_csv(output / "word_error_rates.csv")
        rates.plot(output / "word_error_rates.png")
    print(f"Written: {output}/rescored.jsonl and tables.")


if __name__ == "__main__":
    app.run(main)
