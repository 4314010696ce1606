"""A collection through its life, against a plain-Python model of it (hypothesis, stateful)."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from examples import part_of_examples
from scattered import ScatteredTokens
from vizsla import Index, Model, VizslaError, parse_model
from vizsla.index import verify
from vizsla.index.writing import compaction

WORDS = st.lists(st.sampled_from(["dog", "dogs", "cat", "bark", "the", "fish", "7"]), max_size=8).map(" ".join)
VALUES = st.one_of(st.none(), st.booleans(), st.integers(-2, 3), st.sampled_from([0.5, 2.0, "a", "b", "2", ""]))
METADATA = st.dictionaries(
    st.sampled_from(["year", "tag", "deep"]),
    st.one_of(VALUES, st.lists(VALUES, max_size=3), st.dictionaries(st.just("x"), VALUES, max_size=1)),
    max_size=3,
)
IDS = st.sampled_from([f"d{i}" for i in range(8)])
DOCUMENTS = st.dictionaries(IDS, st.tuples(WORDS, WORDS, METADATA), max_size=5)
MODELS = [parse_model(text) for text in ("bm25", "bm25-multifield", "bm25(lengths=exact, variant=bm25+)")]
MODELS.append(ScatteredTokens())


# The meaning of filters, said again in plain Python.


def kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def holds(operator: str, value: Any, asked: Any) -> bool:
    if kind(value) != kind(asked):
        return False
    if operator == "=":
        return bool(value == asked)
    return bool({"<": value < asked, "<=": value <= asked, ">": value > asked, ">=": value >= asked}[operator])


MISSING = object()


def look_up(content: dict[str, Any], path: str) -> Any:
    value: Any = content
    for part in path.split("."):
        if not isinstance(value, dict) or part not in value:
            return MISSING
        value = value[part]
    return value


def elements(value: Any) -> list[Any]:
    if value is MISSING or isinstance(value, dict):
        return []
    return value if isinstance(value, list) else [value]


# The text of a filter, a function from content to bool, the fields it names with the kinds of values it asks for.
Meaning = tuple[str, Any, set[tuple[str, frozenset[str]]]]


def named(path: str, *values: Any) -> set[tuple[str, frozenset[str]]]:
    return {(path, frozenset(map(kind, values)) - {"NoneType"})}


EXISTS = frozenset({"exists"})


def refused(documents: list[dict[str, Any]], fields: set[tuple[str, frozenset[str]]]) -> bool:
    """Whether no document has a field that is not asked `exists` about, or none a value of such a kind where there are
    others.
    """
    optional = {path for path, kinds in fields if kinds == EXISTS}
    for path, kinds in fields:
        found = [value for value in (look_up(content, path) for content in documents) if value is not MISSING]
        there = {kind(v) for value in found for v in (value if isinstance(value, list) else [value])} - {"NoneType"}
        if (not found and path not in optional) or (kinds - EXISTS and there and not kinds & there):
            return True
    return False


def leaf() -> st.SearchStrategy[Meaning]:
    path = st.sampled_from(["year", "tag", "deep", "deep.x"])
    bounds = st.one_of(st.integers(-2, 3), st.sampled_from(["a", "b", 0.5]))
    ranges = st.tuples(path, st.sampled_from(["<", "<=", ">", ">="]), bounds)
    equal = st.tuples(path, st.just("="), VALUES)
    return st.one_of(
        st.one_of(ranges, equal).map(lambda t: comparison(*t)),
        st.tuples(path, VALUES).map(lambda t: different(*t)),
        st.tuples(path, st.lists(VALUES, max_size=3)).map(lambda t: one_of(*t)),
        path.map(lambda p: (f"exists({p})", lambda c: look_up(c, p) is not MISSING, {(p, EXISTS)})),
    )


def comparison(path: str, operator: str, value: Any) -> Meaning:
    text = f"{path} {operator} {json.dumps(value)}"
    return text, lambda c: any(holds(operator, v, value) for v in elements(look_up(c, path))), named(path, value)


def different(path: str, value: Any) -> Meaning:
    def meets(content: dict[str, Any]) -> bool:
        found = look_up(content, path)
        return found is not MISSING and not any(holds("=", v, value) for v in elements(found))

    return f"{path} != {json.dumps(value)}", meets, named(path, value)


def one_of(path: str, values: list[Any]) -> Meaning:
    text = f"{path} in [{', '.join(map(json.dumps, values))}]"
    fields = named(path, *values)
    return text, lambda c: any(holds("=", v, a) for v in elements(look_up(c, path)) for a in values), fields


def combined(inner: st.SearchStrategy[Meaning]) -> st.SearchStrategy[Meaning]:
    two = st.tuples(inner, inner)
    return st.one_of(
        inner.map(lambda a: (f"not ({a[0]})", lambda c: not a[1](c), a[2])),
        two.map(lambda t: (f"({t[0][0]}) and {t[1][0]}", lambda c: t[0][1](c) and t[1][1](c), t[0][2] | t[1][2])),
        two.map(lambda t: (f"({t[0][0]} or ({t[1][0]}))", lambda c: t[0][1](c) or t[1][1](c), t[0][2] | t[1][2])),
    )


FILTERS = st.recursive(leaf(), combined, max_leaves=4)


class Life(RuleBasedStateMachine):
    """Random operations on a collection and on two plain dicts: what is committed, and what is pending."""

    @initialize(model=st.sampled_from(MODELS), factor=st.sampled_from([2, 3, 8]), memory=st.sampled_from([1, 1 << 30]))
    def create(self, model: Model, factor: int, memory: int) -> None:
        self.folder = Path(tempfile.mkdtemp()) / "i"
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(compaction, "FACTOR", factor)
        self.patch.setattr(compaction, "SMALLEST", 2)
        self.memory = memory
        self.model = model
        self.index = Index.create(self.folder, self.model, memory=memory)
        self.committed: dict[str, dict[str, Any]] = {}
        self.pending: dict[str, dict[str, Any]] = {}

    def teardown(self) -> None:
        if hasattr(self, "index"):
            self.index.close()
            assert verify(self.folder) == []
            shutil.rmtree(self.folder.parent)
            self.patch.undo()

    @rule(documents=DOCUMENTS)
    def add(self, documents: dict[str, tuple[str, str, dict[str, Any]]]) -> None:
        contents = {i: {"title": a, "text": b, **more} for i, (a, b, more) in documents.items()}
        added = self.index.add([{"id": i, **c} for i, c in contents.items()])
        assert added.replaced == len(contents.keys() & self.pending.keys())
        for i, content in contents.items():
            self.pending.pop(i, None)  # what replaces comes last
            self.pending[i] = content

    @rule(ids=st.lists(IDS, max_size=4))
    def delete(self, ids: list[str]) -> None:
        assert self.index.delete(ids) == len(set(ids) & self.pending.keys())
        for i in ids:
            self.pending.pop(i, None)

    @rule()
    def commit(self) -> None:
        self.index.commit()
        self.committed = dict(self.pending)

    @rule()
    def compact(self) -> None:
        self.index.compact()
        self.committed = dict(self.pending)
        assert self.index.info()["segments"] == bool(self.committed)
        assert self.index.info()["deleted"] == 0

    @rule()
    def roll_back(self) -> None:
        self.index.rollback()
        self.pending = dict(self.committed)

    @rule()
    def reopen(self) -> None:
        self.index.close()
        self.index = Index.open(self.folder, memory=self.memory)
        self.pending = dict(self.committed)

    @rule(query=WORDS, k=st.integers(1, 9), condition=st.one_of(st.none(), FILTERS))
    def search(self, query: str, k: int, condition: Meaning | None) -> None:
        """Scores are those of a fresh index of the living documents; filters mean what they mean in Python."""
        contents = list(self.committed.items())
        documents = [content for _, content in contents]
        statistics = self.model.statistics(documents)
        scores = (
            self.model.encode_queries([query], statistics).dot(self.model.encode_documents(documents))[0]
            if documents
            else np.zeros(0)
        )
        expected = sorted(
            (-np.float32(score), place, doc_id)
            for place, ((doc_id, content), score) in enumerate(zip(contents, scores, strict=True))
            if score > 0 and (condition is None or condition[1](content))
        )[:k]
        if condition is not None and refused(documents, condition[2]):
            with pytest.raises(VizslaError, match="no document has"):
                self.index.run({"q": query}, k, condition[0])
            return
        found = self.index.run({"q": query}, k, condition[0] if condition else None)["q"]
        assert [d for d, _ in found] == [d for _, _, d in expected]
        assert [s for _, s in found] == pytest.approx([-s for s, _, _ in expected], rel=1e-6)

    @invariant()
    def documents_are_those_committed(self) -> None:
        if not hasattr(self, "index"):
            return
        assert len(self.index) == len(self.committed)
        for i in (f"d{n}" for n in range(8)):
            document = self.index.get(i)
            assert (document and document.content) == self.committed.get(i)


Life.TestCase.settings = part_of_examples(0.5, stateful_step_count=25)
TestLife = Life.TestCase
