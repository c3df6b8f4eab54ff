"""What all corruption layers share: three entry points, one kernel, the draws' state.

Axes: B batch, T sequence.
"""

from types import SimpleNamespace

import keras
import numpy as np
from keras import ops

from keras_tta.checks import check_positive_integers
from keras_tta.layers.corruption.arrays import (
    KerasArrays,
    NumPyArrays,
    tensorflow_arrays,
)
from keras_tta.layers.corruption.draws import Draws, as_int32, threshold
from keras_tta.layers.corruption.seed_and_step import (
    add_seed_and_step,
    next_seed_and_step,
)

MAX_LENGTH = 2**14  # a position and an index into two rows fit an int32


class Masker(keras.layers.Layer):
    """Base of the corruption layers: a pure function of rows, seed and step.

    A subclass writes its kernel once, in `_corrupt(xp, draws, rows)`, and its numbers
    known from shapes in `_plan(length)`, which raises where the settings cannot work.

    Three entry points lead to the kernel and give the same integers on every backend:

    - the layer: in training it draws afresh at every call, from its own step counter;
      with `training=False` the step is left out, so that a row is always corrupted the
      same way. The counter is a weight: it is saved and restored with the model.
    - `numpy(token_ids, padding_mask, key)`: NumPy in, NumPy out, for Grain or a look.
    - `tf_map(key)`: a function for `tf.data.Dataset.map`, under any backend.

    Draws are a hash of (seed, step, the row's real tokens, position), see
    `keras_tta.layers.corruption.draws`: they do not depend on the batch, its order or
    the padding. Equal rows of one step are corrupted alike.

    Every output dict has `num_clamped` (B,): the row's tokens or spans that break the
    layer's contract, such as an id outside the vocabulary. Eager calls raise instead;
    compiled ones cannot, leave what they name untouched, and count it.

    Args:
        vocabulary_size: ids are in [0, vocabulary_size).
        special_token_ids: ids that are never corrupted and never predicted.
        seed: defaults to 0.
        static_copies: None, the default, draws afresh in every training step. A number
            gives each row that many fixed corruptions, one of which each training step
            shows: BERT's duplicated corpus (its 10 copies) without the copies. Copy i
            is what `numpy` gives for `key=(seed, i)`, i from 1, without this argument.
    """

    def __init__(
        self,
        vocabulary_size,
        special_token_ids=(),
        seed=0,
        static_copies=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        check_positive_integers(self, vocabulary_size=vocabulary_size)
        if static_copies is not None:
            check_positive_integers(self, static_copies=static_copies)
        self.vocabulary_size = int(vocabulary_size)
        special_token_ids = tuple(special_token_ids)
        for token_id in special_token_ids:
            self._check_id("special_token_ids", token_id)
        self.special_token_ids = tuple(map(int, special_token_ids))
        self.seed = int(seed)
        self.static_copies = static_copies

    def build(self, token_ids_shape, padding_mask_shape=None):
        self._plan(self._static_length(token_ids_shape))
        self.state = add_seed_and_step(self, self.seed)
        self.built = True

    def call(self, token_ids, padding_mask=None, training=None):
        return self._call(training, token_ids, padding_mask)

    def compute_output_spec(self, token_ids, padding_mask=None, training=None):
        return self._output_spec(token_ids)

    def numpy(self, token_ids, padding_mask=None, key=None):
        """Corrupts NumPy rows, (B, T) or one row (T,).

        `key` is a seed, or a pair (seed, step) for draws that change with the step;
        None stands for the layer's seed.
        """
        return self._numpy(key, token_ids=token_ids, padding_mask=padding_mask)

    def tf_map(self, key=None):
        """A function for `tf.data.Dataset.map` from features to corrupted features.

        Features are a dict with `token_ids`, (B, T) or (T,) with T known, and, if there
        is one, `padding_mask`. The outputs are added to it, in place of features of the
        same name. `key` is as for `numpy`; the step may be a tensor, such as the number
        that `Dataset.enumerate` gives.
        """
        names = self._input_names()

        def corrupt(features):
            xp = tensorflow_arrays()
            inputs = {name: features[name] for name in names if name in features}
            self._static_length(inputs["token_ids"].shape)
            seed, step = self._seed_and_step(key)
            outputs = self._run(xp, xp.int32(seed), xp.int32(step), **inputs)
            return {**features, **outputs}

        return corrupt

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "special_token_ids": self.special_token_ids,
            "seed": self.seed,
            "static_copies": self.static_copies,
        }

    # What a subclass defines.

    def _plan(self, length):
        raise NotImplementedError

    def _corrupt(self, xp, draws, rows):
        raise NotImplementedError

    def _input_names(self):
        return ("token_ids", "padding_mask")

    def _invalid(self, xp, token_ids):
        """Real tokens this masker has no answer for; `_complaint` says it in words."""
        return (token_ids < 0) | (token_ids >= self.vocabulary_size)

    def _complaint(self):
        return f"it must be in [0, {self.vocabulary_size}), the vocabulary"

    def _complaint_of_row(self):
        return "it breaks this layer's contract"

    # What it may use.

    def _check_id(self, argument, token_id):
        is_integer = hasattr(token_id, "__index__")
        if not is_integer or not 0 <= token_id < self.vocabulary_size:
            raise ValueError(
                f"`{argument}` must be an integer in [0, {self.vocabulary_size}), the "
                f"vocabulary. Received: {argument}={token_id!r}"
            )

    def _check_shares(self, **shares):
        """Raises unless these are shares of one whole."""
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(
                    f"`{name}` must be in [0, 1]. Received: {name}={share!r}"
                )
        if sum(shares.values()) > 1 + 1e-9:
            received = ", ".join(f"{name}={share}" for name, share in shares.items())
            raise ValueError(
                f"The sum of {', '.join(f'`{name}`' for name in shares)} must be at "
                f"most 1. Received: {received}"
            )

    def _check_random_tokens(self, random_share, exclude):
        """Raises if a random token is asked for and all are in `exclude`."""
        if random_share and self.vocabulary_size == len(set(exclude)):
            raise ValueError(
                "`random_share` needs tokens to draw from, but every token of the "
                "vocabulary is special. Use `random_share=0.0`. Received: "
                f"random_share={random_share}, vocabulary_size={self.vocabulary_size}"
            )

    def _make_special(self, argument, token_id):
        self._check_id(argument, token_id)
        if token_id not in self.special_token_ids:
            self.special_token_ids += (int(token_id),)

    def _masked(self, xp, draws, rows, chosen, index=None, exclude=None):
        """The rows with `chosen` tokens masked, replaced at random or kept.

        By `mask_share` and `random_share`, drawn for each `index`, by default for each
        position; random tokens are none of `exclude`, by default the special ones.
        """
        token_ids = rows.token_ids
        index = rows.positions if index is None else index
        draw = draws.unit("replacement", index)
        mask = chosen & (draw < threshold(self.mask_share))
        masked = xp.where(mask, token_ids * 0 + self.mask_token_id, token_ids)
        if not self.random_share:
            return masked
        exclude = self.special_token_ids if exclude is None else exclude
        random_ids = self._random_token_ids(
            xp, draws, "random token", rows.positions, exclude
        )
        replaced = draw < threshold(self.mask_share + self.random_share)
        return xp.where(chosen & ~mask & replaced, random_ids, masked)

    def _random_token_ids(self, xp, draws, purpose, index, exclude):
        """Uniform ids of the vocabulary without those in `exclude`."""
        exclude = np.array(sorted(set(exclude)), np.int32)
        ids = draws.below(purpose, index, self.vocabulary_size - len(exclude))
        if not len(exclude):
            return ids
        # The i-th excluded id is passed by all ranks from (id - i) on.
        passed = ids[..., None] >= xp.int32(exclude - np.arange(len(exclude)))
        return ids + xp.sum(passed)[..., 0]

    # The entry points.

    def _call(self, training, token_ids, padding_mask=None, **inputs):
        seed, step = next_seed_and_step(self.state, training)
        inputs["padding_mask"] = padding_mask
        outputs = self._run(KerasArrays, seed, step, token_ids, **inputs)
        return self._checked(outputs, token_ids, padding_mask)

    def _numpy(self, key, token_ids, padding_mask=None, **inputs):
        token_ids = np.asarray(token_ids)
        seed, step = (NumPyArrays.int32(i) for i in self._seed_and_step(key))
        inputs["padding_mask"] = padding_mask
        outputs = self._run(NumPyArrays, seed, step, token_ids, **inputs)
        return self._checked(outputs, token_ids, padding_mask)

    def _corrupt_given(self, token_ids, padding_mask, noise_mask):
        """For a public `corrupt`: the kernel finds the mask in `rows.given`."""
        inputs = {"padding_mask": padding_mask, "noise_mask": noise_mask}
        given = [token_ids, *inputs.values()]
        if all(x is None or isinstance(x, list | tuple | np.ndarray) for x in given):
            return self._numpy(None, token_ids, **inputs)
        seed, step = (KerasArrays.int32(i) for i in self._seed_and_step(None))
        outputs = self._run(KerasArrays, seed, step, token_ids, **inputs)
        return self._checked(outputs, token_ids, padding_mask)

    def _output_spec(self, token_ids, **inputs):
        length = self._static_length(token_ids.shape)
        example = self._run(
            NumPyArrays,
            *NumPyArrays.int32([0, 0])[:, None],
            token_ids=np.zeros((1, length), np.int32),
            padding_mask=np.zeros((1, length), bool),
            **{
                name: None if value is None else np.zeros((1, length), np.int32)
                for name, value in inputs.items()
            },
        )
        return {
            name: keras.KerasTensor(
                (*token_ids.shape[:-1], *array.shape[1:]), str(array.dtype)
            )
            for name, array in example.items()
        }

    def _run(
        self, xp, seed, step, token_ids, padding_mask=None, noise_mask=None, **inputs
    ):
        token_ids = xp.int32(token_ids)
        if padding_mask is None:
            real = token_ids == token_ids
        else:
            real = xp.int32(padding_mask) != 0
        invalid = real & self._invalid(xp, token_ids)
        candidates = real & ~invalid
        if self.special_token_ids:
            specials = xp.int32(self.special_token_ids)
            candidates = candidates & ~xp.any(token_ids[..., None] == specials)
        inputs = {k: None if v is None else xp.int32(v) for k, v in inputs.items()}
        rows = SimpleNamespace(
            token_ids=token_ids,
            positions=xp.arange(token_ids.shape[-1]),
            real=real,
            candidates=candidates,
            given=None if noise_mask is None else real & (xp.int32(noise_mask) != 0),
            **inputs,
        )
        draws = Draws(xp, token_ids, real, seed, step, self.static_copies)
        outputs = self._corrupt(xp, draws, rows)
        clamped = xp.sum(invalid) + outputs.pop("clamped", 0)
        return {**outputs, "num_clamped": clamped[..., 0]}

    def _seed_and_step(self, key):
        seed, step = key if isinstance(key, tuple | list) else (key, 0)
        seed = self.seed if seed is None else seed
        # A step may also be a tensor: leave it to the entry point.
        return [as_int32(i) if isinstance(i, int) else i for i in (seed, step)]

    def _static_length(self, shape):
        length = shape[-1] if len(shape) else None
        if length is None or length > MAX_LENGTH:
            raise ValueError(
                f"`token_ids` must be (B, T) with T known and at most {MAX_LENGTH}, "
                "because the outputs' shapes follow from T: pad every batch to one "
                f"length. Received: shape={tuple(shape)}"
            )
        return int(length)

    def _checked(self, outputs, token_ids, padding_mask):
        """The outputs, if they hold no clamped rows or cannot be looked at yet."""
        clamped = outputs["num_clamped"]
        if not (isinstance(clamped, np.ndarray) or _is_concrete(clamped)):
            return outputs
        clamped = ops.convert_to_numpy(clamped).ravel()
        if not clamped.any():
            return outputs
        row = int(np.flatnonzero(clamped)[0])
        ids = np.atleast_2d(ops.convert_to_numpy(token_ids))[row]
        real = np.ones(ids.shape, bool)
        if padding_mask is not None:
            real = np.atleast_2d(ops.convert_to_numpy(padding_mask))[row] != 0
        invalid = np.flatnonzero(real & self._invalid(NumPyArrays, ids))
        if not len(invalid):
            raise ValueError(f"Row {row}: {self._complaint_of_row()}.")
        position = int(invalid[0])
        raise ValueError(
            f"`token_ids` holds {int(ids[position])} in row {row} at position "
            f"{position}: {self._complaint()}."
        )


def _is_concrete(x):
    """Whether a tensor has a value now, rather than when a compiled function runs."""
    backend = keras.backend.backend()
    if backend == "tensorflow":
        import tensorflow as tf

        return not tf.is_symbolic_tensor(x)
    if backend == "jax":
        import jax

        return not isinstance(x, jax.core.Tracer)
    import torch

    return x.device.type != "meta" and not torch.compiler.is_compiling()
