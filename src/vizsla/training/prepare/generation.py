"""Pairs of an input and a text to write, from data sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from vizsla.datasets import BeirDataset, Document
from vizsla.errors import VizslaError
from vizsla.expansion.records import queries_of
from vizsla.models import field_text
from vizsla.neural.checkpoints.generator import GeneratorCheckpoint
from vizsla.training.prepare.texts import FIELDS

if TYPE_CHECKING:
    from vizsla.training.arrays.generation import GenerationPairs

TextPairs = Callable[[BeirDataset, str], Iterator[tuple[str, str]]]
"""The inputs and targets of a split of a data set."""


def passages_and_queries(dataset: BeirDataset, split: str) -> Iterator[tuple[str, str]]:
    """Each passage that answers a judged query, with the query; the pairs of a passage follow one another."""
    qrels = dataset.qrels(split)
    queries = dataset.queries_of(qrels)
    answered: dict[str, list[str]] = {}
    for query in queries:
        for name, grade in qrels.judgements[query].items():
            if grade > 0:
                answered.setdefault(name, []).append(query)
    for document in dataset.documents():
        text = field_text(document.content, FIELDS)
        for query in answered.get(document.id, ()) if text.strip() else ():
            if queries[query].strip():
                yield text, queries[query]


def documents_and_queries(documents: Iterable[Document]) -> Iterator[tuple[str, str]]:
    """Each document with each of the queries that were generated for it."""
    for document in documents:
        text = field_text(document.content, FIELDS)
        for query in queries_of(document) if text.strip() else ():
            if query.strip():
                yield text, query


def generation_pairs(
    texts: Iterable[tuple[str, str]], checkpoint: GeneratorCheckpoint, target_length: int, name: str = ""
) -> GenerationPairs:
    """Pairs as token ids; inputs that follow one another and are equal are kept once."""
    from vizsla.training.arrays.generation import GenerationPairs
    from vizsla.training.arrays.token_corpus import TokenCorpus

    inputs: list[str] = []
    targets: list[str] = []
    rows: list[int] = []
    for source, target in texts:
        if not inputs or inputs[-1] != source:
            inputs.append(source)
        rows.append(len(inputs) - 1)
        targets.append(target)
    if not targets:
        raise VizslaError(f"{name}: there is no pair of an input and a text to write")
    return GenerationPairs(
        TokenCorpus.of(checkpoint.inputs(inputs)).narrow(),
        TokenCorpus.of(checkpoint.targets(targets, target_length)).narrow(),
        np.array(rows, np.int64),
        name,
    )


def concatenated(several: list[GenerationPairs]) -> GenerationPairs:
    """Pairs of several data sets as pairs of one."""
    from vizsla.training.arrays.generation import GenerationPairs
    from vizsla.training.arrays.token_corpus import TokenCorpus

    before = np.cumsum([0, *(len(pairs.inputs) for pairs in several)])
    return GenerationPairs(
        TokenCorpus.concatenate([pairs.inputs for pairs in several]),
        TokenCorpus.concatenate([pairs.targets for pairs in several]),
        np.concatenate([pairs.rows + first for pairs, first in zip(several, before[:-1], strict=True)]),
    )
