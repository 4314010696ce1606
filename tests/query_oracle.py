"""Random lives of a collection, whose searches are compared with the definition of the query language.

Documents are added, replaced and deleted, commits made and taken back, segments compacted, the index opened again,
and a second reader follows at its own pace. After each step random queries are asked of both, in every form that
results are given in. What is found, in which order and with which scores, is worked out from the texts of the
documents that live at that moment (`Definition` in queries.py). A difference is an AssertionError that names the query.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from queries import WORDS, Part, plain_query, query_text, random_document, random_query
from query_comparisons import Asked, Content, Kind, Snapshot
from scattered import Scattered
from vizsla import Index, VizslaError, parse_model
from vizsla.index.writing import compaction

_PLAIN = "standard"
KINDS = {
    "bm25": Kind("bm25", (Part(),)),
    "passages": Kind("bm25", (Part(),), passages=4),
    "one field": Kind("bm25(fields=text)", (Part(("text",)),), ("text",)),
    "a sum of fields": Kind("bm25-multifield", (Part(("title",)), Part(("text",)))),
    "a sum of analyzers": Kind(
        f"bm25 + 0.5 * bm25(variant=bm25+, lengths=exact, analyzer={_PLAIN}, fields=text, namespace=plain)",
        (Part(), Part(("text",), 0.5, plus=True, analyzer=_PLAIN)),
    ),
    "with vectors": Kind(parse_model("bm25") + 2 * Scattered(), (Part(),), vectors=2.0),
}


class Oracle:
    """One life. `compared` counts the comparisons by what was asked."""

    def __init__(
        self, folder: Path, seed: int, compared: Counter[str], kind: str | None = None, *, positions: bool | None = None
    ) -> None:
        self.rng = random.Random(seed)
        self.compared = compared
        self.name = self.rng.choice(list(KINDS)) if kind is None else kind
        self.kind = KINDS[self.name]
        self.positions = self.rng.random() < 0.4 if positions is None else positions
        self._folder = folder
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(compaction, "FACTOR", self.rng.choice((2, 4, 8)))
        self._patch.setattr(compaction, "SMALLEST", self.rng.choice((2, 1000)))
        options = {} if self.kind.passages is None else {"passages": self.kind.passages}
        self.index = Index.create(folder, self.kind.model, positions=self.positions, **options)  # type: ignore[arg-type]
        self.reader = Index.open(folder)
        self.pending: dict[str, Content] = {}
        self.committed = self.read = Snapshot(self.kind, {})
        self.history: list[str] = []

    def close(self) -> None:
        """Let go of the files."""
        self.reader.close()
        self.index.rollback()
        self.index.close()
        self._patch.undo()

    def live(self, steps: int, queries: int) -> None:
        """Some steps, each followed by some queries of the index and of the second reader."""
        self._add(self.rng.randint(0, 30))
        self._refresh()
        for _ in range(steps):
            often = (self._add_some, self._delete, self._commit)
            step = self.rng.choice((*often, *often, self._compact, self._reopen, self._roll_back, self._refresh))
            self.history.append(step.__name__.strip("_"))
            step()
            for _ in range(queries):
                self._ask(self.index, self.committed)
                self._ask(self.reader, self.read)

    # Steps

    def _add(self, count: int) -> None:
        ids = self.rng.sample([f"d{i}" for i in range(45)], count)
        documents = [random_document(self.rng, doc_id) for doc_id in ids]
        self.index.add(documents)
        for document in documents:
            self.pending.pop(document["id"], None)  # what replaces comes last
            self.pending[document["id"]] = {name: value for name, value in document.items() if name != "id"}
        self._commit()

    def _add_some(self) -> None:
        self._add(self.rng.choice((1, 1, 2, 5, 15)))

    def _delete(self) -> None:
        for doc_id in self.rng.sample(list(self.pending), min(self.rng.choice((1, 1, 2, 4)), len(self.pending))):
            assert self.index.delete([doc_id]) == 1
            del self.pending[doc_id]
        if self.rng.random() < 0.8:
            self._commit()

    def _commit(self) -> None:
        self.index.commit()
        self.committed = Snapshot(self.kind, self.pending)

    def _compact(self) -> None:
        self.positions = self.rng.choice((self.positions, True, False))
        self.index.compact(positions=self.positions)
        self.committed = Snapshot(self.kind, self.pending)

    def _reopen(self) -> None:
        self._roll_back()
        self.index.close()
        self.index = Index.open(self._folder)

    def _roll_back(self) -> None:
        self.index.rollback()
        self.pending = dict(self.committed.documents)

    def _refresh(self) -> None:
        self.reader.refresh()
        self.read = self.committed

    # Comparisons

    def _ask(self, index: Index, snapshot: Snapshot) -> None:
        """A random query, in several forms."""
        is_plain = self.rng.random() < 0.2
        if is_plain:
            text = " ".join(self.rng.choice(WORDS) for _ in range(self.rng.randint(1, 4)))
            query = plain_query(text)
        else:
            query = random_query(self.rng, self.kind.fields)
            text = query_text(query)
        asked = Asked(index, snapshot, query, text, None if is_plain else "lucene", self.rng, self.compared)
        try:
            asked.compare()
        except (AssertionError, VizslaError, pytest.fail.Exception) as e:
            what = "positions" if self.positions else "no positions"
            raise AssertionError(f"{self.name}, {what}, after {self.history}: {text!r}: {e}") from e
