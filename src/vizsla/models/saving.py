"""Models in folders: opened as Vizsla or others saved them, and saved so that others open them, with a model card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vizsla.errors import VizslaError
from vizsla.models.card import write_card
from vizsla.models.coil import Coil
from vizsla.models.colbert import ColBERT
from vizsla.models.counts import open_deepct
from vizsla.models.dense import Dense, dense
from vizsla.models.learned_sparse import LearnedSparse
from vizsla.models.model import Model
from vizsla.neural.checkpoints.onnx_file import is_exported
from vizsla.neural.checkpoints.packages import HUB
from vizsla.neural.checkpoints.published import Published, find_published
from vizsla.neural.checkpoints.writing import SPARSE_KINDS, save_sparse_layout
from vizsla.neural.device import opening_on
from vizsla.neural.network import Network
from vizsla.neural.query_tables import TermWeights
from vizsla.neural.weights import read_weights
from vizsla.text import Analyzer, WordPiece

_OTHERS = "config.json", "modules.json"


def open_model(which: str | Path, *, device: str | None = None) -> Model:
    """The model in a folder, or on the model hub as `hf:org/name`.

    A folder with a model.json is a model that Vizsla saved. Any other is a checkpoint of sentence-transformers or
    transformers: a uniCOIL, COIL or DeepCT where it has such a head, a SPLADE where it says so or has a
    masked-language head, else an encoder of dense vectors. A published checkpoint (docs/checkpoints.md) is read as its
    paper does, and of two encoders either name opens both. A folder with an ONNX file instead of weights is an encoder
    of dense vectors, too.
    `device`: where its networks run, as in cpu or cuda:1; by default the process's, see `vizsla.use_device`.
    """
    with opening_on(device):
        return _open(which)


def _open(which: str | Path) -> Model:
    from vizsla.neural.checkpoints.checkpoint import (
        find_checkpoint,  # imported here, so that other searches start faster
    )
    from vizsla.neural.checkpoints.splade import is_sparse_encoder
    from vizsla.neural.checkpoints.with_head import head_kind

    named = str(which).startswith(HUB)
    if named and (entry := find_published(str(which))) is not None:
        return _open_published(entry, str(which))
    folder = find_checkpoint(which) if named else Path(which)
    exported = is_exported(folder)
    if (folder / "model.json").is_file() or not (exported or any((folder / name).is_file() for name in _OTHERS)):
        return Model.load(folder)
    modules = folder / "modules.json"
    if modules.is_file() and '"pylate.' in modules.read_text("utf-8", "replace"):
        raise VizslaError(f"{which}: this is a ColBERT; name it as in colbert(checkpoint={which})")
    if exported:
        return Dense.open(folder)
    if is_sparse_encoder(folder):
        return LearnedSparse.open(folder)
    kind = "" if modules.is_file() else head_kind(folder)
    return _open_kind(kind or "dense", folder)


def _open_published(entry: Published, which: str) -> Model:
    """A published checkpoint, read as the list says."""
    if entry.kind == "splade":
        hub = HUB if which.startswith(HUB) else ""
        model = LearnedSparse.open(hub + entry.documents, queries=hub + entry.queries if entry.queries else "")
        return replace(model, length=min(int(entry.settings["length"]), model.network.length))
    if entry.kind in ("generator", "reranker"):
        option = {"generator": "vizsla queries generate --model", "reranker": "vizsla search --reranker"}[entry.kind]
        raise VizslaError(f"{which}: this is {entry.about}, which does not search; name it as in {option} {which}")
    return _open_kind(entry.kind, which)


def _open_kind(kind: str, which: str | Path) -> Model:
    """A checkpoint that is read as this kind."""
    if kind in ("unicoil", "sparta"):
        return LearnedSparse.open_head(kind, which)
    if kind == "deepct":
        return open_deepct(which)
    if kind == "coil":
        return Coil.open(which)
    if kind == "colbert":
        return ColBERT.open(which)
    return dense(str(which)) if isinstance(which, str) else Dense.open(which)


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
