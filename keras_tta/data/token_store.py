"""The token store: token ids on disk, written once, read through memory maps."""

import hashlib
import json
import os
import pathlib
import tempfile
from collections.abc import Sequence

import numpy as np

from keras_tta.data.sequences import TokenSequences, split_hashes
from keras_tta.files import sha256

FORMAT = "keras_tta token store 1"
INDEX = "store.json"


class TokenStore:
    """Token ids of a corpus on disk, without special tokens: `write_token_store`'s.

    The folder holds `store.json`, which says what the store was made from, and one
    folder a shard of three `.npy` files: the tokens (uint16 or uint32, by the size of
    the vocabulary), the end of every sentence in tokens, and of every document its end
    in sentences and the hash of its text. A memory map reads them: opening a store of
    any size takes no time and no memory. Plain arrays and JSON need no library to
    read, append by adding files, and cannot run code.

    Args:
        folder: the store.
        tokenizer: the tokenizer that it will be used with, or `None` to ask no
            questions.

    Attributes:
        sentences: `TokenSequences`, one a sentence.
        documents: `TokenSequences`, one a document.
        info: what `store.json` says: sources, tokenizer, counts.

    Raises:
        FileNotFoundError: `folder` holds no finished store.
        ValueError: the store was made with another tokenizer, or is damaged.

    Example:
    ```python
    import pathlib, tempfile
    from keras_tta.data import TokenStore, train_wordpiece, write_token_store

    text = "The cat sat.\\nIt purred.\\n\\nA second document.\\n"
    tokenizer = train_wordpiece(text.splitlines(), 60, min_frequency=1)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "corpus.txt")
        path.write_text(text)
        write_token_store(f"{folder}/store", path, tokenizer)
        store = TokenStore(f"{folder}/store", tokenizer)
        assert len(store.sentences) == 3 and len(store.documents) == 2
        sentence = store.sentences[1].tolist()
    assert tokenizer.detokenize(sentence) == "it purred ."
    ```
    """

    def __init__(self, folder: str | os.PathLike, tokenizer=None):
        self.folder = pathlib.Path(folder)
        self.info = read_index(self.folder)
        if tokenizer is not None:
            check_tokenizer(self.info, tokenizer, self.folder)
        shards = [_Shard(self.folder / s["name"], s) for s in self.info["shards"]]
        self._tokens = _join([shard.tokens for shard in shards])
        self._sentence_offsets = _join_offsets(
            [shard.sentence_ends for shard in shards]
        )
        self._document_offsets = _join_offsets(
            [shard.documents["end"] for shard in shards]
        )
        self._hashes = np.concatenate(
            [np.empty(0, np.uint64), *(shard.documents["hash"] for shard in shards)]
        )

    @property
    def sentences(self) -> TokenSequences:
        lengths = np.diff(self._sentence_offsets)
        return TokenSequences.from_lengths(self._tokens, lengths)

    @property
    def documents(self) -> TokenSequences:
        lengths = np.diff(self._sentence_offsets[self._document_offsets])
        return TokenSequences.from_lengths(self._tokens, lengths)

    def __len__(self):
        return len(self._tokens)

    def split(
        self, held_out_fraction: float = 0.05, unit: str = "sentences"
    ) -> tuple[TokenSequences, TokenSequences]:
        """Sequences of the documents to train on, and of those held out.

        The sides are those of `split_documents`: fixed by a hash of a document's text.

        Args:
            held_out_fraction: float, between 0 and 1. Defaults to 0.05.
            unit: `"sentences"` or `"documents"`.

        Raises:
            ValueError: `held_out_fraction` is not between 0 and 1, or one side is left
                without documents.
        """
        if unit not in ("sentences", "documents"):
            raise ValueError(
                f"`unit` must be 'sentences' or 'documents'. Received: unit={unit!r}"
            )
        held_out = split_hashes(self._hashes, held_out_fraction)
        if unit == "sentences":
            held_out = np.repeat(held_out, np.diff(self._document_offsets))
        sequences = getattr(self, unit)
        return (
            sequences.select(np.flatnonzero(~held_out)),
            sequences.select(np.flatnonzero(held_out)),
        )

    def verify(self) -> None:
        """Read every shard and compare it with the hashes taken when it was written.

        Raises:
            ValueError: a file has changed since.
        """
        for shard in self.info["shards"]:
            folder = self.folder / shard["name"]
            for name, expected in shard["sha256"].items():
                if sha256(folder / name) != expected:
                    raise ValueError(
                        f"{folder / name} has changed since it was written. Write the "
                        "store anew."
                    )


class _Shard:
    """The memory-mapped arrays of one shard, checked against the index."""

    def __init__(self, folder, info):
        self.tokens, self.sentence_ends, self.documents = (
            _map(folder / f"{name}.npy")
            for name in ("tokens", "sentences", "documents")
        )
        found = {
            "tokens": len(self.tokens),
            "sentences": len(self.sentence_ends),
            "documents": len(self.documents),
        }
        expected = {name: info[name] for name in found}
        if found != expected:
            raise ValueError(
                f"{folder} holds {found}, but the store's index says {expected}. The "
                "store is damaged: write it anew."
            )


class JoinedArrays:
    """One-dimensional arrays as one, read by `take` without copying them together."""

    def __init__(self, arrays: Sequence[np.ndarray]):
        self.arrays = list(arrays)
        self.ends = np.cumsum([len(array) for array in self.arrays])
        self.dtype = np.result_type(*self.arrays)

    def __len__(self):
        return int(self.ends[-1])

    def take(self, indices: np.ndarray) -> np.ndarray:
        which = np.searchsorted(self.ends, indices, side="right")
        out = np.empty(indices.shape, self.dtype)
        for number in np.unique(which):
            chosen = which == number
            array = self.arrays[number]
            start = self.ends[number] - len(array)
            out[chosen] = array[indices[chosen] - start]
        return out


def read_index(folder: pathlib.Path) -> dict:
    """Read a store's `store.json`."""
    path = folder / INDEX
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder} holds no finished token store: there is no {INDEX}. Make one "
            "with write_token_store, which also finishes one that was interrupted."
        )
    info = json.loads(path.read_text(encoding="utf-8"))
    if info.get("format") != FORMAT:
        raise ValueError(
            f"{path} is not in the format {FORMAT!r}. Received: "
            f"format={info.get('format')!r}"
        )
    return info


def check_tokenizer(info: dict, tokenizer, folder) -> None:
    """Raise unless `tokenizer` is the one a store was made with."""
    identity = identify_tokenizer(tokenizer)
    if identity != info["tokenizer"]:
        raise ValueError(
            f"The token store {folder} was made with another tokenizer: its ids would "
            f"mean other tokens.\nThe store's: {info['tokenizer']}\nReceived:    "
            f"{identity}\nUse the store's tokenizer, or write another store."
        )


def identify_tokenizer(tokenizer) -> dict:
    """What tells a tokenizer from another: class, options, and hash of its tokens."""
    config = {
        key: value
        for key, value in tokenizer.get_config().items()
        if isinstance(value, (str, int, float, bool))
        and key not in ("name", "trainable", "config_file", "dtype")
    }
    return {
        "class": type(tokenizer).__name__,
        "options": config,
        "vocabulary_size": tokenizer.vocabulary_size(),
        "sha256": _hash_assets(tokenizer),
    }


def _hash_assets(tokenizer):
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save_assets(folder)
        for path in sorted(pathlib.Path(folder).iterdir()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _map(path):
    return np.load(path, mmap_mode="r", allow_pickle=False)


def _join(arrays):
    if not arrays:
        return np.empty(0, np.uint16)
    return arrays[0] if len(arrays) == 1 else JoinedArrays(arrays)


def _join_offsets(ends):
    """Offsets from the ends within every shard."""
    lengths = [np.diff(np.asarray(e, np.int64), prepend=0) for e in ends]
    return np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))
