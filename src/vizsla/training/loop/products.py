"""Scores of a batch: inner products of dense and of sparse vectors, and late interaction."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from vizsla.neural.heads.colbert import TokenTexts
from vizsla.neural.lazy_torch import Function, torch

if TYPE_CHECKING:
    from torch import Tensor


class SparseRows(NamedTuple):
    """Sparse vectors in CSR: where each vector begins, its terms, their weights."""

    pointers: np.ndarray
    terms: np.ndarray
    weights: np.ndarray

    def dense(self, first: int, last: int, size: int, device: torch.device) -> Tensor:
        """[vectors, size] the vectors from `first` to before `last`."""
        begin, end = int(self.pointers[first]), int(self.pointers[last])
        rows = np.repeat(np.arange(last - first), np.diff(self.pointers[first : last + 1]))
        dense = torch.zeros(last - first, size, device=device)
        terms, weights = self.terms[begin:end].astype(np.int64), self.weights[begin:end].astype(np.float32)
        rows_at, terms_at, values = (torch.from_numpy(array).to(device) for array in (rows, terms, weights))
        dense[rows_at, terms_at] = values
        return dense


class _Float32Product(Function):
    """a @ b.T of 16-bit factors, accumulated in 32 bits: tensor cores at full speed, without rounding the scores."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.mm(a, b.T, out_dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        a, b = ctx.saved_tensors
        gradient = gradients[0].to(a.dtype)
        return gradient @ b, gradient.T @ a


def inner_products(queries: Tensor, documents: Tensor) -> Tensor:
    """[queries, documents] the scores, summed in 32 bits at least."""
    if queries.is_cuda and queries.dtype in (torch.bfloat16, torch.float16):
        scores: Tensor = _Float32Product.apply(queries, documents)  # type: ignore[no-untyped-call]
        return scores
    dtype = torch.promote_types(queries.dtype, torch.float32)
    return queries.to(dtype) @ documents.to(dtype).T


class SparseMatrix(NamedTuple):
    """A sparse matrix and its transpose, both in CSR: products with either are fast, and so are their gradients."""

    matrix: Tensor
    transpose: Tensor

    @classmethod
    def of(
        cls, rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, int], device: torch.device
    ) -> SparseMatrix:
        """From the row, column and value of each number, in order of rows."""
        order = np.argsort(columns, kind="stable")
        return cls(
            csr(rows, columns, values, shape, device),
            csr(columns[order], rows[order], values[order], shape[::-1], device),
        )


def sparse_rows(dense: Tensor) -> Tensor:
    """A dense matrix with few nonzero values, in CSR."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns once per process that CSR matrices are in beta
        return dense.to_sparse_csr()


def csr(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, ...], device: torch.device
) -> Tensor:
    """A matrix in CSR, from the row, column and value of each number, in order of rows."""
    pointers = np.concatenate([[0], np.cumsum(np.bincount(rows.astype(np.int64), minlength=shape[0]))])
    arrays = pointers, columns.astype(np.int64), values.astype(np.float32)
    starts, places, numbers = map(torch.from_numpy, arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns once per process that CSR matrices are in beta
        return torch.sparse_csr_tensor(starts, places, numbers, size=shape, device=device)


class _SparseProduct(Function):
    @staticmethod
    def forward(ctx: Any, dense: Tensor, sparse: SparseMatrix) -> Tensor:
        ctx.transpose = sparse.transpose.to(dense.dtype)
        product: Tensor = sparse.matrix.to(dense.dtype) @ dense
        return product

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return ctx.transpose @ gradients[0].contiguous(), None


def sparse_product(sparse: SparseMatrix, dense: Tensor) -> Tensor:
    """[rows, queries] a sparse matrix times dense columns; gradients flow to the dense columns."""
    product: Tensor = _SparseProduct.apply(dense, sparse)  # type: ignore[no-untyped-call]
    return product


_PRODUCTS = 1 << 26  # of tokens, made at once

Texts = TypeVar("Texts", "Tensor", TokenTexts)


def scores_of(queries: Texts, documents: Sequence[Texts]) -> Tensor:
    """[queries, documents] the scores of queries with groups of documents, one group after another."""
    if isinstance(queries, TokenTexts):
        return torch.cat([max_sims(queries, group) for group in documents], 1)
    vectors: Any = torch.cat(list(documents)) if len(documents) > 1 else documents[0]
    return inner_products(queries, vectors)


def max_sims(queries: TokenTexts, documents: TokenTexts) -> Tensor:
    """[queries, documents] the sum over the tokens of a query of the highest product with a token of a document.

    A text without a token to compare has the score 0. Only a few products are in memory at a time; the backward pass
    needs only the positions of the highest.

    >>> some = torch.ones(1, 2, dtype=torch.bool)
    >>> queries = TokenTexts(torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]), some)
    >>> documents = TokenTexts(torch.tensor([[[0.5, 0.2], [0.3, -1.0]]]), some)
    >>> max_sims(queries, documents).item()
    0.699999988079071
    """
    scores: Tensor = _MaxSims.apply(queries.vectors, documents.vectors, queries.compared, documents.compared)  # type: ignore[no-untyped-call]
    return scores


class _MaxSims(Function):
    """Gradients are two products with a matrix that is 0 except at the best matches, recomputed for each block."""

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
