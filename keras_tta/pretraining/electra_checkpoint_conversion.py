"""From the checkpoints of ELECTRA's authors to models that can be used and trained."""

from keras_tta.presets import load_electra_checkpoint
from keras_tta.presets.electra_checkpoint import read_electra_checkpoint
from keras_tta.pretraining.electra_transformers_conversion import (
    ElectraNetwork,
    both_networks,
)


def convert_electra_checkpoint(
    checkpoint,
    masking=None,
    network=None,
    num_heads=None,
    single_segment=True,
    dtype=None,
    **options,
):
    """Convert a checkpoint of ELECTRA's authors: one network, or both to train on.

    Args:
        checkpoint, num_heads, single_segment, dtype: as for
            `keras_tta.presets.load_electra_checkpoint`. With `masking`, `num_heads` may
            be a pair, the generator's first.
        masking: for both networks, the `keras_tta.layers.corruption.TokenMasking` to
            train them with.
        network: without `masking`, `"discriminator"`, the default, or `"generator"`.
        **options: for both networks, other arguments of `ReplacedTokenDetection`.
            `tie` defaults to what the networks of the checkpoint share.

    Returns:
        An `ElectraNetwork`, which gives the logits of one network, or a
        `ReplacedTokenDetection` of both.

    Raises:
        ImportError, FileNotFoundError, ValueError: as `load_electra_checkpoint`.
        ValueError: if what is for one network is given for both, or the reverse.

    Example:
    ```text
    electra = convert_electra_checkpoint("electra_small/electra_small")
    logits = electra({"token_ids": token_ids, "padding_mask": padding_mask})
    electra.export_to_transformers("electra_small_transformers")
    ```
    """
    variables = read_electra_checkpoint(checkpoint)
    settings = {"single_segment": single_segment, "dtype": dtype}
    if masking is None:
        if options:
            raise ValueError(
                "Options are for training both networks, which takes a `masking`. "
                f"Received: {sorted(options)}"
            )
        network = network or "discriminator"
        return ElectraNetwork(
            *load_electra_checkpoint(variables, network, num_heads, **settings)
        )
    if network is not None:
        raise ValueError(
            "With `masking` both networks are converted: leave out `network`. "
            f"Received: network={network!r}"
        )
    pair = num_heads if isinstance(num_heads, (tuple, list)) else [num_heads] * 2
    if len(pair) != 2:
        raise ValueError(
            "`num_heads` must be one number, or a pair: the generator's and the "
            f"discriminator's. Received: num_heads={num_heads!r}"
        )
    parts = [
        load_electra_checkpoint(variables, name, heads, **settings)
        for name, heads in zip(("generator", "discriminator"), pair, strict=True)
    ]
    return both_networks(*parts, masking, options)
