"""Compare systems on data sets: one index for all models that can share it, figures, significance, a cache of runs."""

from __future__ import annotations

import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypedDict, TypeVar

import numpy as np

import vizsla
from vizsla.cache import cache_folder
from vizsla.datasets import BeirDataset, Document, RawLines
from vizsla.datasets.files import find_file
from vizsla.errors import InputError, VizslaError
from vizsla.evaluation.figures import Convention, Evaluation, evaluate
from vizsla.evaluation.retrieval import DEPTH, fit_to_dataset, retrieve
from vizsla.evaluation.significance import TIE, Difference, compare_values, corrected
from vizsla.index import Index, IndexView, bytes_of
from vizsla.models import Component, Model, Part, Sum
from vizsla.plain_data import parse_json
from vizsla.runs import DEFAULT_MEASURES, Measure, Qrels, Retriever, Run, parse_measures
from vizsla.runs.run import read_packed, write_packed
from vizsla.spec import code_digest, is_plugin


class SystemFacts(TypedDict, total=False):
    """What was measured while a run was computed."""

    milliseconds: float
    """The latency of a single query with ten results."""
    bytes: int
    """The size of the index, without stored documents."""
    documents: int
    seconds: dict[str, float]
    """By step: `index`, `search`."""


@dataclass(frozen=True)
class SystemResult:
    """The figures of a system on a data set, and the run they were computed from."""

    evaluation: Evaluation
    run: Run
    facts: SystemFacts = field(default_factory=SystemFacts)
    """Empty for an external run."""
    cached: bool = False


@dataclass(frozen=True)
class AgainstBaseline:
    """A system beside the baseline over the data sets that it has results on; a group of data sets counts as one."""

    datasets: int
    mean: float
    """The system's mean over these data sets."""
    difference: float
    """That mean minus the baseline's over the same data sets."""
    relative: float | None
    """The difference as a share of the baseline's mean; None if that is 0."""
    better: int
    """The data sets on which the system is better than the baseline, significantly or not."""
    equal: int
    worse: int
    significantly_better: int
    """Of those, the data sets with a significant difference. Groups are not tested and never counted here."""
    significantly_worse: int


@dataclass(frozen=True)
class Comparison:
    """Systems on data sets; the first system is the baseline that the others are tested against.

    The baseline has results on all data sets. Other systems may lack some.
    """

    systems: tuple[str, ...]
    datasets: tuple[str, ...]
    measures: tuple[str, ...]
    splits: dict[str, str]
    results: dict[tuple[str, str], SystemResult]
    """By data set and system."""
    convention: Convention
    test: str = "t-test"
    correction: str = "holm"
    groups: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Groups of data sets whose mean is the published figure, by the name of the group."""
    notes: tuple[str, ...] = ()
    """Remarks for the reader."""
    _tested: dict[tuple[str, str], dict[str, tuple[Difference, float]]] = field(default_factory=dict, repr=False)

    @property
    def baseline(self) -> str:
        """The system that the others are compared with."""
        return self.systems[0]

    def has(self, dataset: str, system: str) -> bool:
        """Whether a system has results on a data set; on a group it needs those of all members."""
        return all((m, system) in self.results for m in self.groups.get(dataset, (dataset,)))

    def value(self, dataset: str, system: str, measure: str) -> float:
        """A figure of a system on a data set that it has; on a group of data sets it is their mean."""
        members = self.groups.get(dataset, (dataset,))
        return float(np.mean([self.results[m, system].evaluation.measures[measure] for m in members]))

    def mean(self, system: str, measure: str) -> float:
        """The mean over all data sets that the system has; a group counts as one. NaN if it has none as a whole."""
        values = [self.value(d, system, measure) for d in self.rows if self.has(d, system)]
        return float(np.mean(values)) if values else float("nan")

    def is_complete(self, system: str) -> bool:
        """Whether a system has results on all data sets, so that its mean can be compared with other means."""
        return all(self.has(d, system) for d in self.rows)

    def against_baseline(self, system: str, measure: str) -> AgainstBaseline:
        """The average difference from the baseline, and on how many data sets the system is better and worse.

        Only data sets with results of the system are counted, also in the baseline's mean.
        """
        shared = [d for d in self.rows if self.has(d, system)]
        values = np.array([[self.value(d, s, measure) for d in shared] for s in (system, self.baseline)])
        sign = -1 if Measure.parse(measure).lower_is_better else 1
        gains = sign * (values[0] - values[1])
        mean, base = (float(v.mean()) if len(v) else float("nan") for v in values)
        marks = [self.mark(d, system, measure) for d in shared]
        better, worse = int((gains > TIE).sum()), int((gains < -TIE).sum())
        relative = (mean - base) / base if base else None
        return AgainstBaseline(
            len(shared), mean, mean - base, relative, better, len(shared) - better - worse, worse,
            marks.count("+"), marks.count("-"),
        )  # fmt: skip

    @property
    def rows(self) -> tuple[str, ...]:
        """The data sets that count, with a group in place of its members."""
        inside = {m for members in self.groups.values() for m in members}
        return (*(d for d in self.datasets if d not in inside), *self.groups)

    def differences(self, dataset: str, measure: str) -> dict[str, tuple[Difference, float]]:
        """How each system on a data set differs from the baseline, with its p-value corrected for their number."""
        if (dataset, measure) not in self._tested:
            self._tested[dataset, measure] = self._test_all(dataset, measure)
        return self._tested[dataset, measure]

    def _test_all(self, dataset: str, measure: str) -> dict[str, tuple[Difference, float]]:
        base = self.results[dataset, self.baseline].evaluation.by_query[measure]
        differences = {}
        for system in (s for s in self.systems[1:] if self.has(dataset, s)):
            other = self.results[dataset, system].evaluation.by_query[measure]
            both = [q for q in base if q in other]
            if not both:
                raise VizslaError(f"{system} and {self.baseline} have no judged query of {dataset} in common")
            differences[system] = compare_values({q: base[q] for q in both}, {q: other[q] for q in both}, self.test)
        adjusted = corrected([d.p for d in differences.values()], self.correction)
        return {system: (d, p) for (system, d), p in zip(differences.items(), adjusted, strict=True)}

    def mark(self, dataset: str, system: str, measure: str, alpha: float = 0.05) -> str:
        """`+` or `-` if a system is significantly better or worse than the baseline, else an empty text.

        It is also empty for a group of data sets, if the system has no results on the data set, or if the convention
        skips queries without results and the two systems lack different queries.
        """
        if system == self.baseline or dataset in self.groups or not self.has(dataset, system):
            return ""
        ours, base = (self.results[dataset, s].evaluation.by_query[measure] for s in (system, self.baseline))
        difference, p = self.differences(dataset, measure)[system]
        if p >= alpha or ours.keys() != base.keys():  # means over different queries cannot be tested
            return ""
        return "+" if (difference.mean > 0) != Measure.parse(measure).lower_is_better else "-"


VERSION = 2  # of cached runs; increment it when a change affects search results
_CHUNK = 1 << 20


def default_folder() -> Path:
    """Where runs are cached unless another folder is given."""
    return cache_folder("runs")


@dataclass(frozen=True)
class CachedRun:
    """A run and what was measured while it was computed."""

    run: Run
    facts: SystemFacts


@dataclass(frozen=True)
class Cache:
    """Runs in a folder, each named by the hash of everything it depends on."""

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
    """The key of a model's run on the data set with a digest; None if code of the model has no source file."""
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
    names = ("queries.jsonl", f"qrels/{split}.tsv")
    return _digest([*dataset.document_files, *(find_file(dataset.folder, name) for name in names)])


def _digest(files: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.stat().st_size.to_bytes(8, "little"))
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


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
    """Compare models, retrievers and external runs; the first system is the baseline.

    `datasets`: each with the split to evaluate on. `models`: by system name; each data set is indexed once for all of
    them. `retrievers` and `runs`: by system, then by data set; all but the baseline may lack some data sets.
    `documents`: a function that reads all documents of a data set, perhaps with a progress bar.

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
        raise VizslaError(f"two {what}s are called {repeated!r}; give each its own name")


def _missing(systems: Mapping[str, Mapping[str, object]], datasets: Sequence[str], baseline: str) -> list[str]:
    """Notes on systems without results on some data sets; an error for the baseline or a system without any."""
    notes = []
    for system, by_dataset in systems.items():
        lacking = [d for d in datasets if d not in by_dataset]
        if lacking and system == baseline:
            raise VizslaError(f"the baseline {system} has no results on {lacking[0]}; name a system with all first")
        if len(lacking) == len(datasets):
            raise VizslaError(f"{system} has no results on any of these data sets: {', '.join(datasets)}")
        if lacking:
            notes.append(f"{system} has no results on {', '.join(lacking)}; its mean does not include that")
    return notes


def _on_dataset(dataset: BeirDataset, systems: Mapping[str, Mapping[str, T]]) -> dict[str, T]:
    """What the systems have for a data set."""
    return {name: by_dataset[dataset.name] for name, by_dataset in systems.items() if dataset.name in by_dataset}


def _evaluate_run(
    run: Run, dataset: BeirDataset, qrels: Qrels, measures: Sequence[Measure], rules: Convention
) -> SystemResult:
    """The result of an external run, with the number of its documents that the data set does not have."""
    evaluation = evaluate(run, qrels, measures, rules)
    if evaluation.facts["missing"] == evaluation.facts["queries"]:
        raise VizslaError(f"a run on {dataset.name} has none of its judged queries; is it of another data set?")
    if dataset.has_corpus:
        ids = {d for q in run if q in qrels.judgements for d in run[q].documents}
        evaluation.facts["unknown"] = len(ids) - len(set(filter(ids.__contains__, dataset.document_ids())))
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
    digests: dict[BeirDataset, str] = {}
    keys: dict[str, str | None] = {}
    for name, model in models.items() if cache else ():
        read = dataset.reading(model.fields)
        digests[read] = digests.get(read) or dataset_digest(read, split)
        keys[name] = cache_key(digests[read], model, depth, rules.own_ids)
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
    dataset = dataset.reading({field for model in models.values() for field in model.fields})
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
                result.facts["milliseconds"] = query_latency(index.with_model(model, threads=1), queries)
                runs[name] = result
            return runs


def _retriever_run(retriever: Retriever, queries: Mapping[str, str], depth: int, rules: Convention) -> CachedRun:
    started = time.perf_counter()
    run = retrieve(retriever, queries, depth, own_ids=rules.own_ids)
    seconds = {"search": time.perf_counter() - started}
    return CachedRun(run, {"documents": len(retriever), "seconds": seconds})


def shared_index_model(models: Iterable[Model]) -> Model:
    """A sum whose index stores everything that these models need, each component once, so that all can search it."""
    stored: list[Component] = []
    for model in models:
        wanted = [p.component for p in model.parts]
        for component in wanted:
            copies = sum(c.index_signature == component.index_signature for c in wanted)
            while sum(c.index_signature == component.index_signature for c in stored) < copies:
                stored.append(replace(component, namespace=f"part{len(stored)}"))  # type: ignore[type-var]
    return stored[0] if len(stored) == 1 else Sum(tuple(Part(1.0, c) for c in stored))


def query_latency(view: IndexView, queries: Mapping[str, str]) -> float:
    """The median time of one query searched alone for ten results, in milliseconds."""
    texts = list(queries.values())
    sample = [q for q in texts[:: max(len(texts) // TIMED, 1)] if q.strip()][:TIMED]
    times, warm_up = [], sample[:3]
    for query in warm_up + sample:
        started = time.perf_counter()
        view.search_many([query], 10, documents=False)
        times.append(time.perf_counter() - started)
    return 1000 * float(np.median(times[len(warm_up) :])) if sample else 0.0
