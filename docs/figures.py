"""Draws the figures of the documentation from the code they explain.

python docs/figures.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from keras import ops
from matplotlib.colors import ListedColormap

from keras_tta.layers import VisibilityMask
from keras_tta.visibility import All, Causal, HideWord, NotSelf, Window

IMAGES = Path(__file__).parent / "images"
TOKENS = ["[SOS]", "un", "##seen", "tokens", "are", "read", "[EOS]"]
WORD_IDS = np.array([[0, 1, 1, 2, 3, 4, 5]])
SEEN, HIDDEN, SELF, INK = "#2f6f8f", "#eef1f2", "#d1495b", "#22303a"


def mask_of(rule):
    """The rule's mask for TOKENS, (T, S)."""
    is_real = np.ones((1, len(TOKENS)), bool)
    return ops.convert_to_numpy(VisibilityMask(rule)(is_real, None, WORD_IDS))[0]


def draw_mask(axes, mask, title):
    axes.imshow(mask, cmap=ListedColormap([HIDDEN, SEEN]), vmin=0, vmax=1)
    for i in range(len(mask)):
        if mask[i, i]:
            axes.plot(i, i, "o", color=SELF, markersize=6)
    axes.set_xticks(range(len(TOKENS)), TOKENS, rotation=90)
    axes.set_yticks(range(len(TOKENS)), TOKENS)
    axes.set_xticks(np.arange(len(TOKENS) - 1) + 0.5, minor=True)
    axes.set_yticks(np.arange(len(TOKENS) - 1) + 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0, labelsize=8, colors=INK)
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=9, color=INK, family="monospace")


def draw_rules():
    """Who sees whom under the rules: a row reads the dark cells."""
    rules = {
        "NotSelf()": NotSelf(),
        "NotSelf() & Window(1)": NotSelf() & Window(1),
        "Causal(strict=True)": Causal(strict=True),
        'HideWord("right")': HideWord("right"),
        "HideWord()": HideWord(),
        "All()": All(),
    }
    figure, grid = plt.subplots(2, 3, figsize=(9, 6.4), layout="constrained")
    for axes, (title, rule) in zip(grid.flat, rules.items(), strict=True):
        draw_mask(axes, mask_of(rule), title)
    figure.supylabel("query", fontsize=9, color=INK)
    figure.supxlabel("key", fontsize=9, color=INK)
    figure.savefig(IMAGES / "visibility.png", dpi=150)


def draw_depth(num_layers=3):
    """Which tokens have reached an output, by depth: static and contextual keys."""
    mask = mask_of(NotSelf())
    figure, grid = plt.subplots(
        2, num_layers, figsize=(9, 6.4), layout="constrained", sharey=True
    )
    static = contextual = None
    for layer in range(num_layers):
        static = mask if static is None else static | mask
        contextual = mask if contextual is None else contextual | (mask @ contextual)
        draw_mask(grid[0, layer], static, f"layer {layer + 1}, static keys")
        draw_mask(grid[1, layer], contextual, f"layer {layer + 1}, contextual keys")
    figure.supylabel("output at", fontsize=9, color=INK)
    figure.supxlabel("knows the token at", fontsize=9, color=INK)
    figure.savefig(IMAGES / "depth.png", dpi=150)


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    draw_rules()
    draw_depth()
