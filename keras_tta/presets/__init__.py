"""Presets: saved models, loaded with care, and readers of the authors' own weights."""

from keras_tta.presets.tta_checkpoint import (
    assign_tta_variables,
    read_tta_checkpoint,
    tta_sizes,
)

__all__ = ["assign_tta_variables", "read_tta_checkpoint", "tta_sizes"]
