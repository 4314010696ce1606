"""What the cells of a table need: data sets, trained models, published checkpoints, and room for an index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vizsla.datasets import known_datasets
from vizsla.models import MODELS
from vizsla.neural.checkpoints.checkpoint import is_fetched
from vizsla.neural.checkpoints.packages import WeightPackage, package_of
from vizsla.neural.checkpoints.published import Published, find_published, published
from vizsla.recipes.paper_tables import TrainedPart
from vizsla.recipes.table_data import estimated_bytes, how_to_get, is_here
from vizsla.spec.notation import parse_sum


@dataclass(frozen=True)
class Need:
    """Something that a table needs."""

    name: str
    kind: str
    """`data`, `training data`, `model`, `checkpoint`, or `room` on the disk while the table is measured."""
    here: bool
    how: str
    """The command that gets it."""
    bytes: int = 0
    """The size on disk, estimated if it is not here; 0 if unknown."""
    gpu_hours: float = 0.0
    source: str = ""
    is_fetched: bool = False
    """Whether it is fetched from the model hub when it is first used."""


def data_need(name: str, kind: str, data: Path) -> Need:
    """A data set, with its size."""
    if is_here(name, data):
        size = sum(f.stat().st_size for f in (data / name).rglob("*") if f.is_file())
        return Need(name, kind, True, "", size)
    return Need(name, kind, False, how_to_get(name, data), estimated_bytes(known_datasets().get(name)))


def model_need(part: TrainedPart, data: Path, models: Path) -> Need:
    """A trained part of a model, with the command that trains it."""
    command = part.command(str(data), str(models))
    return Need(part.name, "model", is_model(models / part.name), command, 0, part.gpu_hours, part.source)


def is_model(folder: Path) -> bool:
    """Whether a model is in a folder: more than the run that trains it."""
    return folder.is_dir() and any(f.name != "training" for f in folder.iterdir())


def checkpoint_needs(expression: str) -> Iterator[Need]:
    """The weights that a model or a reranker fetches, or takes from an installed package.

    >>> [(need.name, need.bytes) for need in checkpoint_needs("spar(dense=ance, lexical=spar-wiki, mu=0.7)")]
    [('ance', 500000000), ('spar-wiki', 880000000)]
    """
    for name in _named_weights(expression):
        known = published().get(name) or find_published(name)
        package = _package(name)
        if package is not None:
            yield Need(name, "checkpoint", package.path() is not None, package.install, package.bytes)
        elif known is not None:
            names = [which for which in ({name} & {known.documents} or (known.documents, known.queries)) if which]
            here, encoders = all(map(is_fetched, names)), ", ".join(names)
            how = f"fetched from the model hub ({encoders}) when its row is measured"
            yield Need(known.name, "checkpoint", here, how, known.bytes, is_fetched=True)


def missing_package(expression: str) -> str:
    """The command that installs weights which a model needs from a package; empty if nothing is missing."""
    installed = (package for name in _named_weights(expression) if (package := _package(name)) is not None)
    return next((package.install for package in installed if package.path() is None), "")


def _package(name: str) -> WeightPackage | None:
    return package_of("all-MiniLM-L6-v2" if name == "minilm" else name)


def _named_weights(expression: str) -> Iterator[str]:
    """The names of published weights in an expression, on the model hub or of ours."""
    if package_of(expression) or ("/" in expression and "(" not in expression):
        yield expression
        return
    for _, call in parse_sum(expression, MODELS.what, MODELS.example):
        if call.name == "spar":
            yield from _named_weights(call.options["dense"])
            yield from _named_weights(call.options["lexical"])
        elif "checkpoint" in call.options:
            yield call.options["checkpoint"].removeprefix("hf:")
        elif call.name == "minilm" or (_kind(call.name) not in ("", "generator") and "network" not in call.options):
            yield call.name


def _kind(name: str) -> str:
    entry: Published | None = published().get(name)
    return entry.kind if entry else ""


WORDS, WEIGHTS, VECTORS = 130, 1_000, 3_080
_BYTES = {"sparta": 12_040, "colbert": 30_500, "coil": 9_500, "minilm": VECTORS // 2}
"""What an index stores of a passage of 100 words: table 3 of BEIR in docs/papers.md; COIL is estimated."""
_WEIGHTED = ("bm26", "bm26e", "splade", "unicoil", "vizsla-splade")
_LEXICAL = ("bm25", "doct5query", "deepct", "sketch")


def index_bytes(expression: str, dataset: str) -> int:
    """About how much an index of a data set takes, with its texts; 0 if the number of documents is not known.

    >>> index_bytes("bm25", "wiki-dpr") < index_bytes("dpr-multiset", "wiki-dpr")
    True
    """
    entry = known_datasets().get(dataset)
    if entry is None or not entry.documents:
        return 0
    return int(1.1 * estimated_bytes(entry) + entry.documents * _bytes_of_a_document(expression))


def _bytes_of_a_document(expression: str) -> int:
    total = 0
    for _, call in parse_sum(expression, MODELS.what, MODELS.example):
        if call.name == "spar":
            total += sum(_bytes_of_a_document(call.options[side]) for side in ("dense", "lexical"))
        elif call.name.startswith("bm51"):
            total += WORDS + WEIGHTS
        elif call.name in _WEIGHTED:
            total += WEIGHTS
        elif call.name.startswith(_LEXICAL):
            total += WORDS
        else:
            total += _BYTES.get(call.name, VECTORS)
    return total
