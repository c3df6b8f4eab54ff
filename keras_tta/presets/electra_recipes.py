"""ELECTRA's sizes and training, as its authors used them, and where each number stands.

The authors' code trains the small model; what the others need differently stands there
in comments alone. To set its `model_size` to "base" and nothing else trains a base
model with a small one's length, batch and learning rate, which diverges.
"""

from dataclasses import dataclass, field, fields

from keras_tta.layers.corruption import TokenMasking
from keras_tta.models import TransformerBackbone
from keras_tta.training import AdamWeightDecay, WarmupLinearDecay

CODE = "the authors' code"
DEFAULT = "configure_pretraining.py, a default"
COMMENT = "configure_pretraining.py, a comment"
FLOPS = "flops_computation.py"
OURS = "ours"


@dataclass(frozen=True)
class ElectraRecipe:
    """The sizes of both of ELECTRA's networks, and how to train them.

    `dataclasses.replace(recipe, ...)` gives a recipe of other numbers.

    Args:
        name: the size's.
        num_layers, embedding_dim, dropout, kernel_initializer: of both networks, see
            `keras_tta.models.TransformerBackbone`.
        hidden_dim, num_heads, intermediate_dim: the discriminator's.
        generator_fraction: of the discriminator's width, for the generator's. It has as
            many layers, is four times as wide within, and has a head for every 64
            units, one at least.
        mask_rate: the share of the tokens that are chosen.
        sequence_length: T, also the networks' `max_sequence_length`.
        batch_size: rows in a step.
        learning_rate, steps, warmup_steps: of the schedule: the peak, its length, and
            how much of that is the warm-up.
        weight_decay: the optimizer's.
        source: where the numbers stand, unless `sources` says otherwise.
        sources: where a number stands, by its name.

    Example:
    ```python
    from keras_tta.presets import ELECTRA_RECIPES

    recipe = ELECTRA_RECIPES["tiny"]
    generator, discriminator = recipe.backbones(vocabulary_size=100)
    assert generator.hidden_dim == recipe.generator_fraction * discriminator.hidden_dim
    masking = recipe.masking(100, mask_token_id=4, special_token_ids=(0, 1, 3))
    print(recipe.describe())
    ```
    """

    name: str
    num_layers: int
    hidden_dim: int
    num_heads: int
    intermediate_dim: int
    embedding_dim: int
    generator_fraction: float
    mask_rate: float
    sequence_length: int
    batch_size: int
    learning_rate: float
    steps: int
    warmup_steps: int = 10_000
    weight_decay: float = 0.01
    dropout: float = 0.1
    kernel_initializer: str = "bert"
    source: str = field(default=CODE, repr=False)
    sources: dict = field(default_factory=dict, repr=False)

    def describe(self):
        """The recipe as text: a line a number, with its source."""
        lines = [f"ELECTRA {self.name}"]
        for entry in fields(self):
            if entry.name not in ("name", "source", "sources"):
                source = self.sources.get(entry.name, self.source)
                value = getattr(self, entry.name)
                form = {int: ",", float: ".3g"}.get(type(value), "")
                lines.append(f"{entry.name:20}{value:{form}}".ljust(34) + source)
        return "\n".join(lines)

    def backbones(self, vocabulary_size, **options):
        """Both networks, new ones.

        Args:
            vocabulary_size: V.
            **options: other arguments of both `keras_tta.models.TransformerBackbone`s.

        Returns:
            `(generator, discriminator)`.
        """
        shared = {
            "vocabulary_size": vocabulary_size,
            "num_layers": self.num_layers,
            "max_sequence_length": self.sequence_length,
            "embedding_dim": self.embedding_dim,
            "dropout": self.dropout,
            "kernel_initializer": self.kernel_initializer,
            **options,
        }
        width = round(self.hidden_dim * self.generator_fraction)
        heads = max(1, width // 64)
        while width % heads:
            heads -= 1
        generator = TransformerBackbone(
            num_heads=heads,
            hidden_dim=width,
            intermediate_dim=4 * width,
            **shared,
        )
        discriminator = TransformerBackbone(
            num_heads=self.num_heads,
            hidden_dim=self.hidden_dim,
            intermediate_dim=self.intermediate_dim,
            **shared,
        )
        return generator, discriminator

    def masking(self, vocabulary_size, mask_token_id, special_token_ids, **options):
        """ELECTRA's masking: 85 % of the chosen tokens masked, the others as they were.

        Args:
            vocabulary_size, mask_token_id, special_token_ids, **options: as for
                `keras_tta.layers.corruption.TokenMasking`.
        """
        settings = {
            "mask_rate": self.mask_rate,
            "mask_share": 0.85,
            "random_share": 0.0,
            "count_specials": True,
        }
        return TokenMasking(
            vocabulary_size, mask_token_id, special_token_ids, **{**settings, **options}
        )

    def optimizer(self, **options):
        """ELECTRA's Adam with the schedule of all `steps`, for `compile`.

        Args:
            **options: other arguments of `keras_tta.training.AdamWeightDecay`.
        """
        schedule = WarmupLinearDecay(
            self.learning_rate, self.warmup_steps, self.steps, warmup="multiply"
        )
        return AdamWeightDecay(
            schedule, **{"weight_decay": self.weight_decay, **options}
        )


# Of every size; and what the small model's defaults are, and comments for the others.
DEFAULTS = dict.fromkeys(("mask_rate", "warmup_steps", "weight_decay"), DEFAULT)
BY_SIZE = ("embedding_dim", "sequence_length", "batch_size", "learning_rate")
ELECTRA_RECIPES = {
    recipe.name: recipe
    for recipe in (
        ElectraRecipe(
            name="tiny",
            num_layers=2,
            hidden_dim=128,
            num_heads=2,
            intermediate_dim=512,
            embedding_dim=128,
            generator_fraction=0.5,
            mask_rate=0.15,
            sequence_length=64,
            batch_size=32,
            learning_rate=1e-3,
            steps=20_000,
            warmup_steps=1_000,
            dropout=0.0,
            kernel_initializer="lecun_normal",
            source=OURS,
            sources={"mask_rate": DEFAULT, "weight_decay": DEFAULT},
        ),
        ElectraRecipe(
            name="small",
            num_layers=12,
            hidden_dim=256,
            num_heads=4,
            intermediate_dim=1024,
            embedding_dim=128,
            generator_fraction=1 / 4,
            mask_rate=0.15,
            sequence_length=128,
            batch_size=128,
            learning_rate=5e-4,
            steps=1_000_000,
            sources={
                **DEFAULTS,
                **dict.fromkeys([*BY_SIZE, "generator_fraction", "steps"], DEFAULT),
            },
        ),
        ElectraRecipe(
            name="base",
            num_layers=12,
            hidden_dim=768,
            num_heads=12,
            intermediate_dim=3072,
            embedding_dim=768,
            generator_fraction=1 / 3,
            mask_rate=0.15,
            sequence_length=512,
            batch_size=256,
            learning_rate=2e-4,
            steps=766_000,
            sources={
                **DEFAULTS,
                **dict.fromkeys(BY_SIZE, COMMENT),
                "generator_fraction": COMMENT,
                "steps": FLOPS,
            },
        ),
        ElectraRecipe(
            name="large",
            num_layers=24,
            hidden_dim=1024,
            num_heads=16,
            intermediate_dim=4096,
            embedding_dim=1024,
            generator_fraction=1 / 4,
            mask_rate=0.25,
            sequence_length=512,
            batch_size=2048,
            learning_rate=2e-4,
            steps=400_000,
            sources={
                **DEFAULTS,
                **dict.fromkeys(BY_SIZE, COMMENT),
                "mask_rate": COMMENT,
                "generator_fraction": DEFAULT,
                "steps": f"{FLOPS}; the published model: 1,750,000",
            },
        ),
    )
}
