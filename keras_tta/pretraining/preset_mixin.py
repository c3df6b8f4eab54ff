"""A pretrainer as a preset folder, and back."""

import keras

from keras_tta.presets import (
    PresetError,
    load_backbone,
    load_tokenizer,
    save_preset,
)
from keras_tta.presets.loading import load_head_weights, load_objective


class SavedAsPreset:
    """What of a `Pretrainer` saves and loads it."""

    tokenizer = None

    def attach_tokenizer(self, tokenizer):
        """Keep a tokenizer with the model, to be saved with it."""
        # Around Keras, which would take it for a layer of the model.
        object.__setattr__(self, "tokenizer", tokenizer)

    def save_to_preset(self, directory, tokenizer=None, figures=None):
        """Save backbone, head, objective and tokenizer as a preset folder.

        Not the optimizer: what a training needs to go on is a checkpoint's business.

        Args:
            directory: the folder to write. A preset that is there is replaced once the
                new one is complete.
            tokenizer: saved along. Defaults to the one the model came with.
            figures: dict of training figures for the model card.
        """
        save_preset(
            directory,
            self.backbone,
            heads={head.name: head for head in self.preset_heads()},
            tokenizer=self.tokenizer if tokenizer is None else tokenizer,
            objective={
                "registered_name": keras.saving.get_registered_name(type(self)),
                "config": self.preset_settings(),
            },
            figures=figures,
            generator=self.preset_generator(),
        )

    @classmethod
    def from_preset(cls, directory, dtype=None, **options):
        """Load what `save_to_preset` saved, with the guard of `load_backbone`.

        Args:
            directory: a local preset folder.
            dtype: a dtype or policy. Defaults to the current global policy.
            **options: the objective's arguments to use in place of those saved.

        Returns:
            The pretrainer, not compiled, with the preset's `tokenizer` if it has one.

        Raises:
            FileNotFoundError: if the folder, or a file such as the head's, is missing.
            PresetError: a ValueError, if a file does not fit or is not to be trusted,
                or the preset was saved by another objective.

        Example:
        ```python
        from keras_tta.models import TTABackbone
        from keras_tta.pretraining import LanguageAutoencoder

        backbone = TTABackbone(
            vocabulary_size=30,
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            intermediate_dim=16,
        )
        LanguageAutoencoder(backbone).save_to_preset("tiny")
        pretrainer = LanguageAutoencoder.from_preset("tiny")
        assert pretrainer.special_token_ids == (0, 1, 3, 4)
        ```
        """
        saved_by, settings = load_objective(directory)
        if saved_by not in (None, keras.saving.get_registered_name(cls)):
            raise PresetError(
                directory,
                f"saved by {saved_by}, not {cls.__name__}. To begin another training "
                f"from its backbone: {cls.__name__}(keras_tta.presets."
                "load_backbone(...)).",
            )
        pretrainer = cls.from_preset_parts(directory, dtype, {**settings, **options})
        for head in pretrainer.preset_heads():
            load_head_weights(directory, head)
        try:
            pretrainer.attach_tokenizer(load_tokenizer(directory))
        except FileNotFoundError:
            # A preset may come without one.
            pass
        return pretrainer

    def preset_heads(self):
        """The heads that a preset holds beside the backbone."""
        return [self.head]

    def preset_generator(self):
        """The backbone and the heads of a preset within the preset, or `None`."""
        return None

    def preset_settings(self):
        """What a preset says of the objective: plain values and corruption layers."""
        settings = self.get_config()
        return {k: v for k, v in settings.items() if k not in ("name", "backbone")}

    @classmethod
    def from_preset_parts(cls, directory, dtype, settings):
        """The objective on the models of a preset; heads are loaded afterwards."""
        return cls(load_backbone(directory, dtype=dtype), **settings)
