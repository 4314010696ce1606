"""A new, empty index, and what an index cannot be made or changed to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import vizsla
from vizsla.datasets import Splitter
from vizsla.engine import STORES, Approximate, Exact, Plaid, VectorIndex, check_gpu, faiss_for
from vizsla.errors import CollectionError, VizslaError, kind_of
from vizsla.index.storage import arrays, database
from vizsla.index.storage.folder import absolute, is_being_built, model_files, replace_index
from vizsla.models import BM25, DenseComponent, ExpandedBM25, Model, TokenComponent, TokenMatchComponent
from vizsla.plain_data import DescriptionError, parse_json
from vizsla.runs.outline import DOCUMENT_TEXT


def create_index(
    path: str | Path,
    model: Model,
    *,
    overwrite: bool,
    splitter: Splitter | None,
    store: bool,
    vector_index: str | VectorIndex,
    positions: bool,
) -> Path:
    """Write an empty index and give its folder; see `Index.create`."""
    folder = absolute(path)
    if not isinstance(store, bool):
        raise VizslaError(f"store is True or False, not {kind_of(store)}")
    vectors = VectorIndex.parse(vector_index) if isinstance(vector_index, str) else vector_index
    check_vector_index(vectors, model)
    check_documents_read(model, splitter)
    if model.needs_corpus_statistics:
        raise VizslaError(f"{model.name} needs the statistics of all documents; call model.fit(documents) first")
    check_positions(positions, model, store)
    meta = {
        "stored": store,
        "passages": None if splitter is None else asdict(splitter),
        database.DENSE: str(vectors),
        database.POSITIONS: positions,
        "vizsla": vizsla.__version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    if is_being_built(folder):
        _write(folder, model, meta)
    else:
        with replace_index(folder, overwrite=overwrite) as building:
            _write(building, model, meta)
    return folder


def check_documents_read(model: Model, splitter: Splitter | None) -> None:
    """Refuse a model that reads whole documents where there are no passages, or together with them."""
    whole = [part.component for part in model.parts if DOCUMENT_TEXT in part.component.fields]
    if not whole:
        return
    name = whole[0].name
    if splitter is None:
        raise VizslaError(f"{name} scores the documents of passages, so it needs an index of passages (passages=200)")
    if not all(component.reads_documents for component in whole):
        raise VizslaError(f"a model that reads {DOCUMENT_TEXT} reads no other field, since that has the title as well")
    if len(whole) == len(model.parts):
        raise VizslaError(f"{name} scores documents of passages; add a model that finds these: bm25 + 0.1 * {name}")


def check_positions(positions: object, model: Model, stored: bool) -> None:
    """Raise an error if positions cannot be stored: the model reads no words, or texts are not stored."""
    if not isinstance(positions, bool):
        raise VizslaError(f"positions is True or False, not {kind_of(positions)}")
    if positions and not any(isinstance(part.component, BM25 | ExpandedBM25) for part in model.parts):
        raise VizslaError(f"positions are stored for words, and {model.name} has no part such as bm25 that reads words")
    if positions and not stored:
        raise VizslaError("positions are found in the stored texts, and this index stores none")


def check_vector_index(vector_index: VectorIndex, model: Model) -> None:
    """Refuse a vector index that cannot be built for a model, or not on this machine."""
    if vector_index == Exact():
        return
    if isinstance(vector_index, Exact) and any(isinstance(p.component, TokenMatchComponent) for p in model.parts):
        return  # their vectors can be stored in any type
    sizes = [p.component.dimensions for p in model.parts if isinstance(p.component, DenseComponent)]
    has_tokens = any(isinstance(p.component, TokenComponent) for p in model.parts)
    if isinstance(vector_index, Plaid) and not has_tokens:
        raise VizslaError(f"{vector_index} is for token vectors, and {model.name} has none; take hnsw, ivf or pq")
    if not sizes and not (has_tokens and isinstance(vector_index, Exact | Plaid)):
        raise VizslaError(f"{vector_index} is for dense vectors, and {model.name} has no dense part")
    for dimensions in sizes:
        vector_index.check_width(dimensions)
    if isinstance(vector_index, Approximate):
        faiss = faiss_for(vector_index.name)
        if vector_index.device == "gpu":
            check_gpu(faiss)


def check_change(new: VectorIndex, old: VectorIndex) -> None:
    """Refuse to store in more bits what was stored in fewer."""
    if STORES.index(new.store) < STORES.index(old.store):
        raise VizslaError(
            f"the vectors of this index are stored in {old.store}, and what {new.store} would have is lost; "
            f"add store={old.store}, or build the index again"
        )
    bits = old.nbits if isinstance(old, Plaid) else 0
    if bits and not (isinstance(new, Plaid) and 0 < new.nbits <= bits):
        raise VizslaError(
            f"the token vectors of this index are stored in {bits} bits, and what {new} would have is lost; "
            f"give plaid(nbits={bits}), or build the index again"
        )


def _checked(description: dict[str, Any], folder: Path) -> dict[str, Any]:
    """A model's description, if the model can be read back from it."""
    try:
        Model.from_description(parse_json(json.dumps(description)), folder)
    except (TypeError, ValueError, DescriptionError) as e:
        raise VizslaError(f"the model {description.get('name')!r} cannot be stored: {e}") from e
    return description


def _write(folder: Path, model: Model, meta: Mapping[str, Any]) -> None:
    try:
        description = {"model": _checked(model.describe(folder / "model"), folder / "model")}
        hashes = {name: arrays.hash_file(f) for name, f in model_files(folder / "model")}
        database.create(folder, {**description, **meta, "model_files": hashes})
        arrays.sync_folder(folder)
    except OSError as e:
        raise CollectionError(f"{folder}: cannot be written to ({e.strerror})") from e
