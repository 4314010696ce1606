"""Scores of a batch: inner products of vectors, or of late interaction, which adds up the best matches of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from vizsla.neural.heads.colbert import TokenTexts
from vizsla.training.arrays.products import inner_products

_PRODUCTS = 1 << 26  # of tokens, made at once

Texts = TypeVar("Texts", Tensor, TokenTexts)


def scores_of(queries: Texts, documents: Sequence[Texts]) -> Tensor:
    """[queries, documents] the scores of queries with groups of documents, one group after another."""
    if isinstance(queries, TokenTexts):
        return torch.cat([max_sims(queries, group) for group in documents], 1)
    vectors: Any = torch.cat(list(documents)) if len(documents) > 1 else documents[0]
    return inner_products(queries, vectors)


def max_sims(queries: TokenTexts, documents: TokenTexts) -> Tensor:
    """[queries, documents] the sum over the tokens of a query of the highest product with a token of a document.

    A text of which no token is compared has the score 0. Few products are kept at a time; gradients need only the
    places of the highest.

    >>> some = torch.ones(1, 2, dtype=torch.bool)
    >>> queries = TokenTexts(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), some)
    >>> documents = TokenTexts(torch.tensor([[[0.5, 0.2], [0.3, -1.0]]]), some)
    >>> max_sims(queries, documents).item()
    0.699999988079071
    """
    scores: Tensor = _MaxSims.apply(queries.vectors, documents.vectors, queries.compared, documents.compared)  # type: ignore[no-untyped-call]
    return scores


class _MaxSims(torch.autograd.Function):
    """Gradients are two products with a matrix that is 0 but at the best matches, made again for each block."""

    @staticmethod
    def forward(ctx: Any, queries: Tensor, documents: Tensor, asked: Tensor, compared: Tensor) -> Tensor:
        flat = queries.flatten(0, 1)
        parts, places = [], []
        for block in _blocks(len(flat), documents):
            products = (flat @ documents[block].flatten(0, 1).T).view(len(flat), -1, documents.shape[1])
            best = products.masked_fill_(~compared[block], -torch.inf).max(2)
            values = best.values.masked_fill_(~compared[block].any(1), 0).view(*asked.shape, -1)
            parts.append((values * asked[..., None]).sum(1))
            places.append(best.indices.int())
        ctx.save_for_backward(queries, documents, asked, compared, *places)
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:
        queries, documents, asked, compared, *places = ctx.saved_tensors
        flat = queries.flatten(0, 1)
        for_queries, for_documents = torch.zeros_like(flat), []
        for block, best in zip(_blocks(len(flat), documents), places, strict=True):
            share = gradients[0][:, None, block] * compared[block].any(1)
            share = (share * asked[..., None]).flatten(0, 1)
            matches = flat.new_zeros(*best.shape, documents.shape[1])
            matches = matches.scatter_(2, best[..., None].long(), share[..., None]).flatten(1)
            for_queries += matches @ documents[block].flatten(0, 1)
            for_documents.append((matches.T @ flat).view_as(documents[block]))
        return for_queries.view_as(queries), torch.cat(for_documents), None, None


def _blocks(query_tokens: int, documents: Tensor) -> Iterator[slice]:
    """Documents whose tokens are multiplied at once with those of all queries."""
    size = max(_PRODUCTS // max(query_tokens * documents.shape[1], 1), 1)
    return (slice(first, first + size) for first in range(0, len(documents), size))
