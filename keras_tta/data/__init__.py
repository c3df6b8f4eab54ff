"""Text in, batches of token ids out."""

from keras_tta.data.batches import TokenBatches
from keras_tta.data.cleaning import (
    CleaningReport,
    CleaningRule,
    c4_rules,
    clean_documents,
    keep_languages,
)
from keras_tta.data.corpus import (
    CorpusError,
    CorpusReport,
    iterate_sentences,
    read_documents,
)
from keras_tta.data.demo_corpus import python_documentation
from keras_tta.data.duplicates import drop_exact_duplicates, drop_near_duplicates
from keras_tta.data.grain_and_tf_data import to_grain, to_tf_data
from keras_tta.data.sentences import split_sentences
from keras_tta.data.sequences import (
    TokenSequences,
    is_held_out,
    split_documents,
    unigram_nats_per_token,
)
from keras_tta.data.subword_tokenizers import (
    TTABytePairTokenizer,
    TTAUnigramTokenizer,
)
from keras_tta.data.token_store import TokenStore
from keras_tta.data.token_store_writer import write_token_store
from keras_tta.data.tokenizer_training import (
    train_byte_pair,
    train_unigram,
    train_wordpiece,
)
from keras_tta.data.tokenizers import SPECIAL_TOKENS, TTATokenizer

__all__ = [
    "SPECIAL_TOKENS",
    "CleaningReport",
    "CleaningRule",
    "CorpusError",
    "CorpusReport",
    "TTABytePairTokenizer",
    "TTATokenizer",
    "TTAUnigramTokenizer",
    "TokenBatches",
    "TokenSequences",
    "TokenStore",
    "c4_rules",
    "clean_documents",
    "drop_exact_duplicates",
    "drop_near_duplicates",
    "is_held_out",
    "iterate_sentences",
    "keep_languages",
    "python_documentation",
    "read_documents",
    "split_documents",
    "split_sentences",
    "to_grain",
    "to_tf_data",
    "train_byte_pair",
    "train_unigram",
    "train_wordpiece",
    "unigram_nats_per_token",
    "write_token_store",
]
