"""Details of a data set for reports: document lengths, examples and vocabulary, collected in one pass."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vizsla.datasets import BeirDataset, Document
from vizsla.evaluation.domains import TermShares
from vizsla.evaluation.systems import Comparison
from vizsla.index import Highlighter
from vizsla.models import BM25, Model, SparseComponent
from vizsla.reports.formats import escape_html
from vizsla.runs import Qrels
from vizsla.text.filters import stop_words

TOP_K = 10
SHOWN = 3  # documents of each system in an example
EXAMPLES = 6  # queries for each data set and system: half of them gained, half lost
SNIPPET = 260


@dataclass(frozen=True)
class DatasetDetails:
    """The details of a data set for a report."""

    dataset: BeirDataset
    qrels: Qrels
    queries: Mapping[str, str]
    documents: Mapping[str, Document]
    """The documents that the examples show."""
    corpus_lengths: Sequence[int]
    """The number of words of each document."""
    found_lengths: dict[str, list[int]]
    """The number of words of the first ten documents of each query, by system."""
    examples: dict[str, list[str]]
    """By system: the queries that differ most from the baseline."""
    term_shares: dict[str, float]
    """The share of each term in all terms of the collection."""


def collect_details(c: Comparison, dataset: BeirDataset, *, vocabulary: bool) -> DatasetDetails:
    """Collect the details of a data set; without `vocabulary` its terms are not counted."""
    name = dataset.name
    qrels = dataset.qrels(c.splits[name])
    systems = [s for s in c.systems if c.has(name, s)]
    examples = {s: _most_different(c, name, s) for s in systems[1:]}
    shown = {
        d
        for system, queries in examples.items()
        for q in queries
        for s in (c.baseline, system)
        for d in _ranked(c, name, s, q)[:SHOWN]
    }
    tops = {s: [d for q in c.results[name, s].run for d in _ranked(c, name, s, q)[:TOP_K]] for s in systems}
    wanted = {d for ids in tops.values() for d in ids}
    words: dict[str, int] = {}
    lengths, documents, shares = array("l"), {}, TermShares()
    for document in dataset.documents():
        content = {f: str(document.get(f) or "") for f in ("title", "text")}
        length = len(content["title"].split()) + len(content["text"].split())
        lengths.append(length)
        if document.id in wanted:
            words[document.id] = length
        if document.id in shown:
            documents[document.id] = document
        if vocabulary:
            shares.add_document(content)
    found_lengths = {s: [words[d] for d in ids if d in words] for s, ids in tops.items()}
    return DatasetDetails(
        dataset, qrels, dataset.queries(), documents, lengths, found_lengths, examples, shares.shares()
    )


def _ranked(c: Comparison, dataset: str, system: str, query: str) -> list[str]:
    run = c.results[dataset, system].run
    return run[query].documents if query in run else []


def _most_different(c: Comparison, dataset: str, system: str) -> list[str]:
    """The queries that gained most, then those that lost most."""
    base = c.results[dataset, c.baseline].evaluation.by_query[c.measures[0]]
    other = c.results[dataset, system].evaluation.by_query[c.measures[0]]
    change = {q: other[q] - base[q] for q in base if q in other}
    order = sorted(change, key=lambda q: -change[q])
    half = EXAMPLES // 2
    gained = [q for q in order[:half] if change[q] > 0]
    lost = [q for q in order[::-1][:half] if change[q] < 0]
    return gained + lost


def marked_text(query: str, document: Document, model: Model | None) -> str:
    """The part of a document that fits a query best, as HTML with the words of the query marked."""
    chosen = model or BM25()
    sparse = [p.component for p in chosen.parts if isinstance(p.component, SparseComponent)]
    terms = {c.namespace: dict(Counter(token.term for token in c.tokens(query))) for c in sparse}
    common = stop_words("lucene-english")
    weights = {
        namespace: {t: w for t, w in weighted.items() if any(map(str.isalnum, t)) and t not in common}
        for namespace, weighted in terms.items()
    }
    snippet = Highlighter(chosen, weights).snippet(document, "text", SNIPPET)
    out, at = [], 0
    for start, end in snippet.matches:
        if start >= at:
            out.append(f"{escape_html(snippet.text[at:start])}<mark>{escape_html(snippet.text[start:end])}</mark>")
            at = end
    out.append(escape_html(snippet.text[at:]))
    return ("" if snippet.at_start else "… ") + "".join(out) + ("" if snippet.at_end else " …")


def sampled(values: Sequence[int], most: int = 20_000) -> list[float]:
    """At most `most` of the values, evenly spread."""
    return [float(v) for v in values[:: max(len(values) // most, 1)]]
