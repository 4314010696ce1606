"""What a cell of a paper's table comes to here: a measure of a system's ranking, a statistic, or a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.datasets import BeirDataset, DatasetStatistics
from vizsla.evaluation import Convention, evaluate, rank_biased_overlap, shuffle_words
from vizsla.evaluation.domains import TermShares, weighted_jaccard
from vizsla.recipes.paper_tables import Column, PaperTable, Row, System
from vizsla.recipes.rankings import ANSWER_DEPTH, JUDGED_DEPTH, Ranked, Rankings, hash_of
from vizsla.recipes.table_data import Searched, count_group, searched_of, statistic, statistic_stamp
from vizsla.runs import Run, fuse

Value = tuple[float | str, dict[str, float]]
"""The value of a cell, and its values by query if a significance test can use them."""


@dataclass
class Measuring:
    """The values of a table's cells, and the keys under which they are kept."""

    table: PaperTable
    data: Path
    runs: Rankings
    _counted: dict[str, tuple[list[DatasetStatistics], str]] = field(default_factory=dict)
    _shares: dict[str, dict[str, float]] = field(default_factory=dict)
    _stamps: dict[tuple[str, ...], list[Any]] = field(default_factory=dict)

    def key(self, row: Row, column: Column) -> str:
        """A hash of all that decides a cell; an error if its data cannot be read."""
        described = [self.runs.described(system, column) for system in self.table.systems_of(row, column)]
        named = column if column.reranker else row.system
        reranker = [named.reranker, named.depth] if named is not None and named.reranker else []
        chosen = [column.measure, column.statistic, column.split, column.shuffled, reranker]
        chosen += ["by relation"] if column.by_relation else []
        return hash_of([
            self._stamp(row, column), described, chosen, column.interleaved, column.reference, row.dataset,
            self.table.convention,
        ])  # fmt: skip

    def value(self, row: Row, column: Column) -> Value:
        """The value of a cell."""
        if row.pair:
            return weighted_jaccard(*map(self._term_shares, row.pair)), {}
        if row.dataset:
            if row.dataset not in self._counted:
                self._counted[row.dataset] = count_group(row.dataset, self.data)
            counted, split = self._counted[row.dataset]
            return statistic(counted, split, column), {}
        assert row.system is not None
        parts = [self._of_system(row.system, column, source) for source in searched_of(column, self.data)]
        by_query = parts[0][1] if len(parts) == 1 else {}
        return float(np.mean([value for value, _ in parts])), by_query

    def _of_system(self, system: System, column: Column, source: Searched) -> tuple[float, dict[str, float]]:
        """What a system reaches in a column on one collection, and that by query."""
        if column.measure == "added-terms":
            return self.runs.added_terms(system, column, source), {}
        if column.shuffled:
            shuffled = shuffle_words(source.queries)
            source = replace(source, queries=shuffled, stamp=(*source.stamp, "shuffled"))
        found = self._ranked(system, column, source)
        if column.measure == "latency":
            return found.facts["milliseconds"] / 1000, {}
        run = found.run
        if column.reference:
            values = rank_biased_overlap(run, self._other(column.reference, column, source), 0.9, ANSWER_DEPTH)
            return float(np.mean(list(values.values()))), values
        if column.interleaved and column.interleaved != system.name:
            run = fuse([run, self._other(column.interleaved, column, source)], "interleave", depth=JUDGED_DEPTH)
        qrels = source.qrels if found.answered is None else found.answered
        assert qrels is not None
        convention = self.table.convention if found.answered is None else "trec"
        evaluation = evaluate(run, qrels, column.measure.replace("Acc@", "Success@"), convention)
        values = next(iter(evaluation.by_query.values()))
        if column.by_relation:
            return _mean_by_relation(values, source.relations), values
        return next(iter(evaluation.measures.values())), values

    def _ranked(self, system: System, column: Column, source: Searched) -> Ranked:
        return self.runs.find(system, column, source, own_ids=Convention.parse(self.table.convention).own_ids)

    def _other(self, name: str, column: Column, source: Searched) -> Run:
        return self._ranked(self.table.systems[name], column, source).run

    def _stamp(self, row: Row, column: Column) -> list[Any]:
        """Changes when the files of a cell's data change; questions and judgements are read once."""
        if counted := [name for name in (row.dataset, *row.pair) if name]:
            return [statistic_stamp(name, self.data) for name in counted]
        place = (column.dataset, column.questions, column.corpus, column.split)
        if place not in self._stamps:
            self._stamps[place] = [(s.corpus_stamp, s.stamp) for s in searched_of(column, self.data)]
        return self._stamps[place]

    def _term_shares(self, name: str) -> dict[str, float]:
        if name not in self._shares:
            shares = TermShares()
            for document in BeirDataset.open(self.data / name).documents():
                shares.add_document({f: str(document.get(f) or "") for f in ("title", "text")})
            self._shares[name] = shares.shares()
        return self._shares[name]


def _mean_by_relation(values: Mapping[str, float], relations: Mapping[str, str]) -> float:
    """The mean over relations of the means over their questions.

    >>> _mean_by_relation({"a": 1.0, "b": 1.0, "c": 0.0}, {"a": "P1", "b": "P1", "c": "P2"})
    0.5
    """
    groups: dict[str, list[float]] = {}
    for question, value in values.items():
        groups.setdefault(relations.get(question, ""), []).append(value)
    return float(np.mean([np.mean(group) for group in groups.values()]))
