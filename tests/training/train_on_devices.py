"""A program that trains tiny models on the devices it is told, as a user's would.

    python train_on_devices.py '{"out": "one.npz", "objectives": ["tta"], ...}'

What `fit` returns, an epoch being two steps, and the weights go to `out`.
"""

import json
import sys

import keras
import numpy as np
from keras import ops

from keras_tta.data import TokenBatches
from keras_tta.layers import TokenMasking
from keras_tta.models import TransformerBackbone, TTABackbone
from keras_tta.pretraining import (
    LanguageAutoencoder,
    MaskedLM,
    ReplacedTokenDetection,
)
from keras_tta.training import AdamWeightDecay, distribute

SIZE = {
    "vocabulary_size": 20,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 12,
    "max_sequence_length": 8,
    "dropout": 0.0,
}
MASKING = {"vocabulary_size": 20, "mask_token_id": 4, "special_token_ids": (0, 1, 3)}


def tta():
    return LanguageAutoencoder(TTABackbone(**SIZE))


def mlm():
    masking = TokenMasking(**MASKING, mask_rate=0.4)
    return MaskedLM(TransformerBackbone(**SIZE), masking)


def electra():
    masking = TokenMasking(**MASKING, mask_rate=0.4, count_specials=True)
    generator = TransformerBackbone(**{**SIZE, "hidden_dim": 4}, embedding_dim=8)
    return ReplacedTokenDetection(generator, TransformerBackbone(**SIZE), masking)


def main(
    out, objectives, spread=None, accumulation=None, epochs=4, folder=None, cpus=None
):
    if cpus:
        import tensorflow as tf

        tf.config.set_logical_device_configuration(
            tf.config.list_physical_devices("CPU")[0],
            [tf.config.LogicalDeviceConfiguration()] * cpus,
        )
    if spread and spread.get("strategy") == "model":
        spread["get_layout_map"] = TTABackbone.get_layout_map
    # One device is the program without `distribute`, not a case of it.
    devices = distribute(**spread) if spread is not None else None
    shares = devices.shares() if devices else {}
    results = {}
    for name in objectives:
        keras.utils.set_random_seed(7)
        draw = np.random.default_rng(0)
        # From one token a row to six, in order: shards of very different weight.
        texts = [draw.integers(5, 20, 1 + i % 8 * 3 // 4) for i in range(44)]
        batches = TokenBatches(texts, 8, 8, seed=1, steps_per_epoch=2, **shares)
        held_out = TokenBatches(texts[:20], 8, 8, shuffle=False, **shares)
        pretrainer = {"tta": tta, "mlm": mlm, "electra": electra}[name]()
        if keras.backend.backend() == "torch" and devices and devices.process:
            # Processes need not begin alike.
            weights = pretrainer.trainable_weights
            weights[0].assign(weights[0] + 1)
        optimizer = AdamWeightDecay(
            0.02, epsilon=0.1, gradient_accumulation_steps=accumulation
        )
        pretrainer.compile(optimizer)
        callbacks = []
        if folder:
            from keras_tta.training import TrainingCheckpoint

            checkpoint = TrainingCheckpoint(
                f"{folder}/{name}", batches, every_minutes=None, every_steps=3
            )
            callbacks.append(checkpoint)
        history = pretrainer.fit(
            batches,
            epochs=epochs,
            validation_data=held_out,
            verbose=0,
            callbacks=callbacks,
        ).history
        for key, value in history.items():
            results[f"{name} history {key}"] = value
        for index, weight in enumerate(pretrainer.weights):
            path = weight.path.replace("/", "|")
            value = weight.value
            results[f"{name} weight {index:03d} {path}"] = ops.convert_to_numpy(value)
            if keras.backend.backend() == "jax":
                split = not value.sharding.is_fully_replicated
                results[f"{name} split {index:03d} {path}"] = split
    if devices is None or not devices.process:
        np.savez(out, **results)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
