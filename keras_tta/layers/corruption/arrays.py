"""The array operations a corruption kernel may use, over NumPy, Keras and TensorFlow.

A kernel is written once against one of these namespaces and Python's operators. All
integers are int32 and wrap on overflow, on every backend; reductions run over the last
axis and keep it. Nothing here scatters: compaction is a sort of positions, which every
device does well.
"""

import numpy as np
from keras import ops


class NumPyArrays:
    where = staticmethod(np.where)
    minimum = staticmethod(np.minimum)
    maximum = staticmethod(np.maximum)
    right_shift = staticmethod(np.right_shift)

    @staticmethod
    def int32(x):
        # At least one axis, because NumPy warns when a scalar overflows.
        return np.atleast_1d(np.asarray(x)).astype(np.int32)

    @staticmethod
    def arange(stop):
        return np.arange(stop, dtype=np.int32)

    @staticmethod
    def sum(x):
        return np.sum(x, axis=-1, keepdims=True, dtype=np.int32)

    @staticmethod
    def any(x):
        return np.any(x, axis=-1)

    @staticmethod
    def cumsum(x):
        return np.cumsum(x, axis=-1, dtype=np.int32)

    @staticmethod
    def sort(x):
        return np.sort(x, axis=-1)

    @staticmethod
    def take(table, index):
        return np.take(table, index, axis=0)

    @staticmethod
    def take_along(x, index):
        return np.take_along_axis(x, index, axis=-1)

    @staticmethod
    def concatenate(arrays):
        return np.concatenate(arrays, axis=-1)


class KerasArrays:
    where = staticmethod(ops.where)
    minimum = staticmethod(ops.minimum)
    maximum = staticmethod(ops.maximum)
    right_shift = staticmethod(ops.right_shift)

    @staticmethod
    def int32(x):
        return ops.cast(ops.convert_to_tensor(x), "int32")

    @staticmethod
    def arange(stop):
        return ops.arange(stop, dtype="int32")

    @staticmethod
    def sum(x):
        return ops.sum(ops.cast(x, "int32"), axis=-1, keepdims=True)

    @staticmethod
    def any(x):
        return ops.any(x, axis=-1)

    @staticmethod
    def cumsum(x):
        return ops.cumsum(ops.cast(x, "int32"), axis=-1)

    @staticmethod
    def sort(x):
        return ops.sort(x, axis=-1)

    @staticmethod
    def take(table, index):
        return ops.take(ops.convert_to_tensor(table), index, axis=0)

    @staticmethod
    def take_along(x, index):
        return ops.take_along_axis(x, index, axis=-1)

    @staticmethod
    def concatenate(arrays):
        return ops.concatenate(arrays, axis=-1)


def tensorflow_arrays():
    """The same operations as TensorFlow graph operations, for `tf.data`."""
    import tensorflow as tf

    class TensorFlowArrays:
        where = staticmethod(tf.where)
        minimum = staticmethod(tf.minimum)
        maximum = staticmethod(tf.maximum)
        right_shift = staticmethod(tf.bitwise.right_shift)

        @staticmethod
        def int32(x):
            return tf.cast(tf.convert_to_tensor(x), tf.int32)

        @staticmethod
        def arange(stop):
            return tf.range(stop, dtype=tf.int32)

        @staticmethod
        def sum(x):
            return tf.reduce_sum(tf.cast(x, tf.int32), axis=-1, keepdims=True)

        @staticmethod
        def any(x):
            return tf.reduce_any(x, axis=-1)

        @staticmethod
        def cumsum(x):
            return tf.cumsum(tf.cast(x, tf.int32), axis=-1)

        @staticmethod
        def sort(x):
            return tf.sort(x, axis=-1)

        @staticmethod
        def take(table, index):
            return tf.gather(tf.convert_to_tensor(table), index)

        @staticmethod
        def take_along(x, index):
            return tf.gather(x, index, batch_dims=index.shape.rank - 1)

        @staticmethod
        def concatenate(arrays):
            return tf.concat(arrays, axis=-1)

    return TensorFlowArrays
