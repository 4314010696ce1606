"""MS MARCO's passages as Microsoft gives them out, with triples or mined negatives for training.

Queries are those with judgements: of `train`, of the 6,980 of `dev` and, where its files are given, of TREC Deep
Learning 2019 as `test`. Negatives come from one of three files; of long lists a random part is kept.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from vizsla.datasets.preparing import DatasetWriter, GivenFile, GivenFiles, PublishedFile, preparation
from vizsla.errors import VizslaError

_ADDRESS = "https://msmarco.z22.web.core.windows.net/msmarcoranking/"
_ALL = _ADDRESS + "collectionandqueries.tar.gz"
NEGATIVES = 50
"""The most negatives that are kept of a query, drawn at random; RepBERT's training sees 23 a query."""

# Counts: github.com/microsoft/MSMARCO-Passage-Ranking; checksums: the catalogue of ir_datasets.
COLLECTION = PublishedFile("collection.tsv", _ALL, 8_841_823)
TRAIN_QUERIES = PublishedFile("queries.train.tsv", _ALL, 808_731)
DEV_QUERIES = PublishedFile("queries.dev.small.tsv", _ALL, 6_980)
TRAIN = PublishedFile("qrels.train.tsv", _ALL, 532_761)
DEV = PublishedFile("qrels.dev.small.tsv", _ALL, 7_437)
TEST_QUERIES = PublishedFile(
    "msmarco-test2019-queries.tsv", _ADDRESS + "msmarco-test2019-queries.tsv.gz", 200,
    ("md5:eda71eccbe4d251af83150abe065368c",), required=False,
)  # fmt: skip
TEST = PublishedFile(
    "2019qrels-pass.txt", "https://trec.nist.gov/data/deep/2019qrels-pass.txt", 9_260,
    ("md5:2f4be390198da108f6845c822e5ada14",), required=False,
)  # fmt: skip
TRIPLES = PublishedFile(
    "qidpidtriples.train.full.tsv", _ADDRESS + "qidpidtriples.train.full.tsv.gz", 269_919_004,
    ("md5:215a5204288820672f5e9451d9e202c5",), required=False, fetched=False,
)  # fmt: skip
TRIPLES_2 = PublishedFile(
    "qidpidtriples.train.full.2.tsv", _ADDRESS + "qidpidtriples.train.full.2.tsv.gz", 397_768_673,
    ("md5:219083e80a0a751c08b968c2f31a4e0b",), required=False, fetched=False,
)  # fmt: skip
MINED = PublishedFile(
    "msmarco-hard-negatives.jsonl",
    "https://huggingface.co/datasets/sentence-transformers/msmarco-hard-negatives/resolve/main/"
    "msmarco-hard-negatives.jsonl.gz",
    required=False, fetched=False,
)  # fmt: skip
LISTED = PublishedFile(
    "train.negatives.tsv", "the archive marco.tar.gz of RocketQA and coCondenser", required=False, fetched=False
)

NEGATIVE_FILES = (TRIPLES, TRIPLES_2, MINED, LISTED)

_Judged = dict[str, list[str]]
"""The relevant passages by query."""


@preparation(
    "msmarco", COLLECTION, TRAIN_QUERIES, DEV_QUERIES, TRAIN, DEV, TEST_QUERIES, TEST, *NEGATIVE_FILES,
    help="passages, queries and judgements; with triples or mined negatives for training",
)  # fmt: skip
def prepare_msmarco(given: GivenFiles, to: DatasetWriter) -> None:
    sources = [file for file in map(given.find, (published.name for published in NEGATIVE_FILES)) if file]
    if len(sources) > 1:
        names = " and ".join(file.name for file in sources)
        raise VizslaError(f"negatives come from one file, not from {names}; give one of them")
    train = _split(given.one(TRAIN.name), given.one(TRAIN_QUERIES.name), "train", to)
    _split(given.one(DEV.name), given.one(DEV_QUERIES.name), "dev", to)
    test, test_queries = given.find(TEST.name), given.find(TEST_QUERIES.name)
    if (test is None) != (test_queries is None):
        raise VizslaError(f"{TEST.name} and {TEST_QUERIES.name} belong together; give both, or none")
    if test and test_queries:
        _split(test, test_queries, "test", to)
    for file in sources:
        _negatives(file, train, to)
    for _, (passage, text) in given.one(COLLECTION.name).columns("pid", "passage"):
        to.document(passage, text)


def _split(qrels: GivenFile, queries: GivenFile, split: str, to: DatasetWriter) -> _Judged:
    """Write the judgements and the judged queries of a split; give back what is relevant."""
    relevant: _Judged = {}
    for line, text in qrels.lines():
        columns = text.split()
        if len(columns) != 4 or not columns[3].lstrip("-").isdecimal():
            qrels.refuse("expected four columns: query, 0, passage, grade", line)
        query, _, passage, grade = columns
        to.judgement(split, query, passage, int(grade))
        relevant.setdefault(query, [])
        if int(grade) > 0:
            relevant[query].append(passage)
    missing = set(relevant)
    for line, (query, text) in queries.columns("qid", "query"):
        if query in relevant:
            if query not in missing:
                queries.refuse(f"the query id {query!r} appears a second time", line)
            missing.discard(query)
            to.query(query, text)
    if missing:
        queries.refuse(f"{len(missing):,} judged queries of {qrels.name} are not in this file, such as {min(missing)}")
    return relevant


def _negatives(file: GivenFile, relevant: _Judged, to: DatasetWriter) -> None:
    rng, queries, cut = np.random.default_rng(0), 0, False
    if file.published in (TRIPLES, TRIPLES_2):
        lists = _triples(file, to.scratch)
    else:
        lists = _mined(file) if file.published == MINED else _listed(file)
    for query, negatives in lists:
        positives = relevant.get(query)
        if not positives:
            continue
        wrong = [passage for passage in negatives if passage not in positives]
        if len(wrong) > NEGATIVES:
            wrong, cut = [wrong[i] for i in np.sort(rng.choice(len(wrong), NEGATIVES, replace=False))], True
        queries += 1
        to.training_documents("train", query, positives, wrong)
    to.remark(f"{queries:,} train queries have negatives of {file.name}")
    if cut:
        to.remark(f"of queries with more than {NEGATIVES} negatives, {NEGATIVES} random ones are kept")


def _mined(file: GivenFile) -> Iterator[tuple[str, list[str]]]:
    """Lines {qid, pos, neg: {system: [pids]}} of sentence-transformers: BM25's negatives, else those of all systems."""
    for line, record in file.json_lines():
        systems = record.get("neg")
        if (
            "qid" not in record
            or not isinstance(systems, dict)
            or not all(isinstance(n, list) for n in systems.values())
        ):
            file.refuse("expected a 'qid' and lists of negatives by system in 'neg'", line)
        lists = [systems["bm25"]] if systems.get("bm25") else list(systems.values())
        yield str(record["qid"]), list(dict.fromkeys(str(passage) for some in lists for passage in some))


def _listed(file: GivenFile) -> Iterator[tuple[str, list[str]]]:
    """Lines of RocketQA and Tevatron: a query, a tab, negatives with commas between."""
    for _, (query, negatives) in file.columns("qid", "pids separated by commas"):
        yield query, [passage for passage in negatives.split(",") if passage]


_PARTS = 64
_BATCH = 1 << 18


def _triples(file: GivenFile, scratch: Path) -> Iterator[tuple[str, list[str]]]:
    """The negatives of each query of 400 million triples, in parts of the queries that fit into memory."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        parts = [Path(folder, str(number)) for number in range(_PARTS)]
        files = [part.open("wb") for part in parts]
        try:
            for rows in _triple_rows(file):
                rows = rows[np.argsort(rows[:, 0] % _PARTS, kind="stable")]
                ends = np.searchsorted(rows[:, 0] % _PARTS, np.arange(_PARTS + 1))
                for number, part in enumerate(files):
                    part.write(rows[ends[number] : ends[number + 1], ::2].tobytes())
        finally:
            for part in files:
                part.close()
        for path in parts:
            pairs = np.unique(np.fromfile(path, np.uint32).reshape(-1, 2), axis=0)
            queries, starts = np.unique(pairs[:, 0], return_index=True)
            ends = np.append(starts[1:], len(pairs))
            for query, start, end in zip(queries.tolist(), starts, ends[: len(queries)], strict=True):
                yield str(query), [str(passage) for passage in pairs[start:end, 1].tolist()]


def _triple_rows(file: GivenFile) -> Iterator[np.ndarray]:
    """[triples, 3] query, positive and negative, in batches."""
    lines: list[str] = []
    first = 1
    for number, line in file.lines():
        if not lines:
            first = number
        lines.append(line)
        if len(lines) == _BATCH:
            yield _parsed(file, lines, first)
            lines = []
    if lines:
        yield _parsed(file, lines, first)


def _parsed(file: GivenFile, lines: list[str], first: int) -> np.ndarray:
    try:
        numbers = np.array("\t".join(lines).split("\t"), np.uint32)
    except (ValueError, OverflowError):
        numbers = np.zeros(0, np.uint32)
    if len(numbers) != 3 * len(lines) or any(line.count("\t") != 2 for line in lines):
        for number, line in enumerate(lines, first):
            columns = line.split("\t")
            if len(columns) != 3 or not all(c.isascii() and c.isdecimal() and int(c) < 1 << 32 for c in columns):
                file.refuse("expected three numbers separated by tabs: qid, positive pid, negative pid", number)
    return numbers.reshape(-1, 3)
