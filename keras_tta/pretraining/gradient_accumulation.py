"""Accumulated gradients in which every token counts the same.

Keras averages the gradients of a group of batches. If each batch's loss were the mean
over its own tokens, the tokens of batches with few would weigh more. So every batch
divides by its share of the group's tokens. That number must be known before the group's
first batch is differentiated: the data bring it along.
"""

import keras
import numpy as np

from keras_tta.data import TokenBatches


class MicroBatches(keras.utils.PyDataset):
    """Token batches with `y`, what each row adds to the denominators of the loss.

    Groups are of consecutive training steps: of `group_size` from step 0 on.

    Args:
        batches: a `keras_tta.data.TokenBatches`.
        group_size: batches that make one update.
        loss_counts: function from a batch to a dict of arrays (B,): how many positions
            of each row every mean of the loss is over.

    Every batch is `(x, y)`, with float32 (B,) in `y` for every count. In a batch they
    sum to the group's count divided by `group_size`, by which Keras multiplies again.
    """

    def __init__(self, batches, group_size, loss_counts):
        super().__init__(
            workers=batches.workers,
            use_multiprocessing=batches.use_multiprocessing,
            max_queue_size=batches.max_queue_size,
        )
        self.batches = batches
        self.group_size = group_size
        self.loss_counts = loss_counts
        self._group = None, None, None
        self.batch(batches.next_step)  # What cannot be counted is to be refused now.

    def __len__(self):
        return len(self.batches)

    def on_epoch_begin(self):
        self.batches.on_epoch_begin()

    def on_epoch_end(self):
        self.batches.on_epoch_end()

    def __getitem__(self, index):
        return self.batch(self.batches.take(index))

    def batch(self, step):
        """The batch of training step `step`, which counts through all passes."""
        group, index = divmod(step, self.group_size)
        # One assignment, for several threads may be at work on different groups.
        cached_group, members, totals = self._group
        if cached_group != group:
            members, totals = self._read(group)
            self._group = group, members, totals
        x = members[index]
        rows = len(x["token_ids"])
        y = {
            name: np.full(rows, total / self.group_size / rows, "float32")
            for name, total in totals.items()
        }
        return x, y

    def _read(self, group):
        first = group * self.group_size
        steps = range(first, first + self.group_size)
        members = [self.batches.batch(step)[0] for step in steps]
        counts = [self.loss_counts(member) for member in members]
        return members, {
            name: sum(float(count[name].sum()) for count in counts)
            for name in counts[0]
        }


def accumulation_steps(optimizer):
    """How many batches make one update of an optimizer; `None` is 1."""
    return getattr(innermost(optimizer), "gradient_accumulation_steps", None)


def batches_read(optimizer):
    """How many batches an optimizer has read; its `iterations` are its updates."""
    return int(innermost(optimizer)._iterations)


def micro_batches(x, optimizer, loss_counts):
    """What `fit` is to read: `x`, with denominators if the optimizer accumulates.

    Raises:
        ValueError: if the denominators of `x` cannot be known, or its groups of batches
            are not those of the optimizer.
    """
    steps = accumulation_steps(optimizer)
    if not steps:
        return x
    if not isinstance(x, TokenBatches):
        raise ValueError(
            f"With gradient_accumulation_steps={steps} the loss of a batch depends on "
            "how many tokens the others of its group hold, which only a "
            "`keras_tta.data.TokenBatches` can tell beforehand: give `fit` one, or "
            f"larger batches and no accumulation. Received: a {type(x).__name__}"
        )
    read = batches_read(optimizer)
    if (x.next_step - read) % steps:
        raise ValueError(
            f"The optimizer has read {read} batches and the data go on at batch "
            f"{x.next_step}: with gradient_accumulation_steps={steps} its groups of "
            "batches would not be those of the data. Go on with the data where the "
            f"optimizer stopped, `TokenBatches(..., first_step={read})`, or compile a "
            "new optimizer for data that begin anew."
        )
    return MicroBatches(x, steps, loss_counts)


def check_counts(pretrainer, y, sample_weight, training):
    """Raise unless `y` holds counts where they are needed, and nothing elsewhere."""
    steps = accumulation_steps(pretrainer.optimizer) if training else None
    if y is None and steps:
        raise ValueError(
            f"With gradient_accumulation_steps={steps} a batch comes with its share of "
            "the tokens of its group. Give `fit` a `keras_tta.data.TokenBatches`, "
            "which it reads group by group, instead of single batches."
        )
    if y is None:
        return
    if not (isinstance(y, dict) and "tokens" in y):
        raise ValueError(
            f"{type(pretrainer).__name__} makes its own labels; give it the inputs "
            "alone, without `y`."
        )
    if sample_weight is not None:
        raise ValueError(
            "The tokens of a group of batches are counted without `sample_weight`: "
            "weigh rows without gradient accumulation."
        )


def innermost(optimizer):
    """The optimizer that updates, inside one that scales the loss."""
    return getattr(optimizer, "inner_optimizer", optimizer)
