"""What other libraries have, to be timed beside ours."""


def transformers_collator(vocabulary_size, pad_token_id, mask_token_id, **options):
    """Hugging Face's BERT masking, for texts of words that are their own ids."""
    from tokenizers import Tokenizer, models
    from transformers import DataCollatorForLanguageModeling, PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(vocabulary_size)}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w2")),
        pad_token=f"w{pad_token_id}",
        mask_token=f"w{mask_token_id}",
    )
    return DataCollatorForLanguageModeling(tokenizer, **options)
