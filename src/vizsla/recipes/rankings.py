"""The rankings of a table's systems, kept in files: several cells, fusions and papers use the same one.

OUTPUT/runs/KEY.npz     a ranking; the key is a hash of all that decides it
OUTPUT/indexes/KEY      an index, until the rankings that need it are there
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import vizsla
from vizsla.datasets import BeirDataset, Document, RawLines
from vizsla.errors import VizslaError
from vizsla.evaluation import answer_qrels, fit_to_dataset, retrieve
from vizsla.evaluation.systems import Cache, CachedRun, query_latency
from vizsla.index import Index
from vizsla.models import ExpandedBM25, Model, Reranker, parse_model
from vizsla.plain_data import parse_json
from vizsla.recipes.paper_tables import Column, PaperTable, System, TrainedPart
from vizsla.recipes.table_data import Searched
from vizsla.retrievers import pair_scores, rerank_by_scores
from vizsla.runs import Qrels, Run, fuse

VERSION = 1  # of measured cells and rankings; increment it when a change here affects a figure
ANSWER_DEPTH, JUDGED_DEPTH = 100, 1000
COMMIT_AFTER = 300.0  # seconds between commits of an index that is being built
DocumentReader = Callable[[BeirDataset], Iterable[Document | RawLines]]


class Scale(Protocol):
    """How a table is run small; see `tiny.py`."""

    def expression(self, text: str) -> str:
        """A model in place of the one that an expression names."""

    def reranker(self, name: str) -> str:
        """A reranker in place of a named one."""

    def train(self, part: TrainedPart, data: Path, folder: Path) -> None:
        """Train a part of a model in a few steps."""


@dataclass(frozen=True)
class Ranked:
    """The ranking of a system, judgements by answers if it is for questions, and what was measured on the way."""

    run: Run
    answered: Qrels | None
    facts: dict[str, Any]


@dataclass
class Rankings:
    """The rankings of a table's systems, from the folder `output` or searched now; one index is open at a time."""

    table: PaperTable
    models: Path
    output: Path
    scale: Scale | None = None
    documents: DocumentReader = BeirDataset.documents
    _open: tuple[str, Index, Model] | None = None

    def __post_init__(self) -> None:
        self._cache = Cache(self.output / "runs")

    def described(self, system: System, column: Column) -> list[Any]:
        """What decides the ranking of a system: expressions, trained files, fusions."""
        if system.fusion:
            members = [self.described(self.table.systems[name], column) for name in system.of]
            return [system.fusion, system.weights, members]
        stamps = [_folder_stamp(self.models / column.fill(name)) for name in system.trained]
        return [column.fill(system.model), stamps, self.scale is not None]

    def find(self, system: System, column: Column, source: Searched, *, own_ids: bool) -> Ranked:
        """The ranking of a system for the queries of a collection; `own_ids` keeps a query's own document."""
        depth = ANSWER_DEPTH if source.answers is not None else JUDGED_DEPTH
        if system.fusion:
            found = [self.find(self.table.systems[n], column, source, own_ids=own_ids) for n in system.of]
            run = fuse([f.run for f in found], system.fusion, list(system.weights) or None, depth=depth)
            answered = found[0].answered
            for other in found[1:]:
                answered = answered.with_more(other.answered) if answered and other.answered else None
            return Ranked(run, answered, {})
        source = source.with_field(system.field)
        stored = self._first_stage(system, column, source, depth)
        run = stored.run if own_ids or source.answers is not None else stored.run.without_own_ids()
        first = replace(stored, run=run.top(depth))
        named = column if column.reranker else system
        if not named.reranker:
            return first
        return self._reranked(first, named.reranker, named.depth, system, column, source, own_ids)

    def _key(self, system: System, column: Column, source: Searched, *more: Any) -> str:
        described = self.described(system, column)
        return hash_of([described, source.corpus_stamp, source.stamp, source.corpus.name, *more])

    def _first_stage(self, system: System, column: Column, source: Searched, depth: int) -> Ranked:
        """A ranking with the queries' own documents and one place more, so that all conventions share it."""
        key = self._key(system, column, source, depth)
        answers = self._cache.folder / f"{key}.answers.json"
        cached = self._cache.find(key)
        if cached is not None and source.answers is None:
            return Ranked(cached.run, None, dict(cached.facts))
        if cached is not None and answers.is_file():
            return Ranked(cached.run, Qrels(parse_json(answers.read_text("utf-8"))), dict(cached.facts))
        index, model = self._index(system, column, source)
        run = retrieve(index.with_model(model), source.queries, depth + 1, own_ids=True)
        milliseconds = query_latency(index.with_model(model, threads=1), source.queries)
        judged = None
        if source.answers is not None:
            wanted = {q: list(source.answers[q]) for q in source.queries}
            judged = answer_qrels(index, [run], wanted, depth, regex=source.regex)
            write_whole(answers, json.dumps(judged.judgements))
        self._cache.store(key, CachedRun(run, {"documents": len(index), "milliseconds": milliseconds}))
        return Ranked(run, judged, {"milliseconds": milliseconds})

    def _reranked(
        self, first: Ranked, name: str, depth: int, system: System, column: Column, source: Searched, own_ids: bool
    ) -> Ranked:
        key = self._key(system, column, source, name, depth, own_ids)
        cached = self._cache.find(key)
        if cached is not None:
            return Ranked(cached.run, first.answered, dict(cached.facts))
        reranker = Reranker.open(name if self.scale is None else self.scale.reranker(name))
        index, _ = self._index(system, column, source)
        scores = pair_scores(index, [first.run], source.queries, reranker, depth)
        run = rerank_by_scores(first.run, scores.scores, depth).untied(by_id=False)
        milliseconds = first.facts["milliseconds"] + 1000 * scores.seconds_per_query(first.run, depth)
        self._cache.store(key, CachedRun(run, {"documents": len(index), "milliseconds": milliseconds}))
        return Ranked(run, first.answered, {"milliseconds": milliseconds})

    def added_terms(self, system: System, column: Column, source: Searched) -> float:
        """How many terms query expansion adds to a query on average."""
        model = self._model(system, column)
        expanded = model.parts[0].component
        if not isinstance(expanded, ExpandedBM25):
            raise VizslaError(f"{model.name} adds no terms to queries")
        texts = list(source.queries.values())
        pairs = zip(expanded.query_terms(texts), expanded.bm25.query_terms(texts), strict=True)
        return float(np.mean([len(terms.keys() - own.keys()) for terms, own in pairs]))

    def _model(self, system: System, column: Column) -> Model:
        expression = column.fill(system.model)
        if self.scale is not None:
            expression = self.scale.expression(expression)
        for name in sorted((p.name for p in self.table.parts_of(system, column)), key=len, reverse=True):
            folder = str(self.models / name).replace("\\", r"\\")
            expression = re.sub(rf"(?<![\w/.-]){re.escape(name)}(?![\w-])", folder, expression)
        return parse_model(expression)

    def _index(self, system: System, column: Column, source: Searched) -> tuple[Index, Model]:
        """An index of a collection for a system: the open one, that of an earlier run, or a new one."""
        key = hash_of([self.described(system, column), source.corpus_stamp, str(source.corpus.folder)])
        if self._open is not None and self._open[0] == key:
            return self._open[1], self._open[2]
        self._release()
        folder, building = self.output / "indexes" / key, self.output / "indexes" / f"{key}.building"
        model = fit_to_dataset(self._model(system, column), source.corpus)
        if not folder.is_dir():
            with _unfinished(building, model) as index:
                _add_documents(index, self.documents(source.corpus))
                if not len(index):
                    raise VizslaError(f"{source.corpus.folder}: there are no documents to search")
            building.rename(folder)
        index = Index.open(folder)
        self._open = key, index, model
        return index, model

    def _release(self) -> None:
        """Close and remove the open index; the rankings that were made with it are kept."""
        if self._open is not None:
            key, index, _ = self._open
            self._open = None
            index.close()
            shutil.rmtree(self.output / "indexes" / key, ignore_errors=True)

    def close(self) -> None:
        """Close the open index; one that was in use when the work was stopped stays for the next time."""
        if sys.exc_info()[0] is None:
            self._release()
            shutil.rmtree(self.output / "indexes", ignore_errors=True)
        elif self._open is not None:
            self._open[1].close()
            self._open = None


def _unfinished(folder: Path, model: Model) -> Index:
    """The index that an earlier run has begun; a new one where there is none, or nothing that can be opened."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    if folder.is_dir():
        with suppress(VizslaError):
            return Index.open(folder)
        shutil.rmtree(folder)
    return Index.create(folder, model)


def _add_documents(index: Index, documents: Iterable[Document | RawLines]) -> None:
    """Add the documents that an index does not have yet, committed every few minutes: encoding may take hours."""
    left = islice(documents, len(index), None)
    while (first := next(left, None)) is not None:
        index.add(chain([first], _for_a_while(left)))
        index.commit()


def _for_a_while(documents: Iterator[Document | RawLines]) -> Iterator[Document | RawLines]:
    started = time.monotonic()
    while time.monotonic() - started < COMMIT_AFTER and (document := next(documents, None)) is not None:
        yield document


def _folder_stamp(folder: Path) -> list[Any]:
    """The files of a model, without those of the run that trained it."""
    files = sorted(f for f in folder.rglob("*") if f.is_file() and "training" not in f.relative_to(folder).parts)
    return [(str(f.relative_to(folder)), f.stat().st_size, f.stat().st_mtime_ns) for f in files]


def hash_of(parts: Any) -> str:
    """A name for a file of what these parts decide."""
    identity = [VERSION, vizsla.__version__, parts]
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:40]


def write_whole(file: Path, text: str) -> None:
    """Write a file so that it is under its name only when it is complete and on the disk."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with beside.open("w", encoding="utf-8") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(file)
    finally:
        beside.unlink(missing_ok=True)
