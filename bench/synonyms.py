"""How the words of a synonym of several words count, measured on the abbreviations of collections.

    python bench/synonyms.py --data data [SET ...]

A document that says "body mass index (BMI)" gives the line "body mass index, BMI" of a file of synonyms. Prints nDCG@10
of BM25 on the judged queries: without synonyms; with them as Vizsla has them, where the words of a synonym share the
weight of one; where each counts whole; and, by scores of every document, where they count only in documents that have
all of them, shared and whole. All abbreviations, and those of three letters with one long form in two documents.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from vizsla import BM25, BeirDataset, Run, evaluate
from vizsla.models import CountedStatistics, Synonyms
from vizsla.models.synonyms import Terms, parse_synonyms
from vizsla.runs import Ranking

MEASURE = "nDCG@10"
DEPTH = 100
WAYS = ("without", "shared", "whole", "all words, shared", "all words, whole")
_BRACKETS = re.compile(r"((?:[A-Za-z][\w-]*[ -]){2,6})\(([A-Z][A-Za-z0-9-]{1,7})\)")


def abbreviations(text: str) -> Iterator[tuple[str, str]]:
    """Long and short forms: the letters of the short form begin the words of the long one.

    >>> list(abbreviations("the body mass index (BMI) of dogs"))
    [('body mass index', 'BMI')]
    """
    for words, short in _BRACKETS.findall(text):
        letters = [c for c in short.lower() if c.isalpha()]
        own = re.split(r"[ -]", words.strip())[-len(letters) :]
        if len(own) == len(letters) > 1 and [w[:1].lower() for w in own] == letters:
            yield " ".join(own), short


class Scorer:
    """BM25's score of every document, for each way to count synonyms."""

    def __init__(self, contents: Sequence[dict[str, str]], synonyms: Synonyms) -> None:
        self._bm25, self._synonyms = BM25(), synonyms
        self._statistics: CountedStatistics = self._bm25.count(contents)
        vectors = self._bm25.document_vectors(contents, self._statistics)
        rows = np.repeat(np.arange(len(contents)), np.diff(vectors.pointers))
        order = np.argsort(vectors.indices, kind="stable")
        self._rows, self._values = rows[order], vectors.values[order]
        self._ends = np.searchsorted(vectors.indices[order], np.arange(len(vectors.vocabulary) + 1))
        self._numbers = {vectors.vocabulary[i][1]: i for i in range(len(vectors.vocabulary))}
        self._size = len(contents)

    def scores(self, query: str) -> tuple[dict[str, np.ndarray], bool]:
        analyzer = self._bm25.text_analyzer
        terms = analyzer(query)
        matches = self._synonyms.matches(terms, analyzer)
        typed = Counter(terms)
        base = sum((n * self._idf(t) * self._column(t) for t, n in typed.items()), np.zeros(self._size))
        found = {way: base.copy() for way in WAYS}
        for match in matches:
            own = tuple(terms[match.start : match.end])
            single = [t for (t, *rest) in (own, *match.synonyms) if not rest and t in self._numbers]
            least = min(map(self._idf, single), default=np.inf)
            shares: dict[str, int] = {}
            for synonym in match.synonyms:
                if set(own) <= set(synonym):
                    continue
                new = [t for t in synonym if t not in typed]
                for t in new:
                    shares[t] = min(len(synonym), shares.get(t, len(synonym)))
                bonus = sum((min(self._idf(t), least) * self._column(t) for t in new), np.zeros(self._size))
                bonus *= self._has_all(synonym)
                found["all words, whole"] += bonus
                found["all words, shared"] += bonus / len(synonym)
            for t, size in shares.items():
                gain = min(self._idf(t), least) * self._column(t)
                found["whole"] += gain
                found["shared"] += gain / size
        return found, bool(matches)

    def _has_all(self, terms: Terms) -> np.ndarray:
        return np.logical_and.reduce([self._column(t) > 0 for t in terms])

    def _idf(self, term: str) -> float:
        frequency = self._statistics.document_frequencies([term])
        return float(self._bm25.term_factors(frequency, self._statistics.documents)[0]) if frequency[0] else 0.0

    def _column(self, term: str) -> np.ndarray:
        column = np.zeros(self._size)
        if (number := self._numbers.get(term)) is not None:
            inside = slice(self._ends[number], self._ends[number + 1])
            column[self._rows[inside]] = self._values[inside]
        return column


def measured(dataset: BeirDataset, pairs: Sequence[tuple[str, str]]) -> None:
    documents = list(dataset.documents())
    scorer = Scorer([d.content for d in documents], Synonyms(parse_synonyms(f"{a}, {b}" for a, b in pairs)))
    qrels = dataset.qrels("test")
    rankings: dict[str, dict[str, Ranking]] = {way: {} for way in WAYS}
    some = 0
    for query_id, query in dataset.queries_of(qrels).items():
        found, has_some = scorer.scores(query)
        some += has_some
        for way, scores in found.items():
            best = np.lexsort((np.arange(len(scores)), -scores))[:DEPTH]
            best = best[scores[best] > 0]
            rankings[way][query_id] = Ranking([documents[i].id for i in best], scores[best].astype(np.float32))
    values = {way: evaluate(Run(own), qrels, [MEASURE]).measures[MEASURE] for way, own in rankings.items()}
    print(
        f"  {len(pairs):5} pairs in {some} queries: " + ", ".join(f"{w} {v:.4f}" for w, v in values.items()), flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", default=("scifact", "nfcorpus"))
    parser.add_argument("--data", required=True)
    options = parser.parse_args()
    for name in options.sets:
        dataset = BeirDataset.open(Path(options.data) / name)
        print(name)
        counts = Counter(pair for d in dataset.documents() for pair in set(abbreviations(d["text"])))
        forms: dict[str, set[str]] = defaultdict(set)
        for long, short in counts:
            forms[short.lower()].add(long.lower())
        measured(dataset, sorted(counts))
        clear = [(a, b) for (a, b), n in counts.items() if len(b) > 2 and len(forms[b.lower()]) == 1 and n > 1]
        measured(dataset, sorted(clear))


if __name__ == "__main__":
    main()
