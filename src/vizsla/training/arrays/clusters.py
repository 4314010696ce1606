"""k-means: texts in groups of similar vectors."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

_ROWS = 16_384  # vectors compared with all centroids at once


@torch.no_grad()
def k_means(vectors: Tensor, count: int, seed: int = 0, iterations: int = 25) -> np.ndarray:
    """[vectors] the cluster of each vector, by Lloyd's algorithm from random vectors; the same seed gives the same.

    A cluster that loses all of its vectors starts again from the vector that is farthest from its centroid.

    >>> k_means(torch.tensor([[0.0], [0.1], [9.0], [9.1], [9.2]]), 2).tolist() in ([0, 0, 1, 1, 1], [1, 1, 0, 0, 0])
    True
    """
    count = min(count, len(vectors))
    vectors = vectors.float()
    first = np.random.default_rng(seed).permutation(len(vectors))[:count]
    centroids = vectors[torch.from_numpy(np.sort(first)).to(vectors.device)].clone()
    labels, distances = _nearest(vectors, centroids)
    for _ in range(iterations):
        sizes = torch.bincount(labels, minlength=count)
        sums = torch.zeros_like(centroids).index_add_(0, labels, vectors)
        centroids = sums / sizes.clamp(min=1)[:, None]
        empty = torch.nonzero(sizes == 0).squeeze(1)
        centroids[empty] = vectors[distances.topk(len(empty)).indices]
        before = labels
        labels, distances = _nearest(vectors, centroids)
        if torch.equal(before, labels) and not len(empty):
            break
    return labels.cpu().numpy()


def _nearest(vectors: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """[vectors] the nearest centroid of each, and its squared distance."""
    sizes = (centroids**2).sum(1)
    labels, distances = [], []
    for first in range(0, len(vectors), _ROWS):
        block = vectors[first : first + _ROWS]
        nearest = (sizes - 2 * block @ centroids.T).min(1)
        labels.append(nearest.indices)
        distances.append((nearest.values + (block**2).sum(1)).clamp(min=0))
    return torch.cat(labels), torch.cat(distances)
