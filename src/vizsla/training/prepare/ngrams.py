"""What SEAL's generator learns from: for each question n-grams of its relevant passages, and their titles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from vizsla.datasets import BeirDataset, Document
from vizsla.errors import VizslaError
from vizsla.models import field_text
from vizsla.neural.checkpoints.generator import GeneratorCheckpoint
from vizsla.text import Analyzer
from vizsla.training.arrays.generation import GenerationPairs
from vizsla.training.sources.token_corpus import GrowingCorpus

_SHARED = Analyzer.parse("lucene-english")
"""Finds the words that a question shares with a passage; it drops stop words."""


def relevant_passages(dataset: BeirDataset, split: str, questions: Iterable[str]) -> dict[str, list[Document]]:
    """The relevant passages of each question, those of the judgements first, then those of the hard negatives' file."""
    judged, named = dataset.qrels(split).judgements, dataset.hard_negatives(split)
    relevant = {}
    for question in questions:
        also = named[question].positives if question in named else ()
        relevant[question] = list(dict.fromkeys([*(d for d, grade in judged[question].items() if grade > 0), *also]))
    wanted = {passage for passages in relevant.values() for passage in passages}
    known = {document.id: document for document in dataset.documents() if document.id in wanted}
    return {question: [known[name] for name in names if name in known] for question, names in relevant.items()}


def titles_of(passages: Sequence[Document]) -> list[str]:
    """The titles of some passages, each once."""
    titles = (field_text(passage.content, ("title",)).strip() for passage in passages)
    return list(dict.fromkeys(title for title in titles if title))


def ngram_pairs(
    dataset: BeirDataset, split: str, checkpoint: GeneratorCheckpoint, *, ngrams: int, length: int, title_length: int,
    seed: int = 0,
) -> GenerationPairs:  # fmt: skip
    """The questions of a split, each with up to `ngrams` n-grams of its relevant passages and as many of their titles.

    An n-gram has `length` tokens and no end, since a search may go on after it; a title ends. N-grams are drawn, and
    one that has more of the question's words is drawn more often. Questions without either are left out.
    """
    rng, questions = np.random.default_rng(seed), dataset.queries_of(dataset.qrels(split))
    inputs, targets, rows = GrowingCorpus(np.uint32), GrowingCorpus(np.uint32), []
    for question, passages in relevant_passages(dataset, split, questions).items():
        text = questions[question]
        titles = checkpoint.targets(titles_of(passages)[:ngrams], title_length)
        drawn = drawn_ngrams(text, _texts(passages), checkpoint, ngrams, length, rng)
        for some, are_titles in ((drawn, False), (titles, True)):
            if some and text.strip():
                rows += [len(inputs)] * len(some)
                inputs.append_rows(checkpoint.inputs([text], titles=are_titles))
                targets.append_rows(some)
    if not rows:
        raise VizslaError(f"{dataset.name}: no question of {split} has a relevant passage with a text or a title")
    return GenerationPairs(inputs.corpus().narrow(), targets.corpus().narrow(), np.array(rows, np.int64), dataset.name)


def _texts(passages: Sequence[Document]) -> list[str]:
    texts = (field_text(passage.content, ("text",)).strip() for passage in passages)
    return [text for text in texts if text]


def drawn_ngrams(
    question: str, texts: Sequence[str], checkpoint: GeneratorCheckpoint, count: int, length: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:  # fmt: skip
    """Up to `count` n-grams of some texts; each word that one shares with a question makes it e times as likely."""
    asked = set(_SHARED(question))
    ngrams: list[np.ndarray] = []
    shared: list[int] = []
    for text, (tokens, places) in zip(texts, checkpoint.placed_tokens(texts), strict=True):
        begins = np.zeros(len(text) + 2, np.int64)  # how many shared words begin before each character
        begins[1 + np.array([word.start for word in _SHARED.tokens(text) if word.term in asked], np.int64)] = 1
        begins = np.cumsum(begins)
        for first in range(max(len(tokens) - length + 1, min(len(tokens), 1))):
            ngrams.append(np.array(tokens[first : first + length], np.int64))
            shared.append(int(begins[places[first : first + length][-1][1]] - begins[places[first][0]]))
    keys = np.array(shared, np.float64) + rng.gumbel(size=len(shared))  # the highest are a weighted draw
    return [ngrams[i] for i in np.argsort(-keys, kind="stable")[:count].tolist()]
