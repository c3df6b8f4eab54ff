"""Token batches for other input engines: Grain and tf.data."""

from keras_tta.data.batches import TokenBatches
from keras_tta.data.optional_packages import import_optional


def to_grain(batches: TokenBatches, epochs: int = 1):
    """The batches of `epochs` epochs as a `grain.MapDataset`.

    Element `i` is `batches.batch(batches.first_step + i)`: the dataset is addressed by
    index, its length is known, and Grain's own checkpoints, threads and sharding by
    slicing work on it. Pass `steps_per_epoch=len(batches)` to `fit`.

    Raises:
        ImportError: Grain is not installed.

    Example:
    ```python
    from keras_tta.data import TokenBatches, to_grain

    batches = TokenBatches([[7, 8], [9]], batch_size=2, sequence_length=4)
    dataset = to_grain(batches, epochs=3)
    assert len(dataset) == 3
    ```
    """
    grain = import_optional("grain", "grain", "`to_grain`")
    return grain.MapDataset.source(_Steps(batches, epochs))


def to_tf_data(batches: TokenBatches, epochs: int = 1):
    """The batches of `epochs` epochs as a `tf.data.Dataset` of known cardinality.

    Pass `steps_per_epoch=len(batches)` to `fit`.

    Raises:
        ImportError: TensorFlow is not installed.

    Example:
    ```python
    from keras_tta.data import TokenBatches, to_tf_data

    batches = TokenBatches([[7, 8], [9]], batch_size=2, sequence_length=4)
    dataset = to_tf_data(batches, epochs=3)
    assert int(dataset.cardinality()) == 3
    ```
    """
    tf = import_optional("tensorflow", "tensorflow", "`to_tf_data`")
    steps = _Steps(batches, epochs)
    (first,) = steps[0]
    one_shape = len(batches.widths) == 1 and batches.remainder != "keep"
    signature = {
        name: tf.TensorSpec(array.shape if one_shape else (None, None), array.dtype)
        for name, array in first.items()
    }
    dataset = tf.data.Dataset.from_generator(
        lambda: (steps[i] for i in range(len(steps))), output_signature=(signature,)
    )
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(len(steps)))
    return dataset.prefetch(tf.data.AUTOTUNE)


class _Steps:
    """Batches by the number of the step, from `first_step` on."""

    def __init__(self, batches, epochs):
        self.batches = batches
        self.epochs = epochs

    def __len__(self):
        return self.epochs * len(self.batches)

    def __getitem__(self, index):
        return self.batches.batch(self.batches.first_step + index)
