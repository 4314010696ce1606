"""Terms in blocks: the same terms and numbers as in a table, in fewer bytes, before and after any commit."""

from __future__ import annotations

import json
import sqlite3
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla import Index
from vizsla.errors import CollectionError
from vizsla.index import verify
from vizsla.index.storage import terms as stored
from vizsla.index.storage.checksums import row_sum
from vizsla.index.storage.database import SCHEMA
from vizsla.index.storage.packed_terms import PackedTerms
from vizsla.index.storage.terms import (
    DamagedTermsError,
    TermBlocks,
    find_terms,
    fold_terms,
    stored_terms,
    unpack_block,
)

TERM = st.one_of(st.text('ab"\\\n\t0é\U0001f415', max_size=4), st.text(max_size=6)).filter(
    lambda t: t.isprintable() or "\ud800" not in t
)
BLOCK = PackedTerms.of(0, ["a"], 0).blocks()[0][0][2]
TERMS = st.lists(st.tuples(st.integers(0, 2), TERM), unique=True, max_size=60)


@given(terms=st.lists(TERM, unique=True), first=st.integers(0, 1 << 32), space=st.integers(0, 12))
def test_packed_terms_are_what_python_makes_of_rows(terms: list[str], first: int, space: int) -> None:
    terms = [term for term in terms if is_storable(term)]
    packed = PackedTerms.of(space, terms, first)
    rows = [(space, term, number) for number, term in enumerate(terms, first)]
    assert packed.checksum() % (1 << 64) == row_sum(rows)
    rows.sort(key=lambda row: row[1])
    assert packed.rows() == rows
    blocks, done = packed.blocks()
    assert done == len(rows)
    written = [(space, first, zlib.decompress(data).decode()) for _, first, data in blocks]
    lines = [f"{json.dumps(term, ensure_ascii=False)}{number}\n" for _, term, number in rows]
    assert written == ([(space, rows[0][1], "\n" + "".join(lines))] if rows else [])


@pytest.mark.parametrize("size", [1, 70, 5000, 60_000])
@pytest.mark.parametrize("count", [1, 127, 128, 129, 700])
def test_blocks_end_after_128_terms_or_many_characters(size: int, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    terms = [f"{i:05}" + "é" * size for i in range(count)]
    sizes, left = [], list(map(len, terms))
    while left:
        n = next((n for n in range(1, len(left) + 1) if n == 128 or sum(left[:n]) > 1 << 16), len(left))
        sizes.append(n)
        del left[:n]
    blocks, done = PackedTerms.of(3, terms[::-1], 0).blocks(whole=False)
    assert [len(list(unpack_block(data))) for _, _, data in blocks] == sizes[: len(blocks)]
    assert done == sum(sizes[: len(blocks)])
    assert len(blocks) >= len(sizes) - 1
    monkeypatch.setattr(stored, "_AT_ONCE", 150)
    rows = [(space, term, i) for space in (2, 3) for i, term in enumerate(terms)]
    together = list(stored.pack_terms(rows))
    assert [len(list(unpack_block(data))) for _, _, data in together] == 2 * sizes
    assert [first for _, first, _ in together][: len(sizes)] == [terms[sum(sizes[:i])] for i in range(len(sizes))]


def is_storable(term: str) -> bool:
    try:
        term.encode()
    except UnicodeEncodeError:
        return False
    return True


def found(db: sqlite3.Connection, space: int, terms: list[str], blocks: TermBlocks) -> dict[str, int]:
    """The numbers of those terms that there are."""
    numbers = zip(terms, find_terms(db, Path("i"), space, terms, blocks), strict=True)
    return {term: number for term, number in numbers if number >= 0}


@given(terms=TERMS, cuts=st.lists(st.integers(0, 60), max_size=3), beginning=TERM, end=st.none() | TERM)
def test_blocks_hold_what_a_table_holds(
    terms: list[tuple[int, str]], cuts: list[int], beginning: str, end: str | None
) -> None:
    rows = [(space, term, i) for i, (space, term) in enumerate(terms) if is_storable(term)]
    rows = [(space, term, i) for i, (space, term, _) in enumerate(rows)]
    if not is_storable(beginning) or not is_storable(end or ""):
        return
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA)
    done, folded = 0, 0
    for cut in sorted(cuts):  # some terms, then a commit, and so on
        db.executemany("INSERT INTO terms VALUES (?, ?, ?)", rows[done:cut])
        done = max(done, min(cut, len(rows)))
        folded = fold_terms(db, Path("i"), done, folded, whole=True)
        assert db.execute("SELECT count(*) FROM terms").fetchone() == (0,)
    db.executemany("INSERT INTO terms VALUES (?, ?, ?)", rows[done:])
    by_bytes = sorted(rows, key=lambda row: (row[0], row[1].encode()))
    assert list(stored_terms(db)) == by_bytes
    for space in range(3):
        wanted = [
            row for row in by_bytes
            if row[0] == space and beginning.encode() <= row[1].encode()
            and (end is None or row[1].encode() < end.encode())
        ]  # fmt: skip
        assert list(stored_terms(db, space, beginning, end)) == wanted
        asked = sorted({t for _, t, _ in rows} | {beginning, "a", ""})
        known = {t: n for s, t, n in rows if s == space}
        blocks = TermBlocks()
        assert found(db, space, asked, blocks) == known
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(stored, "_FEW", 0)
            changed.setattr(stored, "_KEPT", 1)
            changed.setattr(stored, "_SINGLE", 2)
            assert found(db, space, asked, blocks) == found(db, space, asked, TermBlocks()) == known
        assert stored.has_terms(db, space) == any(s == space for s, _, _ in rows)
    db.close()


@pytest.mark.parametrize(
    "change", ["UPDATE terms SET term = x'00'", "UPDATE terms SET namespace = 'x'", "UPDATE term_blocks SET data = 7"]
)
def test_rows_of_other_types_are_told(change: str) -> None:
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA)
    db.execute("INSERT INTO term_blocks VALUES (0, 'a', ?)", (BLOCK,))
    db.execute("INSERT INTO terms VALUES (0, 'b', 1)")
    db.execute(change)
    with pytest.raises(DamagedTermsError):
        list(stored_terms(db))
    db.close()


@pytest.mark.parametrize("block", [None, "text", b"", b"x" * 40, BLOCK[:-3]])
def test_a_damaged_block_is_told(block: object) -> None:
    with pytest.raises(DamagedTermsError):
        list(unpack_block(block))
    db = sqlite3.connect(":memory:")
    db.executescript(SCHEMA.replace("data BLOB NOT NULL", "data BLOB"))
    db.execute("INSERT INTO term_blocks VALUES (0, 'a', ?)", (block,))
    with pytest.raises(CollectionError, match="its terms are not what was written"):
        find_terms(db, Path("i"), 0, ["a"], TermBlocks())
    db.close()


def test_few_terms_stay_in_the_table_and_many_are_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "_MIN_FOLDED", 100)
    counts = []
    with Index.create(tmp_path / "i") as index:
        for turn, size in enumerate((50, 60, 20, 10, 40)):
            index.add([{"id": f"{turn}-{i}", "text": f"turn{turn}word{i}"} for i in range(size)])
            index.commit()
            db = sqlite3.connect(tmp_path / "i" / "index.db")
            counts.append(db.execute("SELECT count(*) FROM terms").fetchone()[0])
            db.close()
            assert {hit.id for hit in index.search(f"turn0word7 turn{turn}word3", 2)} == {"0-7", f"{turn}-3"}
        assert counts == [50, 0, 20, 30, 70]
        index.compact()
        assert [hit.id for hit in index.search("turn4word39")] == ["4-39"]
    assert verify(tmp_path / "i") == []


def test_a_damaged_block_of_an_index_is_one_sentence(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": "1", "text": "dogs bark"}])
        index.compact()
    db = sqlite3.connect(tmp_path / "i" / "index.db")
    db.execute("UPDATE term_blocks SET data = x'00ff'")
    db.commit()
    db.close()
    with Index.open(tmp_path / "i") as index, pytest.raises(CollectionError, match="its terms are not what was"):
        index.search("dogs")
    assert any("its terms are not what was written" in problem for problem in verify(tmp_path / "i"))
