"""Models in folders that others open, too: with a model card, and in the layout of SparseEncoder where it has one."""

from __future__ import annotations

from pathlib import Path

from vizsla.models.card import write_card
from vizsla.models.learned_sparse import LearnedSparse
from vizsla.models.model import Model
from vizsla.models.splade import Splade
from vizsla.neural.layouts import SPARSE_KINDS, save_sparse_layout
from vizsla.neural.network import Network
from vizsla.neural.query_tables import TermWeights
from vizsla.neural.weights import read_weights
from vizsla.text import Analyzer, WordPiece


def save_model(model: Model, folder: str | Path) -> bool:
    """Write a model, its card, and what sentence-transformers' SparseEncoder opens; gives whether it can open it.

    A learned sparse model of one network can be opened so: a SPLADE as it is, a uniCOIL with code of its own that has
    to be trusted.
    """
    path = Path(folder)
    model.save(path)
    layout = _write_layout(model, path)
    write_card(path)
    return layout


def _write_layout(model: Model, folder: Path) -> bool:
    if not isinstance(model, LearnedSparse | Splade):
        return False
    network, analyzer = model.network, model.analyzer
    if not isinstance(network, Network) or network.kind not in SPARSE_KINDS or not isinstance(analyzer, Analyzer):
        return False
    queries = model.query_network if isinstance(model, Splade) else None
    if queries is not None and not isinstance(queries, TermWeights):
        return False
    assert isinstance(analyzer.tokenizer, WordPiece)
    save_sparse_layout(
        folder, read_weights(network.folder), network.kind, heads=network.heads,
        tokenizer=analyzer.tokenizer.content, length=model.length or network.length,
        pooling=network.pooling.split("+"), query_weights=None if queries is None else queries.values,
    )  # fmt: skip
    return True
