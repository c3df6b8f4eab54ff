"""From Hugging Face's ELECTRA to models that can be used and trained, and back."""

from pathlib import Path

import keras
import numpy as np

from keras_tta.presets import load_electra_transformers, save_electra_transformers
from keras_tta.pretraining.generator_objective import copy_head_weights
from keras_tta.pretraining.generators import restore_embeddings
from keras_tta.pretraining.replaced_token_detection import ReplacedTokenDetection


class ElectraNetwork(keras.Model):
    """One of ELECTRA's two networks with its head: the backbone's inputs to logits.

    Args:
        backbone: a `keras_tta.models.TransformerBackbone`.
        head: its `ReplacedTokenHead`, for logits (B, T), or `TokenPredictionHead`, for
            logits (B, T, V).

    Example: see `convert_electra_transformers`. To save it, use
    `export_to_transformers`, or `keras_tta.presets.save_preset` with backbone and head.
    """

    def __init__(self, backbone, head, **kwargs):
        super().__init__(backbone.input, head(backbone.output), **kwargs)
        self.backbone = backbone
        self.head = head

    def export_to_transformers(self, directory):
        """Write the folder that Hugging Face's ELECTRA reads the same logits from.

        See `keras_tta.presets.save_electra_transformers`.
        """
        save_electra_transformers(directory, self.backbone, self.head)


def convert_electra_transformers(
    directory, masking=None, single_segment=True, dtype=None, **options
):
    """Convert a Hugging Face ELECTRA: one network, or both to go on training.

    Args:
        directory: a folder with the `config.json` and `model.safetensors` of an
            `ElectraForPreTraining` or an `ElectraForMaskedLM`; or a folder with two
            such folders, `discriminator` and `generator`, as `export_to_transformers`
            of `ReplacedTokenDetection` writes.
        masking: for both networks, the `keras_tta.layers.corruption.TokenMasking` to
            train them with.
        single_segment: whether inputs are single texts, see
            `keras_tta.presets.load_bert_transformers`.
        dtype: a dtype or policy. Defaults to the current global policy.
        **options: for both networks, other arguments of `ReplacedTokenDetection`. What
            `tie` makes the two share is the discriminator's; it defaults to
            `"all"` or `"embeddings"` where the two folders have the same, else to
            `"none"`.

    Returns:
        An `ElectraNetwork`, which gives the logits of its folder, or a
        `ReplacedTokenDetection` for both.

    Raises:
        FileNotFoundError: if a file is missing.
        PresetError: a ValueError that names the file and what is wrong with it; where a
            generator's weights meet a discriminator's config, it says so.
        ValueError: if there are two networks and no `masking`, or the reverse.

    Example:
    ```python
    import numpy as np
    from keras_tta.models import TransformerBackbone, replaced_token_head
    from keras_tta.presets import save_electra_transformers
    from keras_tta.pretraining import convert_electra_transformers

    backbone = TransformerBackbone(
        vocabulary_size=30,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=16,
    )
    save_electra_transformers("electra", backbone, replaced_token_head(backbone))
    electra = convert_electra_transformers("electra")
    ids = np.array([[3, 12, 17, 1]])
    logits = electra({"token_ids": ids, "padding_mask": np.ones_like(ids)})
    assert tuple(logits.shape) == (1, 4)
    electra.export_to_transformers("again")
    ```
    """
    both = Path(directory, "discriminator").is_dir()
    if both == (masking is None):
        raise ValueError(
            f"{directory} holds {'both networks' if both else 'one network'}: "
            f"{'give' if both else 'leave out'} `masking`, which trains the two."
        )
    if not both:
        if options:
            raise ValueError(
                "Options are for training both networks; this folder holds one. "
                f"Received: {sorted(options)}"
            )
        network = load_electra_transformers(directory, single_segment, dtype)
        return ElectraNetwork(*network)
    parts = [
        load_electra_transformers(Path(directory, name), single_segment, dtype)
        for name in ("generator", "discriminator")
    ]
    return both_networks(*parts, masking, options)


def both_networks(generator, discriminator, masking, options):
    """The objective over two networks, pairs of a backbone and its head."""
    (generator, generator_head), (discriminator, head) = generator, discriminator
    if "tie" not in options and options.get("generator_weight", 1.0):
        options["tie"] = _what_is_shared(generator, discriminator)
    electra = ReplacedTokenDetection(
        None if options.get("tie") == "all" else generator,
        discriminator,
        masking,
        **options,
    )
    restore_embeddings(electra, generator, discriminator)
    copy_head_weights(generator_head, electra.generator_head)
    electra.head.set_weights(head.get_weights())
    return electra


def _what_is_shared(generator, discriminator):
    """The `tie` of two networks, by their weights."""
    for tie in ("all", "embeddings"):
        parts = generator, discriminator
        if tie == "embeddings":
            parts = [part.embeddings for part in parts]
        weights = [part.get_weights() for part in parts]
        if len(weights[0]) == len(weights[1]) and all(map(np.array_equal, *weights)):
            return tie
    return "none"
