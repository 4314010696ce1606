"""A collection in Qdrant through its life, beside an index that gets the same changes (hypothesis, stateful)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from qdrant_server import Node, address
from scattered import ScatteredTokens
from test_life import DOCUMENTS, FILTERS, IDS, WORDS, Meaning
from vizsla import Filter, Index, Model, VizslaError, parse_model
from vizsla.backends.qdrant import QdrantIndex
from vizsla.backends.qdrant.reweighing import reweigh

# The mean length of documents is that of the first commit in a collection, and that of all in an index; with b = 0 it
# does not count. With another b, weights are renewed before a search.
BM25 = parse_model("bm25(b=0)")
WITH_LENGTHS = parse_model("bm25")
MODELS = [
    BM25,
    parse_model("bm25-multifield(b=0)"),
    parse_model("bm25(b=0, lengths=exact, variant=bm25+)"),
    ScatteredTokens(),
    BM25 + 0.125 * ScatteredTokens(),
]
_numbers = count()


class Life(RuleBasedStateMachine):
    """Random changes of a collection and of an index; after each commit both must find the same."""

    server: ClassVar[Node]
    models: ClassVar[list[Model]]

    @initialize(data=st.data())
    def create(self, data: st.DataObject) -> None:
        model = data.draw(st.sampled_from(self.models))
        self.folder = Path(tempfile.mkdtemp())
        self.stack = ExitStack()
        self.local = self.stack.enter_context(Index.create(self.folder / "i", model))
        self.where = address([self.server], f"life{next(_numbers)}")
        self.cluster = QdrantIndex.create(self.where, model)
        self.has_lengths = model is WITH_LENGTHS

    def teardown(self) -> None:
        if hasattr(self, "cluster"):
            for index in (self.cluster, self.local):
                index.rollback()
                index.close()
            shutil.rmtree(self.folder)

    @rule(documents=DOCUMENTS)
    def add(self, documents: dict[str, tuple[str, str, dict[str, Any]]]) -> None:
        records = [{"id": i, "title": a, "text": b, **more} for i, (a, b, more) in documents.items()]
        mine, yours = self.local.add(records), self.cluster.add(records)
        assert (mine.documents, mine.replaced) == (yours.documents, yours.replaced)
        assert [d.id for d in mine.empty] == [d.id for d in yours.empty]

    @rule(ids=st.lists(IDS, max_size=4))
    def delete(self, ids: list[str]) -> None:
        assert self.local.delete(ids) == self.cluster.delete(ids)

    @rule()
    def commit(self) -> None:
        self.local.commit()
        self.cluster.commit()

    @rule()
    def roll_back(self) -> None:
        self.local.rollback()
        self.cluster.rollback()

    @rule()
    def reopen(self) -> None:
        self.roll_back()
        self.cluster.close()
        self.cluster = QdrantIndex(self.where)

    @rule(query=WORDS, k=st.integers(1, 9), condition=st.one_of(st.none(), FILTERS))
    def search(self, query: str, k: int, condition: Meaning | None) -> None:
        if self.has_lengths:
            self.commit()  # a writer would lose its changes when weights are renewed
            if reweigh(self.where, threshold=0).renewed:
                self.reopen()
        text = None if condition is None else condition[0]
        try:
            found = list(self.cluster.run({"q": query}, k, text)["q"])
        except VizslaError as e:
            if "compares texts only by = and !=" in str(e):
                return
            with pytest.raises(VizslaError, match="no document has a field"):
                self.local.run({"q": query}, k, text)
            return
        expected = list(self._expected(query, text))[:k]
        assert [d for d, _ in found] == [d for d, _ in expected]
        assert [s for _, s in found] == pytest.approx([s for _, s in expected], rel=1e-6)

    def _expected(self, query: str, text: str | None) -> Iterator[tuple[str, float]]:
        """What the index finds; filters are applied here, since it refuses some that can hold for no document."""
        accepts = (lambda _: True) if text is None else Filter.parse(text).accepts
        for doc_id, score in self.local.run({"q": query}, 100)["q"]:
            document = self.local.get(doc_id)
            assert document is not None
            if accepts(document.content):
                yield doc_id, score

    @invariant()
    def both_hold_the_same(self) -> None:
        if not hasattr(self, "cluster"):
            return
        assert len(self.local) == len(self.cluster)
        assert list(self.local.documents()) == list(self.cluster.documents())
        words = "dog dogs cat bark fish 7"
        assert self.local.term_statistics(words) == self.cluster.term_statistics(words)


@pytest.mark.parametrize(("models", "examples"), [(MODELS, 8), ([WITH_LENGTHS], 3)], ids=["without", "with-lengths"])
def test_a_life_beside_an_index(server: Node, models: list[Model], examples: int) -> None:
    Life.server, Life.models = server, models
    run_state_machine_as_test(
        Life,
        settings=settings(max_examples=examples, stateful_step_count=14, suppress_health_check=list(HealthCheck)),
    )
