"""Model cards: what a preset's README.md says of it."""

from keras_tta.version import __version__

SIZES = (
    "vocabulary_size",
    "num_layers",
    "num_heads",
    "hidden_dim",
    "intermediate_dim",
    "max_sequence_length",
)

CARD = """\
---
library_name: keras-hub
tags:
- keras
- keras_tta
---

# {title}

A `{backbone}`{heads} saved by keras_tta {version}, for TensorFlow, JAX and PyTorch.

{sizes}

{figures}## How to load it

Install `keras-tta`. `import keras_tta` comes first: it registers the classes this
preset names.

```python
{code}
```

`keras_hub.models.Backbone.from_preset(preset)` loads the backbone as well.

## Licence

Not stated yet. Whoever publishes these weights states it here.
"""


def model_card(backbone, heads, tokenizer, objective=None, figures=None):
    """The text of a preset's README.md: sizes, figures, how to load it."""
    sizes = {}
    if hasattr(backbone, "visibility"):
        sizes["visibility"] = f"`{backbone.visibility!r}`"
    sizes |= {x: getattr(backbone, x) for x in SIZES if hasattr(backbone, x)}
    sizes["parameters of the backbone"] = backbone.count_params()
    code = ["import keras_tta", "", 'preset = "."  # this folder']
    if tokenizer is not None:
        sizes["tokenizer"] = f"`{type(tokenizer).__name__}`"
        code.append("tokenizer = keras_tta.presets.load_tokenizer(preset)")
    code.append("backbone = keras_tta.presets.load_backbone(preset)")
    for name in heads:
        code.append(f'head = keras_tta.presets.load_head(preset, backbone, "{name}")')
    title = type(backbone).__name__
    if objective is not None:
        title = objective["registered_name"].partition(">")[2]
        code += [
            "",
            "# Or all of it, to go on training:",
            f"pretrainer = keras_tta.pretraining.{title}.from_preset(preset)",
        ]
    names = [f"`{type(head).__name__}`" for head in heads.values()]
    return CARD.format(
        title=title,
        backbone=type(backbone).__name__,
        heads=f" with {', '.join(names)}" if names else "",
        version=__version__,
        sizes=_table("size", sizes),
        figures=f"## Training\n\n{_table('figure', figures)}\n\n" if figures else "",
        code="\n".join(code),
    )


def _table(heading, rows):
    lines = [f"| {heading} | value |", "|---|---|"]
    for name, value in rows.items():
        value = f"{value:,}" if isinstance(value, int) else value
        value = f"{value:.4g}" if isinstance(value, float) else value
        # A rule may hold a bar of its own: (a | b).
        lines.append("| {} | {} |".format(name, str(value).replace("|", "\\|")))
    return "\n".join(lines)
