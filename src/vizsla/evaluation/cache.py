"""A cache of runs: the same documents, queries and model are not searched twice."""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path

import vizsla
from vizsla.cache import cache_folder
from vizsla.datasets import BeirDataset
from vizsla.datasets.files import find_file
from vizsla.errors import InputError
from vizsla.evaluation.comparison import SystemFacts
from vizsla.models import Model
from vizsla.plain_data import parse_json
from vizsla.runs import Run
from vizsla.runs.packed import read_packed, write_packed
from vizsla.spec import code_digest, is_plugin

VERSION = 2  # of the cached runs; a change of what a search finds needs another number
_CHUNK = 1 << 20


def default_folder() -> Path:
    """Where runs are cached unless another folder is given."""
    return cache_folder("runs")


@dataclass(frozen=True)
class CachedRun:
    """A run and what was measured while it was cached."""

    run: Run
    facts: SystemFacts


@dataclass(frozen=True)
class Cache:
    """Runs in a folder, each under the hash of everything that it was made from."""

    folder: Path

    def find(self, key: str) -> CachedRun | None:
        """The run with a key; None if there is no such run or it is damaged."""
        run, facts = self._files(key)
        try:
            return CachedRun(read_packed(run), parse_json(facts.read_text("utf-8")))
        except (OSError, InputError, ValueError):
            return None

    def store(self, key: str, cached: CachedRun) -> None:
        """Write a run under its key."""
        run, facts = self._files(key)
        write_packed(cached.run, run)
        facts.write_text(json.dumps(cached.facts), "utf-8")

    def _files(self, key: str) -> tuple[Path, Path]:
        return self.folder / f"{key}.npz", self.folder / f"{key}.json"


def cache_key(digest: str, model: Model, depth: int, own_ids: bool) -> str | None:
    """The key of a model's run on the data set with a digest; None if code of the model is in no file."""
    code = {module: code_digest(module) for module in _plugins_of(model)}
    if None in code.values():
        return None
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
        description = model.describe(Path(folder))
        files = {str(f.relative_to(folder)): _digest([f]) for f in sorted(Path(folder).rglob("*")) if f.is_file()}
    parts = [VERSION, vizsla.__version__, digest, description, files, sorted(map(str, code.values())), depth, own_ids]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _plugins_of(model: Model) -> set[str]:
    """The modules outside of Vizsla that define components, expanders and token filters of a model."""
    modules: set[str] = set()
    waiting: list[object] = [model]
    while waiting:
        value = waiting.pop()
        defined = value.__mro__ if isinstance(value, type) else (value, *type(value).__mro__)
        modules.update(str(getattr(each, "__module__", "")) for each in defined)
        if is_dataclass(value) and not isinstance(value, type):
            waiting += [getattr(value, field.name) for field in fields(value)]
        elif isinstance(value, tuple | list):
            waiting += value
        elif isinstance(value, dict):
            waiting += value.values()
        elif isinstance(value, partial):
            waiting += [value.func, value.args, value.keywords]
    return {module for module in modules if module and is_plugin(module)}


def dataset_digest(dataset: BeirDataset, split: str) -> str:
    """A hash of the documents, the queries and the judgements."""
    names = ("corpus.jsonl", "queries.jsonl", f"qrels/{split}.tsv")
    return _digest([find_file(dataset.folder, name) for name in names])


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.stat().st_size.to_bytes(8, "little"))
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()
