"""Systems side by side on data sets: one index for all models that can share it, figures, significance."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import BeirDataset, Document, RawLines
from vizsla.errors import VizslaError
from vizsla.evaluation.cache import Cache, Kept, dataset_digest, cache_key
from vizsla.evaluation.conventions import Convention
from vizsla.evaluation.figures import Evaluation, evaluate
from vizsla.evaluation.significance import Difference, compare_values, corrected
from vizsla.evaluation.retrieval import DEPTH, answer, fitted_on
from vizsla.index import Index
from vizsla.models import Component, Model, Part, Sum
from vizsla.runs import Measure, Qrels, Run

TIMED = 100  # queries asked one at a time to measure latency
Documents = Callable[[BeirDataset], Iterable[Document | RawLines]]


@dataclass(frozen=True)
class Result:
    """A system on a data set."""

    evaluation: Evaluation
    run: Run
    facts: dict[str, Any] = field(default_factory=dict)
    """`milliseconds` a query, one at a time, ten results; `bytes` of the index; empty for runs from elsewhere."""
    cached: bool = False


@dataclass(frozen=True)
class Comparison:
    """Systems on data sets; the first system is the baseline the others are tested against."""

    systems: tuple[str, ...]
    datasets: tuple[str, ...]
    measures: tuple[str, ...]
    splits: dict[str, str]
    results: dict[tuple[str, str], Result]
    """By data set and system."""
    convention: Convention
    test: str = "t-test"
    correction: str = "holm"
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Data sets whose mean is the published figure, by the name of the whole."""
    notes: tuple[str, ...] = ()
    """What a reader should know besides."""
    _tested: dict[tuple[str, str], dict[str, tuple[Difference, float]]] = field(default_factory=dict, repr=False)

    @property
    def baseline(self) -> str:
        return self.systems[0]

    def value(self, dataset: str, system: str, measure: str) -> float:
        """A figure; of a group of data sets their mean."""
        members = self.groups.get(dataset, (dataset,))
        return float(np.mean([self.results[m, system].evaluation.measures[measure] for m in members]))

    def mean(self, system: str, measure: str) -> float:
        """The mean over all data sets, a group counting as one."""
        return float(np.mean([self.value(d, system, measure) for d in self.rows]))

    @property
    def rows(self) -> tuple[str, ...]:
        """The data sets that count, a group in place of its members."""
        inside = {m for members in self.groups.values() for m in members}
        return (*(d for d in self.datasets if d not in inside), *self.groups)

    def differences(self, dataset: str, measure: str) -> dict[str, tuple[Difference, float]]:
        """How each other system differs from the baseline, with p corrected for how many they are."""
        if (dataset, measure) not in self._tested:
            self._tested[dataset, measure] = self._test_all(dataset, measure)
        return self._tested[dataset, measure]

    def _test_all(self, dataset: str, measure: str) -> dict[str, tuple[Difference, float]]:
        base = self.results[dataset, self.baseline].evaluation.by_query[measure]
        found = {}
        for system in self.systems[1:]:
            other = self.results[dataset, system].evaluation.by_query[measure]
            both = [q for q in base if q in other]
            if not both:
                raise VizslaError(f"{system} and {self.baseline} answer no judged query of {dataset} both")
            found[system] = compare_values({q: base[q] for q in both}, {q: other[q] for q in both}, self.test)
        adjusted = corrected([d.p for d in found.values()], self.correction)
        return {system: (d, p) for (system, d), p in zip(found.items(), adjusted, strict=True)}

    def mark(self, dataset: str, system: str, measure: str, alpha: float = 0.05) -> str:
        """`+` or `-` where a system is better or worse than the baseline beyond chance, else nothing.

        Nothing, too, where a convention leaves out unanswered queries and the systems answer different ones.
        """
        if system == self.baseline or dataset in self.groups:
            return ""
        ours, base = (self.results[dataset, s].evaluation.by_query[measure] for s in (system, self.baseline))
        difference, p = self.differences(dataset, measure)[system]
        if p >= alpha or ours.keys() != base.keys():  # means over different queries cannot be tested
            return ""
        return "+" if (difference.mean > 0) != Measure.parse(measure).lower_is_better else "-"


def compare(
    datasets: Sequence[tuple[BeirDataset, str]],
    models: Mapping[str, Model],
    measures: Sequence[Measure],
    *,
    runs: Mapping[str, Mapping[str, Run]] | None = None,
    depth: int = DEPTH,
    convention: str | Convention = "anserini",
    test: str = "t-test",
    correction: str = "holm",
    cache: Cache | None = None,
    documents: Documents | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> Comparison:
    """Evaluate models, and runs from elsewhere, side by side on data sets with their splits.

    `runs`: by the system's name, then by the data set's. `documents`: reads the documents of a data set, all of them,
    perhaps behind a progress bar.
    """
    how = Convention.parse(convention) if isinstance(convention, str) else convention
    given = dict(runs or {})
    names = [d.name for d, _ in datasets]
    if not models and not given:
        raise VizslaError("there is nothing to compare; name at least one model or run")
    _check_names("data set", names)
    _check_names("system", [*models, *given])
    notes: list[str] = []
    results: dict[tuple[str, str], Result] = {}
    for dataset, split in datasets:
        qrels = dataset.qrels(split)
        found = _searched(dataset, split, models, depth, how, cache, documents or BeirDataset.documents, notes)
        for name, (kept, cached) in found.items():
            evaluation = evaluate(kept.run, qrels, measures, how)
            results[dataset.name, name] = Result(evaluation, Run(kept.run, name), kept.facts, cached)
        for name, run in _runs_on(dataset, given).items():
            results[dataset.name, name] = _judged(run, dataset, qrels, measures, how)
    return Comparison(
        (*models, *given), tuple(names), tuple(map(str, measures)),
        {d.name: split for d, split in datasets}, results, how, test, correction,
        {name: tuple(members) for name, members in (groups or {}).items()}, tuple(notes),
    )  # fmt: skip


def _check_names(what: str, names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise VizslaError(f"two {what}s are called {twice!r}; results go by name, so each needs its own")


def _runs_on(dataset: BeirDataset, given: Mapping[str, Mapping[str, Run]]) -> dict[str, Run]:
    """The runs from elsewhere on a data set; each system must have one."""
    lacking = next((name for name, by_dataset in given.items() if dataset.name not in by_dataset), None)
    if lacking is not None:
        raise VizslaError(f"{lacking} has no run on {dataset.name}")
    return {name: by_dataset[dataset.name] for name, by_dataset in given.items()}


def _judged(run: Run, dataset: BeirDataset, qrels: Qrels, measures: Sequence[Measure], how: Convention) -> Result:
    """A run from elsewhere, with a count of documents that the data set does not have."""
    evaluation = evaluate(run, qrels, measures, how)
    if evaluation.facts["missing"] == evaluation.facts["queries"]:
        raise VizslaError(f"a run on {dataset.name} has none of its judged queries; is it of another data set?")
    if dataset.has_corpus:
        ids = {d for q in run if q in qrels.judgements for d in run[q].documents}
        evaluation.facts["unknown"] = len(ids.difference(dataset.document_ids()))
    return Result(evaluation, run)


def _searched(
    dataset: BeirDataset,
    split: str,
    models: Mapping[str, Model],
    depth: int,
    how: Convention,
    cache: Cache | None,
    documents: Documents,
    notes: list[str],
) -> dict[str, tuple[Kept, bool]]:
    """Each model's run on a data set, from the cache or made now, and which it was."""
    content = dataset_digest(dataset, split) if cache and models else ""
    keys = {name: cache_key(content, model, depth, how.own_ids) for name, model in models.items()} if cache else {}
    found = {name: (kept, True) for name, key in keys.items() if cache and (kept := cache.find(key))}
    missing = {name: model for name, model in models.items() if name not in found}
    if missing:
        for name, kept in _search(dataset, split, missing, depth, how, documents).items():
            found[name] = kept, False
            if cache:
                try:
                    cache.keep(keys[name], kept)
                except OSError as e:
                    notes.append(f"runs could not be kept ({e})")
                    cache = None
    return {name: found[name] for name in models}


def _search(
    dataset: BeirDataset, split: str, models: Mapping[str, Model], depth: int, how: Convention, documents: Documents
) -> dict[str, Kept]:
    """Index a data set once for all models, and search with each."""
    queries = dataset.queries_of(dataset.qrels(split))
    models = {name: fitted_on(dataset, model) for name, model in models.items()}
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
        started = time.perf_counter()
        store = any(model.reads_texts for model in models.values())
        with Index.create(Path(folder) / "index", shared_index_model(models.values()), store=store) as index:
            index.add(documents(dataset))
            index.commit()
            if not len(index):
                raise VizslaError(f"{dataset.folder}: there are no documents to search")
            indexed = time.perf_counter() - started
            found = {}
            for name, model in models.items():
                started = time.perf_counter()
                run = answer(index, queries, depth, model, own_ids=how.own_ids)
                seconds = {"index": indexed, "search": time.perf_counter() - started}
                facts = {
                    "milliseconds": _latency(index, list(queries.values()), model),
                    "bytes": index.bytes_of(model),
                    "documents": len(index),
                    "seconds": seconds,
                }
                found[name] = Kept(run, facts)
            return found


def shared_index_model(models: Iterable[Model]) -> Model:
    """A sum that stores what all these models need, each thing once, so that every one can be asked of its index."""
    held: list[Component] = []
    for model in models:
        wanted = [p.component for p in model.parts]
        for component in wanted:
            copies = sum(c.index_signature == component.index_signature for c in wanted)
            while sum(c.index_signature == component.index_signature for c in held) < copies:
                held.append(replace(component, namespace=f"part{len(held)}"))  # type: ignore[type-var]
    return held[0] if len(held) == 1 else Sum(tuple(Part(1.0, c) for c in held))


def _latency(index: Index, queries: list[str], model: Model) -> float:
    """The median time of a query asked alone for ten results, in milliseconds."""
    sample = [q for q in queries[:: max(len(queries) // TIMED, 1)] if q.strip()][:TIMED]
    times, warming = [], sample[:3]
    for query in warming + sample:
        started = time.perf_counter()
        index.search_many([query], 10, model=model, threads=1, documents=False)
        times.append(time.perf_counter() - started)
    return 1000 * float(np.median(times[len(warming) :])) if sample else 0.0
