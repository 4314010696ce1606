"""Compare systems on data sets: one index for all models that can share it, figures, significance."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from vizsla.datasets import BeirDataset, Document, RawLines
from vizsla.errors import VizslaError
from vizsla.evaluation.cache import Cache, CachedRun, cache_key, dataset_digest
from vizsla.evaluation.comparison import Comparison, SystemResult
from vizsla.evaluation.conventions import Convention
from vizsla.evaluation.figures import evaluate
from vizsla.evaluation.retrieval import DEPTH, fit_to_dataset, retrieve
from vizsla.index import Index, IndexView, bytes_of
from vizsla.models import Component, Model, Part, Sum
from vizsla.runs import DEFAULT_MEASURES, Measure, Qrels, Retriever, Run, parse_measures

TIMED = 100  # queries that are searched one at a time to measure latency
T = TypeVar("T")
DocumentReader = Callable[[BeirDataset], Iterable[Document | RawLines]]


def compare(
    datasets: Sequence[tuple[BeirDataset, str]],
    models: Mapping[str, Model],
    measures: str | Sequence[str | Measure] = DEFAULT_MEASURES,
    *,
    retrievers: Mapping[str, Mapping[str, Retriever]] | None = None,
    runs: Mapping[str, Mapping[str, Run]] | None = None,
    depth: int = DEPTH,
    convention: str | Convention = "anserini",
    test: str = "t-test",
    correction: str = "holm",
    cache: Cache | None = None,
    documents: DocumentReader | None = None,
    groups: Mapping[str, Sequence[str]] | None = None,
) -> Comparison:
    """Evaluate models, retrievers and runs from elsewhere side by side; the first system is the baseline.

    `datasets`: each with the split to evaluate on. `models`: by the system's name; each data set is indexed once for
    all of them. `retrievers` and `runs`: by the system's name, then by the data set's; all but the baseline may lack
    some data sets. `documents`: reads all documents of a data set, perhaps behind a progress bar.

    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = Path(tempfile.mkdtemp(), "pets")
    >>> (folder / "qrels").mkdir(parents=True)
    >>> lines = '{"_id": "1", "text": "Dogs bark."}\\n{"_id": "2", "text": "Cats purr."}\\n'
    >>> _ = (folder / "corpus.jsonl").write_text(lines)
    >>> _ = (folder / "queries.jsonl").write_text('{"_id": "q", "text": "dog"}\\n')
    >>> _ = (folder / "qrels" / "test.tsv").write_text("query-id\\tcorpus-id\\tscore\\nq\\t1\\t1\\n")
    >>> from vizsla import BM25, BeirDataset
    >>> models = {"bm25": BM25(), "tuned": BM25(k1=1.2, b=0.75)}
    >>> comparison = compare([(BeirDataset.open(folder), "test")], models, "nDCG@10")
    >>> comparison.value("pets", "tuned", "nDCG@10")
    1.0
    """
    rules = Convention.parse(convention) if isinstance(convention, str) else convention
    parsed = parse_measures(measures)
    others, given_runs = dict(retrievers or {}), dict(runs or {})
    names = [d.name for d, _ in datasets]
    systems = [*models, *others, *given_runs]
    if not systems:
        raise VizslaError("there is nothing to compare; name at least one model, retriever or run")
    _check_names("data set", names)
    _check_names("system", systems)
    notes = _missing({**others, **given_runs}, names, systems[0])
    results: dict[tuple[str, str], SystemResult] = {}
    for dataset, split in datasets:
        qrels = dataset.qrels(split)
        searched = _model_runs(dataset, split, models, depth, rules, cache, documents or BeirDataset.documents, notes)
        for name, retriever in _on_dataset(dataset, others).items():
            searched[name] = _retriever_run(retriever, dataset.queries_of(qrels), depth, rules), False
        for name, (result, cached) in searched.items():
            evaluation = evaluate(result.run, qrels, parsed, rules)
            results[dataset.name, name] = SystemResult(evaluation, Run(result.run, name), result.facts, cached)
        for name, run in _on_dataset(dataset, given_runs).items():
            results[dataset.name, name] = _evaluate_run(run, dataset, qrels, parsed, rules)
    return Comparison(
        tuple(systems), tuple(names), tuple(map(str, parsed)),
        {d.name: split for d, split in datasets}, results, rules, test, correction,
        {name: tuple(members) for name, members in (groups or {}).items()}, tuple(notes),
    )  # fmt: skip


def _check_names(what: str, names: Sequence[str]) -> None:
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        raise VizslaError(f"two {what}s are called {repeated!r}; results go by name, so each needs its own")


def _missing(systems: Mapping[str, Mapping[str, object]], datasets: Sequence[str], baseline: str) -> list[str]:
    """Which systems have nothing for which data sets, in sentences; the baseline and a system with none are refused."""
    notes = []
    for system, by_dataset in systems.items():
        lacking = [d for d in datasets if d not in by_dataset]
        if lacking and system == baseline:
            raise VizslaError(f"the baseline {system} has nothing on {lacking[0]}; put a system first that has all")
        if len(lacking) == len(datasets):
            raise VizslaError(f"{system} has nothing on any of these data sets: {', '.join(datasets)}")
        if lacking:
            notes.append(f"{system} has nothing on {', '.join(lacking)}; its mean leaves that out")
    return notes


def _on_dataset(dataset: BeirDataset, systems: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """What the systems have for a data set."""
    return {name: by_dataset[dataset.name] for name, by_dataset in systems.items() if dataset.name in by_dataset}


def _evaluate_run(
    run: Run, dataset: BeirDataset, qrels: Qrels, measures: Sequence[Measure], rules: Convention
) -> SystemResult:
    """The result of a run from elsewhere, with a count of its documents that the data set does not have."""
    evaluation = evaluate(run, qrels, measures, rules)
    if evaluation.facts["missing"] == evaluation.facts["queries"]:
        raise VizslaError(f"a run on {dataset.name} has none of its judged queries; is it of another data set?")
    if dataset.has_corpus:
        ids = {d for q in run if q in qrels.judgements for d in run[q].documents}
        evaluation.facts["unknown"] = len(ids.difference(dataset.document_ids()))
    return SystemResult(evaluation, run)


def _model_runs(
    dataset: BeirDataset,
    split: str,
    models: Mapping[str, Model],
    depth: int,
    rules: Convention,
    cache: Cache | None,
    documents: DocumentReader,
    notes: list[str],
) -> dict[str, tuple[CachedRun, bool]]:
    """The run of each model on a data set, and whether it comes from the cache."""
    digest = dataset_digest(dataset, split) if cache and models else ""
    keys = {name: cache_key(digest, model, depth, rules.own_ids) for name, model in models.items()} if cache else {}
    runs = {name: (known, True) for name, key in keys.items() if cache and key and (known := cache.find(key))}
    missing = {name: model for name, model in models.items() if name not in runs}
    if missing:
        for name, result in _search(dataset, split, missing, depth, rules, documents).items():
            runs[name] = result, False
            key = keys.get(name)
            if cache and key:
                try:
                    cache.store(key, result)
                except OSError as e:
                    notes.append(f"the runs could not be cached ({e})")
                    cache = None
    return {name: runs[name] for name in models}


def _search(
    dataset: BeirDataset,
    split: str,
    models: Mapping[str, Model],
    depth: int,
    rules: Convention,
    documents: DocumentReader,
) -> dict[str, CachedRun]:
    """Index a data set once for all models, and search with each."""
    queries = dataset.queries_of(dataset.qrels(split))
    models = {name: fit_to_dataset(model, dataset) for name, model in models.items()}
    with tempfile.TemporaryDirectory(prefix="vizsla-") as folder:
        started = time.perf_counter()
        store = any(model.needs_texts for model in models.values())
        with Index.create(Path(folder) / "index", shared_index_model(models.values()), store=store) as index:
            index.add(documents(dataset))
            index.commit()
            if not len(index):
                raise VizslaError(f"{dataset.folder}: there are no documents to search")
            indexing = time.perf_counter() - started
            runs = {}
            for name, model in models.items():
                result = _retriever_run(index.with_model(model), queries, depth, rules)
                result.facts["seconds"] = {"index": indexing, **result.facts["seconds"]}
                result.facts["bytes"] = bytes_of(index, model)
                result.facts["milliseconds"] = _latency(index.with_model(model, threads=1), queries)
                runs[name] = result
            return runs


def _retriever_run(retriever: Retriever, queries: Mapping[str, str], depth: int, rules: Convention) -> CachedRun:
    started = time.perf_counter()
    run = retrieve(retriever, queries, depth, own_ids=rules.own_ids)
    seconds = {"search": time.perf_counter() - started}
    return CachedRun(run, {"documents": len(retriever), "seconds": seconds})


def shared_index_model(models: Iterable[Model]) -> Model:
    """A sum that stores what all these models need, each thing once, so that its index can be searched with each."""
    stored: list[Component] = []
    for model in models:
        wanted = [p.component for p in model.parts]
        for component in wanted:
            copies = sum(c.index_signature == component.index_signature for c in wanted)
            while sum(c.index_signature == component.index_signature for c in stored) < copies:
                stored.append(replace(component, namespace=f"part{len(stored)}"))  # type: ignore[type-var]
    return stored[0] if len(stored) == 1 else Sum(tuple(Part(1.0, c) for c in stored))


def _latency(view: IndexView, queries: Mapping[str, str]) -> float:
    """The median time of one query searched alone for ten results, in milliseconds."""
    texts = list(queries.values())
    sample = [q for q in texts[:: max(len(texts) // TIMED, 1)] if q.strip()][:TIMED]
    times, warm_up = [], sample[:3]
    for query in warm_up + sample:
        started = time.perf_counter()
        view.search_many([query], 10, documents=False)
        times.append(time.perf_counter() - started)
    return 1000 * float(np.median(times[len(warm_up) :])) if sample else 0.0
