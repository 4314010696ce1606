"""Random lives of a collection, whose searches are compared with the definition of the query language.

Documents are added, replaced and deleted, commits made and taken back, segments compacted, the index opened again,
and a second reader follows at its own pace. After each step random queries are asked of both, in every form that
results are given in. What is found, in which order and with which scores, is worked out from the texts of the
documents that live at that moment (`Definition` in queries.py). A difference is an AssertionError that names the query.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from queries import (
    FIELDS,
    WORDS,
    Definition,
    Node,
    Part,
    plain_query,
    query_text,
    random_document,
    random_query,
    terms_of,
)
from scattered import Scattered
from vizsla import Document, Hit, Index, Model, Splitter, VizslaError, parse_model
from vizsla.index.writing import compaction

TOLERANCE = 1e-5  # scores have 32 bits
Content = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """A kind of collection: a model, and the same model as the definition knows it."""

    model: str | Model
    parts: tuple[Part, ...]
    fields: tuple[str, ...] = FIELDS
    vectors: float = 0.0
    passages: int | None = None


# Filters, and what they mean.
FILTERS: dict[str, Callable[[Content], bool]] = {
    "year = 1999": lambda c: c.get("year") == 1999,
    "year != 1999": lambda c: c.get("year", 1999) != 1999,
    "not year >= 2000": lambda c: not c.get("year", 0) >= 2000,
    'lang in ["en", "de"]': lambda c: c.get("lang") in ("en", "de"),
    'tags = "a" and n < 4': lambda c: "a" in c.get("tags", ()) and c["n"] < 4,
    'old = true or tags = "b"': lambda c: c.get("old") is True or "b" in c.get("tags", ()),
    "exists(lang) and not exists(draft)": lambda c: "lang" in c,
}
_NAMED = {text: [name for name in ("year", "lang", "tags", "n", "old") if name in text] for text in FILTERS}
_OPTIONAL = ("exists(lang) and not exists(draft)",)


class Snapshot:
    """The documents of a commit, in the order of insertion."""

    def __init__(self, kind: Kind, documents: Mapping[str, Content]) -> None:
        self.kind = kind
        self.documents = dict(documents)
        whole = [{"id": doc_id, **content} for doc_id, content in documents.items()]
        rows: list[Content] = whole
        if kind.passages is not None:
            cut = Splitter(kind.passages).passages
            rows = [{**p.content, "id": d["id"]} for d in whole for p in cut(Document(d["id"], d))]
        self.definition = Definition(rows, kind.parts, kind.vectors)

    def lacks(self, names: Sequence[str]) -> bool:
        """Whether no document has one of some fields."""
        return any(not any(name in content for content in self.documents.values()) for name in names)


class Asked:
    """A query, and what it should find."""

    def __init__(
        self,
        index: Index,
        snapshot: Snapshot,
        query: Node,
        text: str,
        syntax: str | None,
        rng: random.Random,
        compared: Counter[str],
    ) -> None:
        self._rng = rng
        self._kind = snapshot.kind
        self._compared = compared
        self._index = index
        self._snapshot = snapshot
        self._query = query
        self._text = text
        self._way: dict[str, Any] = {"syntax": syntax}

    def compare(self) -> None:
        """All that is found, and three more forms of it."""
        values = [leaf.field for leaf in self._query.leaves() if leaf.kind == "value"]
        if self._snapshot.lacks([name for name in values if name is not None]):
            with pytest.raises(VizslaError, match="no document has a field"):
                self._search()
            self._count("field that no document has")
            return
        expected = self._snapshot.definition.found(self._query, plain=self._way["syntax"] is None)
        k = self._rng.choice((len(self._snapshot.documents) + 1, 1000, 2000))
        self._all = self._search(k)
        self._check_order(expected)
        self._count("all that is found")
        forms = [self._few, self._page, self._filtered, self._sorted, self._collapsed, self._least, self._facets]
        forms += [self._explained, self._run, self._highlights, self._similar, self._suggestions, self._matching]
        for form in self._rng.sample(forms, 4):
            form()

    def _count(self, what: str) -> None:
        self._compared[what] += 1

    def _search(self, k: int = 10, filter: str | None = None, **page: Any) -> list[Hit]:
        return list(self._index.search(self._text, k, filter, **self._way, **page))

    def _check_order(self, expected: Mapping[str, float]) -> None:
        """Compare all that is found with the definition.

        The engine rounds scores to 32 bits, so documents whose scores differ by less may come in any order. Documents
        with the same score come in the order of insertion.
        """
        found = {hit.id: hit.score for hit in self._all}
        assert len(found) == len(self._all), "a document is found twice"
        assert found.keys() == expected.keys(), f"found {sorted(found)} and not {sorted(expected)}"
        assert [hit.rank for hit in self._all] == list(range(1, len(self._all) + 1))
        for doc_id, score in expected.items():
            assert found[doc_id] == pytest.approx(score, rel=TOLERANCE, abs=TOLERANCE), doc_id
        ranked = [hit.id for hit in self._all]
        place = {doc_id: i for i, doc_id in enumerate(expected)}
        for a, b in pairwise(ranked):
            near = abs(expected[a] - expected[b]) <= TOLERANCE * max(1.0, abs(expected[a]))
            assert near or expected[a] > expected[b], f"{a} before {b}"
            assert found[a] != found[b] or place[a] < place[b], f"{a} was inserted before {b}"
        if self._kind.passages is None and not self._kind.vectors:
            by_score: dict[float, list[str]] = {}
            for doc_id in ranked:
                by_score.setdefault(expected[doc_id], []).append(doc_id)
            for same in by_score.values():
                assert same == sorted(same, key=place.__getitem__), f"{same} have the same score"

    def _check(self, found: Sequence[Hit], expected: Sequence[Hit], what: str) -> None:
        """Compare hits with those they should be, which `_check_order` has checked."""
        ids = [hit.id for hit in found]
        assert ids == [hit.id for hit in expected], f"{what}: {ids} and not {[hit.id for hit in expected]}"
        for hit, other in zip(found, expected, strict=True):
            assert hit.score == pytest.approx(other.score, rel=TOLERANCE, abs=TOLERANCE), what
            assert hit.document.content == self._snapshot.documents[hit.id] or self._kind.passages, what
        self._count(what)

    def _content(self, hit: Hit) -> Content:
        return self._snapshot.documents[hit.id]

    def _few(self) -> None:
        k = self._rng.randint(1, 6)
        self._check(self._search(k), self._all[:k], "top k")

    def _page(self) -> None:
        k, offset = self._rng.randint(1, 6), self._rng.randint(0, 12)
        self._check(self._search(k, offset=offset), self._all[offset : offset + k], "page")

    def _filtered(self) -> None:
        text = self._rng.choice(list(FILTERS))
        k = self._rng.choice((3, 100))
        if self._refused(text):
            with pytest.raises(VizslaError, match="no document has a field"):
                self._search(k, text)
            self._count("filter on a field that no document has")
            return
        self._check(self._search(k, text), [h for h in self._all if FILTERS[text](self._content(h))][:k], "filter")

    def _refused(self, text: str) -> bool:
        return text not in _OPTIONAL and self._snapshot.lacks(_NAMED[text])

    def _field(self) -> str | None:
        """A field to sort, collapse or count by; None if no document has it, which is refused."""
        name = self._rng.choice(("year", "lang", "n", "tags", "old"))
        if any(_values(content.get(name)) for content in self._snapshot.documents.values()):
            return name
        for option in ("sort", "collapse"):
            with pytest.raises(VizslaError, match="no document has"):
                self._search(**{option: name})
        with pytest.raises(VizslaError, match="no document has"):
            self._index.facets([name], self._text, **self._way)
        self._count("field that no document has")
        return None

    def _sorted(self) -> None:
        name = self._field()
        if name is None:
            return
        descending, k, offset = self._rng.random() < 0.5, self._rng.randint(1, 20), self._rng.choice((0, 0, 3))
        with_value = [hit for hit in self._all if _values(self._content(hit).get(name))]
        choose = max if descending else min
        with_value.sort(key=lambda hit: choose(_values(self._content(hit)[name])), reverse=descending)
        expected = with_value + [hit for hit in self._all if not _values(self._content(hit).get(name))]
        found = self._search(k, sort=f"-{name}" if descending else name, offset=offset)
        self._check(found, expected[offset : offset + k], "sort")

    def _collapsed(self) -> None:
        name = self._field()
        if name is None:
            return
        seen, expected = set(), []
        for hit in self._all:
            values = _values(self._content(hit).get(name))
            if not values or values[0] not in seen:
                expected.append(hit)
                seen.update(values[:1])
        k, offset = self._rng.randint(1, 20), self._rng.choice((0, 0, 2))
        self._check(self._search(k, collapse=name, offset=offset), expected[offset : offset + k], "collapse")

    def _least(self) -> None:
        scores = sorted({hit.score for hit in self._all})
        if not scores:
            return
        at = self._rng.randrange(len(scores))
        least = scores[at] if at == 0 else (scores[at - 1] + scores[at]) / 2
        if at and scores[at] - scores[at - 1] <= TOLERANCE:
            return
        self._check(self._search(100, min_score=least), [h for h in self._all if h.score >= least], "least score")

    def _facets(self) -> None:
        name, text = self._field(), self._rng.choice((None, *FILTERS))
        if name is None or (text is not None and self._refused(text)):
            return
        hits = [hit for hit in self._all if text is None or FILTERS[text](self._content(hit))]
        values = [_values(self._content(hit).get(name)) for hit in hits]
        counts = Counter(value for own in values for value in own)
        found = self._index.facets([name], self._text, text, size=2, **self._way)
        assert found.documents == len(hits), f"facets of {found.documents} documents and not of {len(hits)}"
        assert found[name].missing == sum(not own for own in values)
        assert found[name].distinct == len(counts)
        best = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:2]
        assert [(one.value, one.count) for one in found[name].values] == best
        self._count("facets")

    def _explained(self) -> None:
        chosen = self._rng.choice(sorted(self._snapshot.documents)) if self._snapshot.documents else None
        if self._all:
            hit = self._rng.choice(self._all)
            score = self._index.explain(self._text, hit.id, **self._way).score
            assert score == pytest.approx(hit.score, rel=TOLERANCE, abs=TOLERANCE), "explain"
            self._count("explain")
        if chosen is not None and self._way["syntax"] and chosen not in {hit.id for hit in self._all}:
            with pytest.raises(VizslaError, match="does not match the query"):
                self._index.explain(self._text, chosen, **self._way)
            self._count("explain")

    def _run(self) -> None:
        k = self._rng.choice((2, 100))
        ranking = self._index.run({"q": self._text, "r": self._text}, k, **self._way)["r"]
        assert list(ranking.documents) == [hit.id for hit in self._all[:k]], "run"
        assert list(ranking.scores) == pytest.approx([h.score for h in self._all[:k]], rel=TOLERANCE, abs=TOLERANCE)
        self._count("run")

    def _highlights(self) -> None:
        """All words of a field that count are marked, for the first part of a sum for which there are some."""
        if not self._all:
            return
        hit, field = self._rng.choice(self._all), self._rng.choice(self._kind.fields)
        text = self._content(hit).get(field) or ""
        definition = self._snapshot.definition
        words: list[str] = []
        for counts in definition.parts:
            if field in counts.part.fields and not words:
                weights, analyzer = definition.query_weights(self._query, counts), counts.part.analyzer
                words = [w for w in text.replace("-", " ").split() if set(terms_of(analyzer, w)) & weights.keys()]
        document = self._index.get(hit.id)
        assert document is not None
        snippet = self._index.highlighter(self._text, **self._way).snippet(document, field, width=10_000)
        assert [snippet.text[a:z] for a, z in snippet.matches] == words, "highlights"
        self._count("highlights")

    def _similar(self) -> None:
        """Documents like a document are what a plain search for its query finds, without itself."""
        if not self._snapshot.documents:
            return
        doc_id, k = self._rng.choice(sorted(self._snapshot.documents)), self._rng.randint(1, 9)
        query = self._index.similar_query(doc_id)
        expected = self._snapshot.definition.found(plain_query(query), plain=True) if query else {}
        expected.pop(doc_id, None)
        found = self._index.similar(doc_id, k)
        best = sorted(expected.values(), reverse=True)[:k]
        assert [hit.score for hit in found] == pytest.approx(best, rel=TOLERANCE, abs=TOLERANCE), "similar"
        assert all(expected[h.id] == pytest.approx(h.score, rel=TOLERANCE, abs=TOLERANCE) for h in found), "similar"
        self._count("similar")

    def _suggestions(self) -> None:
        """What is suggested is in as many documents as it says."""
        word = self._rng.choice(WORDS)
        prefix = word[: self._rng.randint(1, len(word))]
        parts = self._snapshot.definition.parts
        for one in self._index.suggest(prefix):
            terms = [(own, t) for own in parts for t in terms_of(own.part.analyzer, one.text)]
            assert one.text.startswith(prefix), "suggestions"
            assert one.documents in [own.frequencies[term] for own, term in terms], f"{one} for {prefix!r}"
        self._count("suggestions")

    def _matching(self) -> None:
        """The documents that pass a filter, which `delete --filter` asks for."""
        text = self._rng.choice(list(FILTERS))
        if not self._refused(text):
            expected = [doc_id for doc_id, content in self._snapshot.documents.items() if FILTERS[text](content)]
            assert self._index.matching_ids(text) == expected, text
            self._count("documents that pass a filter")


def _values(value: Any) -> list[Any]:
    """The values of a field, those of a list one by one."""
    return value if isinstance(value, list) else [] if value is None else [value]


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
