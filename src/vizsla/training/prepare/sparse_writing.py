"""Trained learned sparse models, written to search with and as others open them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.errors import VizslaError
from vizsla.models import LearnedSparse, Model, Sparta, Splade
from vizsla.models.learned_sparse import QUERIES
from vizsla.models.sparta import LENGTH as SPARTA_LENGTH
from vizsla.neural.chunks import SPECIAL_TOKENS
from vizsla.neural.query_tables import PieceVectors, TermWeights
from vizsla.text import Analyzer
from vizsla.training.prepare.writing import SAMPLE, write_network

if TYPE_CHECKING:
    from torch import Tensor

    from vizsla.training.arrays.token_corpus import TokenCorpus

_HEADROOM = 1.1  # of the stored range of weights, above the highest weight seen
_CHUNK = 1 << 14  # tokens
_TABLE_TERMS = 16  # of a piece in a table for queries


def write_sparse_model(
    network: Any,
    analyzer: Analyzer,
    corpus: TokenCorpus,
    output: Path,
    *,
    name: str,
    fields: Sequence[str],
    query_table: bool,
) -> None:
    """Write a network of `SPARSE_HEADS` as a model in 8 bits, and in floats as other libraries open it.

    `corpus`: documents that the scales of 8 bits are fitted on. `query_table`: also what the network makes of each word
    piece by itself (`PieceVectors`).
    """
    from vizsla.neural.heads.splade import SpladeDoc
    from vizsla.neural.layouts import save_layout
    from vizsla.training.arrays.special_tokens import sample_of

    pieces = network.eval().piece_vectors(_TABLE_TERMS) if query_table else None  # before it leaves a GPU
    network = network.cpu()
    length = network.encoder.config.max_position_embeddings
    highest = _highest_weight(network, corpus, length)
    if not highest > 0:
        raise VizslaError(
            "the network gives no term a weight any more; train with a lower learning rate, as in "
            "--set training.learning_rate=1e-5"
        )
    sample = sample_of(corpus, SAMPLE, length)
    reads, table = (network.documents, network.query_weights) if isinstance(network, SpladeDoc) else (network, None)
    written = write_network(reads, output, max_weight=_HEADROOM * highest, length=length, sample=sample)
    told: dict[str, Any] = {"fields": tuple(fields), "namespace": name, "name": name}
    model: Model
    weights = None
    if table is not None:
        weights = table.detach().float().numpy()
        queries = TermWeights.write(output / QUERIES, weights)
        model = Splade(written, analyzer, queries, max_weight=_HEADROOM * highest, **told)
    elif network.kind == "sparta":
        model = Sparta(written, analyzer, min(SPARTA_LENGTH, written.length), **told)
    else:
        model = LearnedSparse(written, analyzer, **told)
        if pieces is not None:
            model = replace(model, query_table=_write_query_table(pieces, output / QUERIES))
    model.save(output)
    shutil.rmtree(output / QUERIES, ignore_errors=True)  # it has been copied under its hash
    save_layout(reads, analyzer.tokenizer.content, output, weights)  # type: ignore[attr-defined]


def _write_query_table(pieces: tuple[Tensor, Tensor], folder: Path) -> PieceVectors:
    """The terms and weights of each word piece by itself, as a table; special tokens have none."""
    terms, weights = (values.cpu().numpy().copy() for values in pieces)
    weights[list(SPECIAL_TOKENS)] = 0
    return PieceVectors.write(folder, terms, weights)


def _highest_weight(network: Any, corpus: TokenCorpus, length: int) -> float:
    """The highest weight that a network gives a term in a sample of documents."""
    import torch

    from vizsla.neural.chunks import packed
    from vizsla.training.arrays.special_tokens import with_special_tokens

    chosen = np.linspace(0, len(corpus) - 1, min(len(corpus), SAMPLE)).astype(int)
    with torch.inference_mode():
        batch = packed(*with_special_tokens(corpus, chosen, "cpu", max_length=length), _CHUNK, side=1)
        return max(float(network(chunk).max()) for chunk in batch.chunks)
