"""How much the words of documents matter, by the queries they answer; what DeepCT learns from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from vizsla.datasets import BeirDataset
from vizsla.errors import InputError
from vizsla.models import field_text
from vizsla.models.deepct import first_pieces
from vizsla.text import Analyzer
from vizsla.training.prepare.judged import judgement_rows
from vizsla.training.settings import CountSettings

if TYPE_CHECKING:
    from vizsla.training.arrays.term_targets import TermDev, TermTargets
    from vizsla.training.arrays.token_corpus import TokenCorpus


def term_recall(queries: Sequence[Sequence[str]]) -> dict[str, float]:
    """The share of a document's relevant queries that contain each term, given the terms of each query.

    >>> term_recall([["dog", "bark"], ["dog"]])
    {'dog': 1.0, 'bark': 0.5}
    """
    counts = Counter(term for query in queries for term in dict.fromkeys(query))
    return {term: count / len(queries) for term, count in counts.items()}


def term_targets(dataset: BeirDataset, pieces: Analyzer, words: Analyzer, fields: Sequence[str]) -> TermTargets:
    """The documents of a data set that answer a train query, with the targets of their words.

    `pieces` makes the tokens that the network reads, `words` the terms that are compared with those of queries.
    """
    from vizsla.training.arrays.term_targets import TermTargets
    from vizsla.training.arrays.token_corpus import TokenCorpus

    qrels = dataset.qrels("train")
    terms = {query: words(text) for query, text in dataset.queries_of(qrels).items()}
    answered: dict[str, list[list[str]]] = defaultdict(list)
    for query, judgements in qrels.judgements.items():
        for answer, grade in judgements.items():
            if grade > 0 and query in terms:
                answered[answer].append(terms[query])
    numbers: dict[str, int] = pieces.tokenizer.numbers  # type: ignore[attr-defined]
    ids, targets = [], [np.zeros(0, np.float16)]
    for document in dataset.documents():
        if document.id not in answered:
            continue
        text = field_text(document.content, fields)
        own, at = _aligned(text, pieces, words)
        recall = term_recall(answered[document.id])
        ids.append(np.array([numbers[piece] for piece in own], np.int64))
        row = np.full(len(own), np.nan, np.float16)
        for term, place in at:
            row[place] = np.fmax(row[place], recall.get(term, 0.0))
        targets.append(row)
    if not ids:
        raise InputError("none of the train queries has a relevant document here", file=str(dataset.folder))
    return TermTargets(TokenCorpus.of(ids), np.concatenate(targets))


def term_dev(
    dataset: BeirDataset,
    pieces: Analyzer,
    words: Analyzer,
    fields: Sequence[str],
    settings: CountSettings,
    split: str = "dev",
) -> TermDev:
    """A data set's judged queries as terms, and its documents with the term of the word that begins at each token."""
    from vizsla.training.arrays.term_targets import TermDev
    from vizsla.training.arrays.token_corpus import TokenCorpus

    qrels = dataset.qrels(split)
    queries, documents = dataset.queries_of(qrels), list(dataset.documents())
    numbers: dict[str, int] = pieces.tokenizer.numbers  # type: ignore[attr-defined]
    columns: dict[str, int] = {}
    ids, terms = [], [np.zeros(0, np.int32)]
    for document in documents:
        own, at = _aligned(field_text(document.content, fields), pieces, words)
        ids.append(np.array([numbers[piece] for piece in own], np.int64))
        row = np.full(len(own), -1, np.int32)
        for term, place in at:
            row[place] = columns.setdefault(term, len(columns))
        terms.append(row)
    asked = [[columns[term] for term in words(text) if term in columns] for text in queries.values()]
    packed: TokenCorpus = TokenCorpus.of([np.array(row, np.int64) for row in asked])
    judged = judgement_rows(documents, queries, qrels)
    return TermDev(dataset.name, TokenCorpus.of(ids), np.concatenate(terms), packed, judged, settings=settings)


def _aligned(text: str, pieces: Analyzer, words: Analyzer) -> tuple[list[str], list[tuple[str, int]]]:
    """The pieces of a text, and each of its terms with the place of its first piece."""
    own, found = pieces.tokens(text), words.tokens(text)
    places = zip(found, first_pieces(found, own), strict=True)
    return [piece.term for piece in own], [(word.term, place) for word, place in places if place >= 0]
