"""Linear maps that make embeddings point in all directions.

The embeddings of language models lie in a narrow cone: all cosines are high. What is
common to all of them says nothing of any; these maps take it out.

Axes: N texts, D width, K width after the map.
"""

from numbers import Integral
from typing import NamedTuple

import numpy as np


class EmbeddingTransform(NamedTuple):
    """A map of embeddings: `(embedding - mean) @ kernel`.

    Args:
        mean: (D,).
        kernel: (D, K).
    """

    mean: np.ndarray
    kernel: np.ndarray

    def __call__(self, embeddings):
        return (embeddings - self.mean) @ self.kernel


def whitening(embeddings: np.ndarray, dim: int | None = None) -> EmbeddingTransform:
    """The map after which these embeddings have unit covariance.

    Su et al. (2021). Directions in which they do not vary are left out.

    Args:
        embeddings: (N, D).
        dim: the number of directions to keep, those of the greatest variance.
            Defaults to all in which the embeddings vary.

    Raises:
        ValueError: if they vary in fewer than `dim` directions.
    """
    mean, variances, directions = _principal_components(embeddings)
    rank = int(np.sum(variances > 1e-6 * variances[0])) if variances[0] > 0 else 0
    asked = rank if dim is None else dim
    if not isinstance(asked, Integral) or not 0 < asked <= rank:
        raise ValueError(
            f"`dim` must lie between 1 and the {rank} directions in which the "
            f"embeddings of these {len(embeddings)} texts vary: fit on more texts, "
            f"many times the width of {embeddings.shape[1]}. Received: dim={dim!r}"
        )
    kernel = directions[:, :asked] / np.sqrt(variances[:asked])
    return EmbeddingTransform(mean, kernel)


def top_component_removal(embeddings: np.ndarray, count: int = 1) -> EmbeddingTransform:
    """The map that takes out the mean and the directions of the greatest variance.

    All-but-the-top of Mu and Viswanath (ICLR 2018).

    Args:
        embeddings: (N, D).
        count: how many directions are taken out. Defaults to 1.

    Raises:
        ValueError: if `count` is not between 0 and D - 1.
    """
    width = embeddings.shape[1]
    if not isinstance(count, Integral) or not 0 <= count < width:
        raise ValueError(
            f"`count` must lie between 0 and {width - 1}, one less than the width of "
            f"the embeddings. Received: count={count!r}"
        )
    mean, _, directions = _principal_components(embeddings)
    top = directions[:, :count]
    return EmbeddingTransform(mean, np.eye(width) - top @ top.T)


def _principal_components(embeddings):
    """Mean (D,), variances, descending, and directions (D, D), one a column."""
    mean = embeddings.mean(axis=0)
    covariance = np.cov(embeddings - mean, rowvar=False, bias=True)
    variances, directions = np.linalg.eigh(np.atleast_2d(covariance))
    return mean, variances[::-1], directions[:, ::-1]
