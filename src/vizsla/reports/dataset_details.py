"""What a report shows besides figures: lengths of what was found, examples, vocabularies. One pass over each corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vizsla.datasets import BeirDataset, Document
from vizsla.evaluation.compare import Comparison
from vizsla.evaluation.domains import TermShares
from vizsla.reports.escaping import escape_html
from vizsla.index.highlight import Highlighter
from vizsla.models import BM25, Model
from vizsla.runs import Qrels
from vizsla.text.stopwords import stop_words

TOP = 10
SHOWN = 3  # documents of each system in an example
EXAMPLES = 6  # for each data set and system: half of those that gained, half of those that lost
SNIPPET = 260


@dataclass(frozen=True)
class Material:
    """What is shown of a data set."""

    dataset: BeirDataset
    qrels: Qrels
    queries: Mapping[str, str]
    documents: Mapping[str, Document]
    """Those the examples show."""
    corpus_lengths: list[int]
    """Words of all documents."""
    found_lengths: dict[str, list[int]]
    """Words of the first ten documents of each query, by system."""
    examples: dict[str, list[str]]
    """Queries by system: those that moved most against the baseline."""
    shares: dict[str, float]


def gather(c: Comparison, dataset: BeirDataset, *, vocabulary: bool) -> Material:
    """Collect what a report shows of a data set."""
    name = dataset.name
    qrels = dataset.qrels(c.splits[name])
    examples = {s: _moved(c, name, s) for s in c.systems[1:]}
    shown = {
        d
        for system, queries in examples.items()
        for q in queries
        for s in (c.baseline, system)
        for d in _ranked(c, name, s, q)[:SHOWN]
    }
    tops = {s: [d for q in c.results[name, s].run for d in _ranked(c, name, s, q)[:TOP]] for s in c.systems}
    wanted = {d for found in tops.values() for d in found}
    words: dict[str, int] = {}
    lengths, documents, shares = [], {}, TermShares()
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
    found = {s: [words[d] for d in ids if d in words] for s, ids in tops.items()}
    return Material(dataset, qrels, dataset.queries(), documents, lengths, found, examples, shares.shares())


def _ranked(c: Comparison, dataset: str, system: str, query: str) -> list[str]:
    run = c.results[dataset, system].run
    return run[query].documents if query in run else []


def _moved(c: Comparison, dataset: str, system: str) -> list[str]:
    """The queries that gained and lost most, in turns."""
    base = c.results[dataset, c.baseline].evaluation.by_query[c.measures[0]]
    other = c.results[dataset, system].evaluation.by_query[c.measures[0]]
    change = {q: other[q] - base[q] for q in base if q in other}
    order = sorted(change, key=lambda q: -change[q])
    half = EXAMPLES // 2
    gained = [q for q in order[:half] if change[q] > 0]
    lost = [q for q in order[::-1][:half] if change[q] < 0]
    return gained + lost


def marked_text(query: str, document: Document, model: Model | None) -> str:
    """The stretch of a document that answers best, as HTML with the query's words marked."""
    asked = model or BM25()
    terms = {p.component.namespace: p.component.own_terms(query) for p in asked.parts}
    common = stop_words("lucene-english")
    weights = {
        namespace: {t: w for t, w in found.items() if any(map(str.isalnum, t)) and t not in common}
        for namespace, found in terms.items()
    }
    snippet = Highlighter(asked, weights).snippet(document, "text", SNIPPET)
    out, at = [], 0
    for start, end in snippet.matches:
        if start >= at:
            out.append(f"{escape_html(snippet.text[at:start])}<mark>{escape_html(snippet.text[start:end])}</mark>")
            at = end
    out.append(escape_html(snippet.text[at:]))
    return ("" if snippet.at_start else "… ") + "".join(out) + ("" if snippet.at_end else " …")


def sampled(values: list[int], most: int = 20_000) -> list[float]:
    """At most so many of the values, evenly spread."""
    return [float(v) for v in values[:: max(len(values) // most, 1)]]
