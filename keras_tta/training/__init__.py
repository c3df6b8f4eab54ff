"""What a training run needs besides a model and data, for any `keras.Model`."""

from keras_tta.training.budget import WallClockBudget
from keras_tta.training.checkpoint import TrainingCheckpoint
from keras_tta.training.checkpoint_files import CheckpointError
from keras_tta.training.distribution import Devices, distribute
from keras_tta.training.dtype_policy import check_policy
from keras_tta.training.guard import NonFiniteGuard
from keras_tta.training.metrics_csv import MetricsCSV, read_metrics
from keras_tta.training.optimizers import AdamWeightDecay
from keras_tta.training.plots import plot_curves
from keras_tta.training.progress import Progress
from keras_tta.training.schedules import WarmupLinearDecay
from keras_tta.training.shared_clock import SharedClock
from keras_tta.training.steps_per_epoch import count_steps
from keras_tta.training.token_count import TokenCount

__all__ = [
    "AdamWeightDecay",
    "CheckpointError",
    "Devices",
    "MetricsCSV",
    "NonFiniteGuard",
    "Progress",
    "SharedClock",
    "TokenCount",
    "TrainingCheckpoint",
    "WallClockBudget",
    "WarmupLinearDecay",
    "check_policy",
    "count_steps",
    "distribute",
    "plot_curves",
    "read_metrics",
]
