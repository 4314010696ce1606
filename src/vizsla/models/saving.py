"""Models in folders: opened as Vizsla or others saved them, and saved so that others open them, with a model card."""

from __future__ import annotations

from pathlib import Path

from vizsla.errors import VizslaError
from vizsla.models.card import write_card
from vizsla.models.learned_sparse import LearnedSparse
from vizsla.models.model import Model
from vizsla.neural.checkpoints.packages import HUB
from vizsla.neural.device import opening_on
from vizsla.neural.layouts import SPARSE_KINDS, save_sparse_layout
from vizsla.neural.network import Network
from vizsla.neural.query_tables import TermWeights
from vizsla.neural.weights import read_weights
from vizsla.text import Analyzer, WordPiece

_OTHERS = "config.json", "modules.json"


def open_model(which: str | Path, *, device: str | None = None) -> Model:
    """The model in a folder, or on the model hub as `hf:org/name`.

    A folder with a model.json is a model that Vizsla saved. Any other is a checkpoint of sentence-transformers or
    transformers: a SPLADE where it says so or has a masked-language head, else an encoder of dense vectors.
    `device`: where its networks run, as in cpu or cuda:1; by default the process's, see `vizsla.use_device`.
    """
    with opening_on(device):
        return _open(which)


def _open(which: str | Path) -> Model:
    from vizsla.neural.checkpoints.checkpoint import (
        find_checkpoint,  # imported here, so that other searches start faster
    )
    from vizsla.neural.checkpoints.splade import is_sparse_encoder

    folder = find_checkpoint(which) if str(which).startswith(HUB) else Path(which)
    if (folder / "model.json").is_file() or not any((folder / name).is_file() for name in _OTHERS):
        return Model.load(folder)
    modules = folder / "modules.json"
    if modules.is_file() and '"pylate.' in modules.read_text("utf-8", "replace"):
        raise VizslaError(f"{which}: this is a ColBERT; name it as in colbert(checkpoint={which})")
    if is_sparse_encoder(folder):
        return LearnedSparse.open(folder)
    from vizsla.models.dense import Dense

    return Dense.open(folder)


def save_model(model: Model, folder: str | Path) -> bool:
    """Write a model and its card, in SparseEncoder's layout if possible; returns whether SparseEncoder can open it.

    It can open a learned sparse model with one network: a SPLADE directly, a uniCOIL with custom code that has to be
    trusted.
    """
    path = Path(folder)
    model.save(path)
    layout = _write_layout(model, path)
    write_card(path)
    return layout


def _write_layout(model: Model, folder: Path) -> bool:
    if not isinstance(model, LearnedSparse):
        return False
    network, analyzer = model.network, model.analyzer
    if not isinstance(network, Network) or network.kind not in SPARSE_KINDS or not isinstance(analyzer, Analyzer):
        return False
    if model.query_network is not None:
        return False
    table = model.query_table if model.inference_free else None
    if table is not None and not isinstance(table, TermWeights):
        return False
    assert isinstance(analyzer.tokenizer, WordPiece)
    save_sparse_layout(
        folder, read_weights(network.folder), network.kind, heads=network.heads,
        tokenizer=analyzer.tokenizer.content, length=model.length or network.length,
        pooling=network.pooling.split("+"), query_weights=None if table is None else table.values,
    )  # fmt: skip
    return True
