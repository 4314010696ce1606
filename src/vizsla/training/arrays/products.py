"""Inner products of queries and documents, dense and sparse."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class _Float32Product(torch.autograd.Function):
    """a @ b.T of 16-bit factors with 32-bit sums: tensor cores at full speed, and scores that are not rounded."""

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
            _csr(rows, columns, values, shape, device),
            _csr(columns[order], rows[order], values[order], shape[::-1], device),
        )


def sparse_rows(dense: Tensor) -> Tensor:
    """A matrix of few numbers other than 0, in CSR."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns once per process that CSR matrices are in beta
        return dense.to_sparse_csr()


def _csr(
    rows: np.ndarray, columns: np.ndarray, values: np.ndarray, shape: tuple[int, ...], device: torch.device
) -> Tensor:
    pointers = np.concatenate([[0], np.cumsum(np.bincount(rows.astype(np.int64), minlength=shape[0]))])
    arrays = pointers, columns.astype(np.int64), values.astype(np.float32)
    starts, places, numbers = map(torch.from_numpy, arrays)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns once per process that CSR matrices are in beta
        return torch.sparse_csr_tensor(starts, places, numbers, size=shape, device=device)


class _SparseProduct(torch.autograd.Function):
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
