import sys

import numpy as np
import pytest

from keras_tta.data import (
    TokenBatches,
    TTAUnigramTokenizer,
    drop_near_duplicates,
    read_documents,
    to_grain,
    to_tf_data,
    train_unigram,
)
from keras_tta.evaluation import semantic_similarity, word_errors

pytestmark = pytest.mark.agnostic

BATCHES = TokenBatches([np.arange(7, 10)], 1, 8)


@pytest.mark.parametrize(
    "package, extra, use",
    [
        ("datasketch", "data", lambda: drop_near_duplicates([])),
        ("zstandard", "data", lambda: list(read_documents("a.zst"))),
        ("sentencepiece", "data", lambda: train_unigram(["text"], 30)),
        ("sentencepiece", "data", lambda: TTAUnigramTokenizer(b"")),
        ("jiwer", "evaluation", lambda: word_errors([], [])),
        ("scipy", "evaluation", lambda: semantic_similarity(None, [])),
        ("grain", "grain", lambda: to_grain(BATCHES)),
        ("tensorflow", "tensorflow", lambda: to_tf_data(BATCHES)),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    package, extra, use, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.zst").touch()
    # The import system takes `None` for a package that is not installed.
    monkeypatch.setitem(sys.modules, package, None)
    message = rf'needs the package {package}\. In a .*: pip install "\.\[{extra}\]"'
    with pytest.raises(ImportError, match=message):
        use()
