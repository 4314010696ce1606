"""Data sets and documents as arrays that training reads: token ids, pairs with negatives, dev sets."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.datasets import BeirDataset, Document
from vizsla.errors import InputError, VizslaError
from vizsla.index import Index
from vizsla.models import BM25, Model, Network, parse_model
from vizsla.models.model import field_text
from vizsla.runs import Qrels, Run
from vizsla.text import Analyzer

if TYPE_CHECKING:
    from vizsla.training import DevSet, MinedPairs, TokenCorpus

FIELDS = ("title", "text")
LEAST_TOKENS = 20  # a shorter document gives no two crops worth telling from others
_DEPTH = 100  # of the rankings that negatives are mined from
_TEXTS = 5000  # tokenised together
SAMPLE = 40  # texts that 8-bit weights are fitted on


def judged_pairs(
    dataset: BeirDataset,
    analyzer: Analyzer,
    group: int,
    split: str = "train",
    negatives: str = "",
    depth: int = _DEPTH,
) -> MinedPairs:
    """The judged queries of a data set and, for each, documents that look as if they answered it; see `told_apart`."""
    from vizsla.training import MinedPairs, TokenCorpus

    qrels = dataset.qrels(split)
    queries = dataset.queries_of(qrels)
    documents = list(dataset.documents())
    right, wrong = told_apart(documents, queries, dataset, split, BM25(), negatives, depth)
    encode = tokens_of(analyzer)
    texts, contents = list(queries.values()), [field_text(d.content, FIELDS) for d in documents]
    return MinedPairs(TokenCorpus.of(encode(texts)), TokenCorpus.of(encode(contents)), right, wrong, group)


def told_apart(
    documents: Sequence[Document],
    queries: Mapping[str, str],
    dataset: BeirDataset,
    split: str,
    bm25: BM25,
    negatives: str = "",
    depth: int = _DEPTH,
) -> tuple[TokenCorpus, TokenCorpus]:
    """For each query the numbers of the documents that answer it, and of those that look as if they did.

    What is judged relevant answers, and what the data set says does; others look so that the data set names, or, where
    it names none for a query, that BM25 finds. `negatives`: a TREC run or a model that finds them instead for all
    queries, so that what is learnt is to tell apart what that first stage confuses.
    """
    from vizsla.training import TokenCorpus

    qrels, known = dataset.qrels(split), dataset.confusions(split)
    if known and not any(query in queries for query in known):
        raise InputError(f"none of the queries in {split}_hard_negatives.jsonl is judged", file=str(dataset.folder))
    named_wrong = {} if negatives else {query: one.wrong for query, one in known.items() if one.wrong is not None}
    rest = {query: text for query, text in queries.items() if query not in named_wrong}
    if negatives:
        found = ranked_by(negatives, documents, rest, depth)
    else:
        found = _mined(documents, rest, bm25, depth) if rest else {}
    places = {d.id: i for i, d in enumerate(documents)}
    right, wrong = [], []
    for query in queries:
        named = known.get(query)
        relevant = [d for d, grade in qrels.judgements[query].items() if grade > 0]
        answers = dict.fromkeys([*(named.right if named else ()), *relevant])  # in order, unlike a set
        others = named_wrong[query] if query in named_wrong else found[query]
        right.append(np.array([places[d] for d in answers if d in places], np.int64))
        wrong.append(np.array([places[d] for d in others if d in places and d not in answers and d != query], np.int64))
    return TokenCorpus.of(right), TokenCorpus.of(wrong)


def ranked_by(
    which: str, documents: Sequence[Document], queries: Mapping[str, str], depth: int
) -> dict[str, Sequence[str]]:
    """What a first stage ranks first for queries: a TREC run by its file, or a model, which is asked.

    A query that a run does not have finds nothing.
    """
    if not Path(which).is_file():
        return _mined(documents, queries, parse_model(which), depth)
    run = Run.read(which)
    found: dict[str, Sequence[str]] = {q: run[q].documents[:depth] if q in run else () for q in queries}
    ids = {d.id for d in documents}
    if not any(d in ids for ranked in found.values() for d in ranked):
        raise InputError("this run has none of the queries, or none of the documents, it is read for", file=which)
    return found


def _mined(
    documents: Sequence[Document], queries: Mapping[str, str], model: Model, depth: int
) -> dict[str, Sequence[str]]:
    if model.needs_corpus_statistics:
        model = model.fit([d.content for d in documents])
    with (
        tempfile.TemporaryDirectory(prefix="vizsla-") as folder,
        Index.create(f"{folder}/index", model, store=False) as index,
    ):
        index.add(documents)
        index.commit()
        found = index.run(queries, depth)
    return {query: found[query].documents if query in found else () for query in queries}


def judgements_of(documents: Sequence[Document], queries: Mapping[str, str], qrels: Qrels) -> np.ndarray:
    """[judgements, 3] the numbers of query and document, and the grade."""
    places = {d.id: i for i, d in enumerate(documents)}
    rows = [
        (number, places[d], grade)
        for number, query in enumerate(queries)
        for d, grade in qrels.judgements[query].items()
        if d in places
    ]
    return np.array(rows, np.int64).reshape(-1, 3)


def pack(documents: Iterable[Document], analyzer: Analyzer, join: int = 1) -> TokenCorpus:
    """Documents as token ids; those too short for two crops are left out."""
    from vizsla.training import TokenCorpus

    encode = tokens_of(analyzer)
    rows: list[np.ndarray] = []
    texts = iter(_joined(documents, join))
    while some := list(islice(texts, _TEXTS)):
        rows += [row.astype(np.uint16 if row.max(initial=0) < 1 << 16 else np.uint32) for row in encode(some)]
    kept = [row for row in rows if len(row) >= LEAST_TOKENS]
    if not kept:
        raise VizslaError(f"there is no document with {LEAST_TOKENS} tokens or more to train on")
    return TokenCorpus.pack(kept)


def _joined(documents: Iterable[Document], join: int) -> Iterator[str]:
    if join <= 1:
        yield from (field_text(d.content, FIELDS) for d in documents)
        return
    for _, group in groupby(documents, key=lambda d: d.content.get("title") or d.id):
        while some := list(islice(group, join)):
            yield "\n".join(field_text(d.content, ("text",)) for d in some)


def tokens_of(analyzer: Analyzer) -> Callable[[Sequence[str]], list[np.ndarray]]:
    """A function from texts to their token ids; it remembers words."""
    lexicon, numbers = analyzer.lexicon(), analyzer.tokenizer.numbers  # type: ignore[attr-defined]

    def encode(texts: Sequence[str]) -> list[np.ndarray]:
        found, ends = lexicon.encode(texts)
        ids = np.array([numbers[t] for t in lexicon.terms], np.int64)
        return np.split(ids[found], ends[:-1])

    return encode


def dev_set(dataset: BeirDataset, analyzer: Analyzer, split: str = "dev") -> DevSet:
    """A data set's judged queries as training asks them, with BM25's vectors to be added."""
    from vizsla.training import DevSet, TokenCorpus
    from vizsla.training.dev import Rows

    qrels = dataset.qrels(split)
    queries = dataset.queries_of(qrels)
    documents = list(dataset.documents())
    encode, bm25 = tokens_of(analyzer), BM25()
    contents = [d.content for d in documents]
    statistics = bm25.statistics(contents)
    numbers: dict[Any, int] = {}

    def rows(vectors: Any) -> Rows:
        names = [numbers.setdefault(vectors.vocabulary[i], len(numbers)) for i in range(len(vectors.vocabulary))]
        terms = np.array(names, np.int64)[vectors.indices]
        return Rows(vectors.pointers, terms, vectors.values.astype(np.float32))

    return DevSet(
        dataset.name,
        TokenCorpus.of(encode([field_text(c, FIELDS) for c in contents])),
        TokenCorpus.of(encode(list(queries.values()))),
        judgements_of(documents, queries, qrels),
        rows(bm25.encode_documents(contents, statistics)),
        rows(bm25.encode_queries(list(queries.values()), statistics)),
    )


def place_network(
    network: Any, folder: Path, *, most: float, length: int, sample: Sequence[Sequence[int]], pooling: str = ""
) -> Network:
    """Write a trained network in 8 bits into a folder of its own inside another, named by what it is."""
    from vizsla.networks.inference import plain_name

    shutil.rmtree(folder / "written", ignore_errors=True)
    weights = {plain_name(n): p.detach().float().numpy() for n, p in network.named_parameters()}
    heads = network.encoder.heads
    written = Network.write(
        folder / "written",
        weights,
        kind=network.kind,
        heads=heads,
        max_weight=most,
        length=length,
        sample=sample,
        pooling=pooling,
    )
    place = folder / written.digest[:12]
    shutil.rmtree(place, ignore_errors=True)
    written.folder.rename(place)
    return Network.open(place)
