"""The tables of the five papers as data: columns, rows, the system of each row and the published figures.

A paper is a YAML file in the folder `papers`. A figure is what the paper prints, with + or - where the paper marks a
significant difference from its baseline. `reproduction.py` fills the cells.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.plain_data import parse_yaml

T = TypeVar("T")
_FIGURE = re.compile(r"(-?\d+(?:\.\d+)?)([+-]?)")


@dataclass(frozen=True)
class Figure:
    """A figure as a paper prints it.

    >>> Figure.parse("19.0+"), Figure.parse("5 min").value
    (Figure(text='19.0', value=19.0, mark='+'), None)
    """

    text: str
    value: float | None = None
    """None for what is no number."""
    mark: str = ""
    """`+` or `-` if the paper marks it as significantly better or worse than its baseline."""

    @classmethod
    def parse(cls, text: object) -> Figure | None:
        """A figure; None for null."""
        if text is None:
            return None
        match = _FIGURE.fullmatch(str(text))
        return cls(match[1], float(match[1]), match[2]) if match else cls(str(text))


@dataclass(frozen=True)
class Column:
    """What a column measures: a measure on a data set, a statistic of it, or a value of other columns."""

    name: str
    dataset: str = ""
    """A data set with judgements, by name."""
    questions: str = ""
    """Or a set of questions with answers, searched in `corpus`."""
    corpus: str = ""
    split: str = ""
    """The split; by default the one that published figures are measured on."""
    measure: str = ""
    """A measure, or `latency` (seconds a query), `added-terms`, `RBO`, `domain-overlap`."""
    statistic: str = ""
    """A count of the row's data set."""
    by_relation: bool = False
    """The mean over relations of the means over their questions, as in the paper of EntityQuestions."""
    scale: float = 1.0
    digits: int = 3
    mu: float | None = None
    """What `{mu}` in a model stands for; `{dataset}` is the data set."""
    reranker: str = ""
    depth: int = 0
    interleaved: str = ""
    """The system whose ranking is interleaved with the row's."""
    reference: str = ""
    """The system that a row is compared with by rank-biased overlap."""
    shuffled: bool = False
    """The words of each question are shuffled before it is searched."""
    mean: str = ""
    """The mean of all columns, or of those with this measure."""
    skip: tuple[str, ...] = ()
    """Columns that the mean leaves out."""
    against: str = ""
    """The row that a mean is compared with, in per cent."""
    difference: tuple[str, ...] = ()
    """Two columns; the second is taken from the first."""
    external: str = ""
    """What is measured by another program."""
    unavailable: str = ""
    """Why this column cannot be measured."""

    @property
    def is_derived(self) -> bool:
        """Whether it follows from other columns: a mean, or a difference of two."""
        return bool(self.mean or self.difference)

    def fill(self, text: str) -> str:
        """A text with what `{mu}` and `{dataset}` stand for in this column.

        >>> Column("SF", dataset="scifact", mu=0.7).fill("spar(dense=genq-{dataset}, lexical=spar-wiki, mu={mu})")
        'spar(dense=genq-scifact, lexical=spar-wiki, mu=0.7)'
        """
        return text.replace("{mu}", str(self.mu if self.mu is not None else 1.0)).replace("{dataset}", self.dataset)


@dataclass(frozen=True)
class System:
    """What a row runs: a model, perhaps with a reranker; a fusion of other systems; or the reason why it cannot run."""

    name: str
    model: str = ""
    """A model expression; names of trained parts stand for their folders."""
    trained: tuple[str, ...] = ()
    reranker: str = ""
    depth: int = 100
    fusion: str = ""
    of: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()
    field: str = ""
    """A field that the documents must have, as generated queries."""
    quoted: str = ""
    """Where the paper takes the figures from."""
    unavailable: str = ""


@dataclass(frozen=True)
class TrainedPart:
    """A model that must be trained, or fetched, before its rows can run; `{dataset}` is that of the column."""

    name: str
    recipe: str = ""
    corpus: tuple[str, ...] = ()
    datasets: tuple[str, ...] = ()
    set: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    """Trained parts that it starts from."""
    gpu_hours: float = 0.0
    source: str = ""
    """Where `gpu_hours` comes from."""
    how: str = ""
    """How to get a part that no recipe trains."""

    def changes(self, models: str) -> list[str]:
        """The changes of the recipe, with the folder of models."""
        return [change.replace("{models}", models) for change in self.set]

    def command(self, data: str, models: str) -> str:
        """How to get it, in words or as a command."""
        if self.how:
            return self.how.replace("{models}", models)
        inputs = [f"--corpus {data}/{name}" for name in self.corpus] + [f"--dataset {data}/{n}" for n in self.datasets]
        changes = [f"--set {change}" for change in self.changes(models)]
        return " ".join(["vizsla train", self.recipe, *inputs, *changes, "-o", f"{models}/{self.name}"])


@dataclass(frozen=True)
class Row:
    """A row: a system, or a data set whose statistics are counted, or two data sets that are compared."""

    name: str
    figures: tuple[Figure | None, ...]
    system: System | None = None
    dataset: str = ""
    pair: tuple[str, ...] = ()
    added: bool = False
    """A row of ours that the paper does not have."""


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper.

    >>> table = load_table("bm26/table-2")
    >>> table.row("(6) BM51").figures[table.columns.index(table.column("SF"))]
    Figure(text='69.8', value=69.8, mark='+')
    """

    paper: str
    name: str
    title: str
    paper_title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    systems: Mapping[str, System]
    trained: Mapping[str, TrainedPart]
    convention: str = "anserini"
    baseline: str = ""
    note: str = ""
    measured_by: str = ""
    """The program that measures columns which this one does not."""
    differences: Mapping[str, str] = field(default_factory=dict)
    """Why our figures of a row differ from the paper's."""
    is_main: bool = False

    @property
    def full_name(self) -> str:
        """Its name as it is typed: `bm26/table-2`."""
        return f"{self.paper}/{self.name}"

    def row(self, name: str) -> Row:
        """A row by its name."""
        return _named(self.rows, name, f"row of {self.full_name}")

    def column(self, name: str) -> Column:
        """A column by its name."""
        return _named(self.columns, name, f"column of {self.full_name}")

    def figure(self, row: Row, column: Column) -> Figure | None:
        """What the paper prints in a cell; None where it prints nothing, as in a row of ours."""
        return row.figures[self.columns.index(column)]

    def sources(self, column: Column) -> list[Column]:
        """The columns that a mean or a difference is computed from."""
        if column.difference:
            return [self.column(name) for name in column.difference]
        measured = [c for c in self.columns if c.measure and not c.mean and c.name not in column.skip]
        return [c for c in measured if column.mean in ("all", c.measure)]

    def systems_of(self, row: Row, column: Column) -> list[System]:
        """The systems whose rankings a cell needs: that of the row, and those that a column compares it with."""
        named = [self.systems[name] for name in (column.interleaved, column.reference) if name]
        return [*([row.system] if row.system else []), *named]

    def members_of(self, row: Row, column: Column) -> list[System]:
        """The same systems, with those that a fusion fuses in its place."""
        return [member for system in self.systems_of(row, column) for member in self.members(system)]

    def never(self, row: Row, column: Column) -> str:
        """Why nobody can measure a cell; empty if somebody can.

        >>> table = load_table("bm26/table-2")
        >>> table.never(table.row("(b) cpt-text-S"), table.column("NQ"))
        "not in the paper's table"
        """
        if not row.added and self.figure(row, column) is None:
            return "not in the paper's table"
        if column.unavailable:
            return column.unavailable
        if column.external:
            return f"measured by {self.measured_by} of the source repository, on a million documents"
        return next((m.unavailable for m in self.members_of(row, column) if m.unavailable), "")

    def parts_of(self, system: System, column: Column) -> list[TrainedPart]:
        """The trained parts that a system needs, and what those start from, in the order in which they are trained."""
        found: dict[str, TrainedPart] = {}

        def add(name: str) -> None:
            part = self.trained[name]
            for earlier in part.after:
                add(earlier)
            corpus = tuple(map(column.fill, part.corpus))
            found[name] = replace(part, name=column.fill(name), corpus=corpus)

        for one in self.members(system):
            for name in one.trained:
                add(name)
        return list(found.values())

    def members(self, system: System) -> list[System]:
        """The systems that are searched for a system: those that it fuses, or itself."""
        return [m for name in system.of for m in self.members(self.systems[name])] if system.fusion else [system]

    @property
    def training_data(self) -> list[str]:
        """The data sets that its models are trained on, without those of its columns."""
        parts = self.trained.values()
        return list(dict.fromkeys(n for p in parts for n in (*p.corpus, *p.datasets) if n != "{dataset}"))

    @property
    def data(self) -> list[str]:
        """The data sets that it needs, training data not included."""
        names = [n for c in self.columns for n in (c.dataset, c.questions, c.corpus)]
        return list(dict.fromkeys([*filter(None, names), *(n for r in self.rows for n in (r.dataset, *r.pair) if n)]))


def _named(all_of: tuple[T, ...], name: str, what: str) -> T:
    by_name = {one.name: one for one in all_of}  # type: ignore[attr-defined]
    if name not in by_name:
        raise UnknownNameError(what, name, tuple(by_name))
    return by_name[name]


@cache
def paper_names() -> tuple[str, ...]:
    """The papers.

    >>> paper_names()
    ('beir', 'bm25-augmentation', 'bm26', 'repbert', 'spar')
    """
    folder = resources.files("vizsla.recipes").joinpath("papers")
    return tuple(sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml")))


@cache
def load_paper(name: str) -> tuple[PaperTable, ...]:
    """The tables of a paper, by its name."""
    if name not in paper_names():
        raise UnknownNameError("paper", name, paper_names())
    file = f"papers/{name}.yaml"
    data = parse_yaml(resources.files("vizsla.recipes").joinpath(file).read_text("utf-8"), file)
    try:
        return tuple(_tables(name, data))
    except (KeyError, TypeError, AttributeError, ValueError, VizslaError) as e:
        raise InputError(f"this does not describe the tables of a paper ({type(e).__name__}: {e})", file=file) from None


def all_tables() -> list[PaperTable]:
    """All tables of all papers."""
    return [table for name in paper_names() for table in load_paper(name)]


def load_table(name: str) -> PaperTable:
    """A table by its name, as in `bm26/table-2`; the name of a paper alone is its main table."""
    if name in paper_names():
        return next(table for table in load_paper(name) if table.is_main)
    tables = {table.full_name: table for table in all_tables()}
    if name not in tables:
        raise UnknownNameError("table", name, (*paper_names(), *tables))
    return tables[name]


def _tables(paper: str, data: dict[str, Any]) -> Iterator[PaperTable]:
    systems = {name: _made(System, {"name": name, **entry}) for name, entry in data.get("systems", {}).items()}
    trained = {name: _made(TrainedPart, {"name": name, **entry}) for name, entry in data.get("trained", {}).items()}
    for name, entry in data["tables"].items():
        shared = {key: entry[key] for key in ("scale", "digits", "measure") if key in entry}
        shared.setdefault("digits", 1 if shared.get("scale") == 100 else 3)
        columns = tuple(_column({**shared, **one}) for one in entry["columns"])
        rows = tuple(_row(one, systems, len(columns)) for one in entry["rows"])
        texts = {
            key: entry[key] for key in ("convention", "baseline", "note", "measured_by", "differences") if key in entry
        }
        yield PaperTable(
            paper, name, entry["title"], data["title"], columns, rows, systems, trained, **texts,
            is_main=name == data["main"],
        )  # fmt: skip


def _column(entry: dict[str, Any]) -> Column:
    column = _made(Column, entry)
    if column.mean or column.difference or column.statistic or column.external:
        column = replace(column, measure="")
    return replace(column, mean="all" if column.mean == "zero-shot" else column.mean)


def _row(entry: dict[str, Any], systems: Mapping[str, System], width: int) -> Row:
    figures = tuple(map(Figure.parse, entry.get("figures", [None] * width)))
    if len(figures) != width:
        raise ValueError(f"{entry['name']} has {len(figures)} figures for {width} columns")
    system = systems[entry["system"]] if "system" in entry else None
    return Row(
        entry["name"],
        figures,
        system,
        entry.get("dataset", ""),
        tuple(entry.get("pair", ())),
        entry.get("added", False),
    )


def _made(cls: type[T], entry: dict[str, Any]) -> T:
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    unknown = [key for key in entry if key not in known]
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r} in {entry.get('name')}")
    return cls(**{key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()})
