"""From the authors' T-TA checkpoint to an objective that can be trained and used."""

from keras_tta.data import TTATokenizer
from keras_tta.models import TTABackbone
from keras_tta.presets import assign_tta_variables, read_tta_checkpoint, tta_sizes
from keras_tta.pretraining.language_autoencoder import LanguageAutoencoder


def convert_tta_checkpoint(checkpoint, num_heads, vocabulary=None):
    """Convert a checkpoint of the authors' T-TA code into a `LanguageAutoencoder`.

    Sizes are read from the checkpoint. The pooler, which T-TA's loss never trained,
    and the optimizer's state are skipped, and a log line says so.

    Args:
        checkpoint: the name that a TensorFlow 1 checkpoint's files share, such as
            `"model.ckpt-2000000"`; reading it needs TensorFlow. Or a dict of arrays by
            the authors' variable names.
        num_heads: number of attention heads, which no shape tells; 8 in the published
            model.
        vocabulary: path of its `vocab.txt`. The ids of special tokens are then found by
            name, and the model gets a `tokenizer`, which is saved with it. Defaults to
            none, for which the ids are those of the published vocabulary.

    Returns:
        A `LanguageAutoencoder` with dropout 0.1, as the authors train.

    Raises:
        ImportError: if TensorFlow is needed and not installed.
        FileNotFoundError: if there is no such checkpoint.
        ValueError: if variables are missing, unknown or of another shape, or the
            vocabulary is not as long as the embedding table.

    Example:
    ```text
    pretrainer = convert_tta_checkpoint("model.ckpt-2000000", 8, "vocab.txt")
    pretrainer.save_to_preset("tta_english")
    ```
    """
    variables = checkpoint
    if not isinstance(checkpoint, dict):
        variables = read_tta_checkpoint(checkpoint)
    sizes = tta_sizes(variables)
    special_tokens, tokenizer = {}, None
    if vocabulary is not None:
        tokenizer = TTATokenizer.from_vocabulary(vocabulary)
        if tokenizer.vocabulary_size() != sizes["vocabulary_size"]:
            raise ValueError(
                f"The vocabulary has {tokenizer.vocabulary_size()} tokens, the "
                f"checkpoint's embedding table {sizes['vocabulary_size']} rows: they "
                f"do not belong together. Received: vocabulary={vocabulary!r}"
            )
        special_tokens = {"special_token_ids": tokenizer.special_token_ids}
        sizes["mask_token_id"] = tokenizer.mask_token_id
    pretrainer = LanguageAutoencoder(
        TTABackbone(num_heads=num_heads, **sizes), **special_tokens
    )
    assign_tta_variables(variables, pretrainer.backbone, pretrainer.head)
    if tokenizer is not None:
        pretrainer.attach_tokenizer(tokenizer)
    return pretrainer
