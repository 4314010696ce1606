"""Judged queries with hard negatives, from data sets."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vizsla.datasets import BeirDataset, Document
from vizsla.errors import InputError, VizslaError
from vizsla.index import Index
from vizsla.models import BM25, Model, field_text, parse_model
from vizsla.runs import Qrels, Run
from vizsla.text import Analyzer
from vizsla.training.prepare.texts import FIELDS, packed_texts

if TYPE_CHECKING:
    from vizsla.training.arrays.dev_set import DevSet
    from vizsla.training.arrays.pairs import MinedPairs
    from vizsla.training.arrays.token_corpus import TokenCorpus


@contextmanager
def temporary_index(documents: Sequence[Document], model: Model) -> Iterator[Index]:
    """An index of documents that is deleted afterwards; a model that needs it is fitted to them."""
    if model.needs_corpus_statistics:
        model = model.fit([d.content for d in documents])
    with (
        tempfile.TemporaryDirectory(prefix="vizsla-") as folder,
        Index.create(f"{folder}/index", model, store=False) as index,
    ):
        index.add(documents)
        index.commit()
        yield index


class AnsweredQueries(NamedTuple):
    """The texts of queries, and for each the numbers of documents that answer it (positives) and that do not."""

    documents: Sequence[Document]
    queries: Sequence[str]
    positives: TokenCorpus
    negatives: TokenCorpus

    def thinned(self, kept_negatives: int, rng: np.random.Generator) -> AnsweredQueries:
        """The same with `kept_negatives` random negatives per query; 0 keeps all. Unused documents are left out."""
        from vizsla.training.arrays.token_corpus import TokenCorpus

        negatives = self.negatives
        if kept_negatives:
            rows = [negatives[query] for query in range(len(negatives))]
            chosen = [np.sort(rng.permutation(len(row))[:kept_negatives]) for row in rows]
            negatives = TokenCorpus.of([np.asarray(row)[places] for row, places in zip(rows, chosen, strict=True)])
        used = np.union1d(self.positives.ids, negatives.ids).astype(np.int64)
        sides = (TokenCorpus(np.searchsorted(used, side.ids), side.offsets) for side in (self.positives, negatives))
        return AnsweredQueries([self.documents[i] for i in used.tolist()], self.queries, *sides)

    def packed(self, analyzer: Analyzer) -> MinedPairs:
        """The same as token ids."""
        from vizsla.training.arrays.pairs import MinedPairs

        contents = [field_text(document.content, FIELDS) for document in self.documents]
        queries, documents = (packed_texts(one, analyzer) for one in (self.queries, contents))
        return MinedPairs(queries, documents, self.positives, self.negatives)


NEGATIVES_DEPTH = 100  # of the rankings that hard negatives are taken from


class JudgedTexts(NamedTuple):
    """The train queries of a data set, its documents, and both as pairs."""

    documents: list[Document]
    queries: dict[str, str]
    pairs: MinedPairs

    def own_documents(self) -> np.ndarray:
        """[queries] the number of the document that has the id of a query; -1 for none."""
        numbers = {document.id: number for number, document in enumerate(self.documents)}
        return np.array([numbers.get(query, -1) for query in self.queries], np.int64)


def judged_texts(
    datasets: Sequence[BeirDataset],
    analyzer: Analyzer,
    *,
    negatives: str = "",
    negatives_depth: int = NEGATIVES_DEPTH,
    fields: Sequence[str] = FIELDS,
) -> Iterator[JudgedTexts]:
    """The train queries of each data set with their answers and hard negatives; see `positives_and_negatives`."""
    from vizsla.training.arrays.pairs import MinedPairs

    check_run_has_one_dataset(negatives, datasets)
    for dataset in datasets:
        queries, documents = dataset.queries_of(dataset.qrels("train")), list(dataset.documents())
        numbers = positives_and_negatives(
            documents, queries, dataset, "train", BM25(fields=tuple(fields)), negatives, negatives_depth
        )
        contents = [field_text(d.content, fields) for d in documents]
        packed_queries = packed_texts(list(queries.values()), analyzer)
        yield JudgedTexts(documents, queries, MinedPairs(packed_queries, packed_texts(contents, analyzer), *numbers))


def judged_pairs(
    datasets: Sequence[BeirDataset],
    analyzer: Analyzer,
    *,
    negatives: str = "",
    negatives_depth: int = NEGATIVES_DEPTH,
    fields: Sequence[str] = FIELDS,
) -> MinedPairs:
    """The train queries of data sets as pairs; options as for `judged_texts`."""
    from vizsla.training.arrays.pairs import MinedPairs

    options: dict[str, Any] = {"negatives": negatives, "negatives_depth": negatives_depth, "fields": fields}
    return MinedPairs.concatenate([texts.pairs for texts in judged_texts(datasets, analyzer, **options)])


def check_run_has_one_dataset(first_stage: str, datasets: Sequence[BeirDataset]) -> None:
    """Refuse a TREC run as the first stage of several data sets."""
    if first_stage and Path(first_stage).is_file() and len(datasets) > 1:
        raise VizslaError(f"{first_stage}: a run belongs to one data set, not to {len(datasets)}; name a model instead")


def positives_and_negatives(
    documents: Sequence[Document],
    queries: Mapping[str, str],
    dataset: BeirDataset,
    split: str,
    bm25: BM25,
    negatives: str = "",
    depth: int = NEGATIVES_DEPTH,
) -> tuple[TokenCorpus, TokenCorpus]:
    """For each query the numbers of its positives, and of its hard negatives.

    Positives are judged relevant, or named in the data set's `train_hard_negatives.jsonl`. Hard negatives are named
    there, too; for other queries they are the best documents of BM25 that are not positives. `negatives`: a TREC run
    or a model whose best documents are the hard negatives of all queries instead.
    """
    from vizsla.training.arrays.token_corpus import TokenCorpus

    qrels, named = dataset.qrels(split), dataset.hard_negatives(split)
    if named and not any(query in qrels.judgements for query in named):
        raise InputError(f"none of the queries in {split}_hard_negatives.jsonl is judged", file=str(dataset.folder))
    named_negatives = (
        {} if negatives else {query: one.negatives for query, one in named.items() if one.negatives is not None}
    )
    other_queries = {query: text for query, text in queries.items() if query not in named_negatives}
    if negatives:
        rankings = first_stage_rankings(negatives, documents, other_queries, depth)
    else:
        rankings = _model_rankings(documents, other_queries, bm25, depth) if other_queries else {}
    numbers = {d.id: i for i, d in enumerate(documents)}
    positive_numbers, negative_numbers = [], []
    for query in queries:
        entry = named.get(query)
        relevant = [d for d, grade in qrels.judgements[query].items() if grade > 0]
        answers = dict.fromkeys([*(entry.positives if entry else ()), *relevant])  # in order, unlike a set
        candidates = named_negatives[query] if query in named_negatives else rankings[query]
        wrong = [d for d in candidates if d in numbers and d not in answers and d != query]
        positive_numbers.append(np.array([numbers[d] for d in answers if d in numbers], np.int64))
        negative_numbers.append(np.array([numbers[d] for d in wrong], np.int64))
    return TokenCorpus.of(positive_numbers), TokenCorpus.of(negative_numbers)


def first_stage_rankings(
    first_stage: str, documents: Sequence[Document], queries: Mapping[str, str], depth: int
) -> dict[str, Sequence[str]]:
    """The best documents for each query, from the file of a TREC run or from a model.

    A query that a run does not have gets no documents.
    """
    if not Path(first_stage).is_file():
        return _model_rankings(documents, queries, parse_model(first_stage), depth)
    run = Run.read(first_stage)
    rankings: dict[str, Sequence[str]] = {q: run[q].documents[:depth] if q in run else () for q in queries}
    ids = {d.id for d in documents}
    if not any(d in ids for ranked in rankings.values() for d in ranked):
        raise InputError("this run has none of the queries, or none of the documents, it is used for", file=first_stage)
    return rankings


def _model_rankings(
    documents: Sequence[Document], queries: Mapping[str, str], model: Model, depth: int
) -> dict[str, Sequence[str]]:
    with temporary_index(documents, model) as index:
        run = index.run(queries, depth)
    return {query: run[query].documents if query in run else () for query in queries}


def judgement_rows(documents: Sequence[Document], queries: Mapping[str, str], qrels: Qrels) -> np.ndarray:
    """[judgements, 3] the numbers of query and document, and the grade."""
    numbers = {d.id: i for i, d in enumerate(documents)}
    rows = [
        (number, numbers[d], grade)
        for number, query in enumerate(queries)
        for d, grade in qrels.judgements[query].items()
        if d in numbers
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def dev_set(dataset: BeirDataset, analyzer: Analyzer, split: str = "dev", fields: Sequence[str] = FIELDS) -> DevSet:
    """A data set's judged queries, and the vectors that BM25 gives queries and documents."""
    from vizsla.training.arrays.dev_set import DevSet
    from vizsla.training.arrays.products import SparseRows

    qrels = dataset.qrels(split)
    queries = dataset.queries_of(qrels)
    documents = list(dataset.documents())
    contents, bm25 = [d.content for d in documents], BM25(fields=tuple(fields))
    statistics = bm25.statistics(contents)
    numbers: dict[Any, int] = {}

    def rows(vectors: Any) -> SparseRows:
        columns = [numbers.setdefault(vectors.vocabulary[i], len(numbers)) for i in range(len(vectors.vocabulary))]
        terms = np.array(columns, np.int64)[vectors.indices]
        return SparseRows(vectors.pointers, terms, vectors.values.astype(np.float32))

    return DevSet(
        dataset.name,
        packed_texts([field_text(c, fields) for c in contents], analyzer),
        packed_texts(list(queries.values()), analyzer),
        judgement_rows(documents, queries, qrels),
        rows(bm25.encode_documents(contents, statistics)),
        rows(bm25.encode_queries(list(queries.values()), statistics)),
    )
