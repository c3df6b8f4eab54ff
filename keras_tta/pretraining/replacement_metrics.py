"""How well replaced tokens are found or put right, beside the trivial answer.

Padding is left out of all figures.
"""

import keras
from keras import ops


class MajorityAccuracy(keras.metrics.Mean):
    """The accuracy of always giving the more frequent of two answers."""

    def result(self):
        share = super().result()
        return ops.maximum(share, 1.0 - share)


class DetectionMetrics:
    """The metrics of a discriminator, made and updated together."""

    def __init__(self):
        mean, prefix = keras.metrics.Mean, "discriminator"
        self.nats = mean(name=f"{prefix}_loss")
        self.accuracy = mean(name=f"{prefix}_accuracy")
        self.majority = MajorityAccuracy(name="majority_accuracy")
        self.precision = mean(name=f"{prefix}_precision")
        self.recall = mean(name=f"{prefix}_recall")
        self.auc = keras.metrics.AUC(from_logits=True, name=f"{prefix}_auc")
        self.replaced = mean(name="replaced_share")

    def all(self):
        return list(vars(self).values())

    def update(self, logits, nats, correct, labels, weights):
        """Count positions by their weights; all are (B, T)."""
        labels = ops.cast(labels, "float32")
        correct = ops.cast(correct, "float32")
        found = ops.cast(logits > 0, "float32")
        self.nats.update_state(nats, weights)
        self.accuracy.update_state(correct, weights)
        self.majority.update_state(labels, weights)
        self.precision.update_state(labels, weights * found)
        self.recall.update_state(found, weights * labels)
        self.auc.update_state(labels, logits, weights)
        self.replaced.update_state(labels, weights)


class CorrectionMetrics:
    """The metrics of a model that puts tokens right, made and updated together."""

    def __init__(self):
        mean, prefix = keras.metrics.Mean, "discriminator"
        self.nats = mean(name=f"{prefix}_loss")
        self.accuracy = mean(name=f"{prefix}_accuracy")
        self.corrected = mean(name="corrected_share")
        self.replaced = mean(name="replaced_share")

    def all(self):
        return list(vars(self).values())

    def update(self, nats, correct, replaced, weights):
        """Count positions by their weights; all are (B, T)."""
        correct = ops.cast(correct, "float32")
        replaced = ops.cast(replaced, "float32")
        self.nats.update_state(nats, weights)
        self.accuracy.update_state(correct, weights)
        self.corrected.update_state(correct, weights * replaced)
        self.replaced.update_state(replaced, weights)
