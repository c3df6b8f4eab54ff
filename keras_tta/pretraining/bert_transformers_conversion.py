"""From a Hugging Face BERT to an objective that can be trained and used."""

from keras_tta.data import TTATokenizer
from keras_tta.layers.corruption import TokenMasking
from keras_tta.presets import load_bert_transformers
from keras_tta.presets.files import preset_file, read_json
from keras_tta.pretraining.masked_lm import MaskedLM


def convert_bert_transformers(
    directory, masking=None, single_segment=True, dtype=None, **options
):
    """Convert a Hugging Face `BertForMaskedLM` into a `MaskedLM`.

    Args:
        directory: a folder with `config.json` and `model.safetensors`, see
            `keras_tta.presets.load_bert_transformers`; and with `vocab.txt`, unless
            `masking` is given. The model then gets a `tokenizer`, which is saved with
            it, in upper or lower case as `tokenizer_config.json` says.
        masking: a `keras_tta.layers.corruption.TokenMasking`. Defaults to its own
            defaults with the special tokens that the vocabulary names.
        single_segment: see `keras_tta.presets.load_bert_transformers`.
        dtype: a dtype or policy. Defaults to the current global policy.
        **options: other arguments of `MaskedLM`.

    Returns:
        A `MaskedLM`, to train further, to save as a preset, or to use.

    Raises:
        FileNotFoundError: if a file is missing.
        PresetError: a ValueError that names the file and what is wrong with it.

    Example:
    ```text
    pretrainer = convert_bert_transformers("bert-base-uncased")
    pretrainer.save_to_preset("bert_base_uncased")
    ```
    """
    tokenizer = _tokenizer(directory, required=masking is None)
    backbone, head = load_bert_transformers(directory, single_segment, dtype)
    if masking is None:
        masking = TokenMasking(
            tokenizer.vocabulary_size(),
            tokenizer.mask_token_id,
            tokenizer.special_token_ids,
        )
    pretrainer = MaskedLM(backbone, masking, **options)
    pretrainer.head.set_weights(head.get_weights())
    if tokenizer is not None:
        pretrainer.attach_tokenizer(tokenizer)
    return pretrainer


def _tokenizer(directory, required):
    try:
        vocabulary = preset_file(directory, "vocab.txt")
    except FileNotFoundError as error:
        if not required:
            return None
        raise FileNotFoundError(
            f"{error} It tells which tokens are special; without it, pass `masking`."
        ) from None
    try:
        config = read_json(directory, "tokenizer_config.json")
    except FileNotFoundError:
        config = {}
    return TTATokenizer.from_vocabulary(
        vocabulary,
        lowercase=config.get("do_lower_case", True),
        strip_accents=config.get("strip_accents"),
        split_on_cjk=config.get("tokenize_chinese_chars", True),
    )
