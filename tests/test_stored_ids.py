"""Ids in arrays: rows give their ids, and ids their rows, as a list of the same ids does."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.index.storage import stored_ids
from vizsla.index.storage.stored_ids import DamagedTextsError, StoredIds, StoredTexts, id_lists, ids_at

COUNTING = st.tuples(
    st.sampled_from(["", "d", "d0", "d9", "é-", "5-0", "\n"]), st.integers(0, 120), st.integers(1, 9)
).map(lambda run: [f"{run[0]}{run[1] + i}" for i in range(run[2])])
LONG = st.sampled_from(
    ["9" * 17, "9" * 18, "9" * 19, "0" * 30, "1" + "0" * 18, "x" * 300, "a\0", "a", "a#", "a#0", "007"]
)
IDS = st.lists(st.one_of(COUNTING, st.text(min_size=1).map(lambda text: [text]), LONG.map(lambda text: [text]))).map(
    lambda runs: [doc_id for run in runs for doc_id in run]
)


def check(ids: Sequence[str], stored: StoredIds, wanted: Sequence[str]) -> None:
    """Compare stored ids with a list of the same ids."""
    assert len(stored) == len(ids)
    assert stored.fit()
    assert stored.is_sound()
    assert stored.at(np.arange(len(ids))) == ids
    assert stored.at(np.arange(len(ids))[::-3]) == list(ids[::-3])
    assert stored.find(StoredTexts.of(wanted)) == [
        (i, row) for i, one in enumerate(wanted) for row, own in enumerate(ids) if one == own
    ]
    some = np.arange(len(ids))[1::2]
    copied = StoredTexts.concatenated([stored.copied(some), stored.copied(some[:1])])
    assert StoredIds(copied).at(np.arange(len(copied))) == [ids[i] for i in [*some, *some[:1]]]
    assert stored.rows_ending(b"-0").tolist() == [row for row, one in enumerate(ids) if one.endswith("-0")]


@given(IDS, IDS)
def test_ids_and_rows(ids: list[str], others: list[str]) -> None:
    stored = StoredIds.of(StoredTexts.of(ids))
    wanted = [*others, *ids]
    check(ids, stored, wanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_ids, "SHORT", 0)
        stored = StoredIds.of(StoredTexts.of(ids))
    check(ids, stored, wanted)
    assert stored.runs is None or not stored.overlap()
    assert stored.overlap() == (len(set(ids)) < len(ids))
    again = StoredIds(stored.texts, stored.runs, stored.order)
    check(ids, again, wanted)


@given(st.lists(IDS.filter(bool), min_size=1, max_size=4), st.lists(st.integers(0, 1 << 30), max_size=30))
def test_ids_of_several_parts(parts: list[list[str]], places: list[int]) -> None:
    """Rows of all parts in any order, as rows of one long list."""
    ids = [doc_id for part in parts for doc_id in part]
    rows, firsts = np.array([place % len(ids) for place in places], np.int64), accumulate(map(len, parts), initial=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored_ids, "SHORT", 2)
        stored = [StoredIds.of(StoredTexts.of(part)) for part in parts]
    read = [(part, first, rows) for part, first in zip(stored, firsts, strict=False)]
    assert ids_at(read) == [ids[i] for i in rows]
    bounds = [0, len(rows) // 3, len(rows) // 3, len(rows)]
    lists, wanted = id_lists(read, np.array(bounds)), [[ids[i] for i in rows[a:z]] for a, z in pairwise(bounds)]
    assert list(lists) == [lists[i] for i in range(3)] == lists[:] == wanted
    assert len(lists) == 3
    with pytest.raises(DamagedTextsError):
        ids_at([(stored[0], 0, np.array([0, len(parts[0])]))])
    with pytest.raises(DamagedTextsError):  # one row that two parts have, and one that none has
        ids_at([(stored[0], 0, np.array([0, -1])), (stored[-1], 0, np.array([0, -1]))])


def test_ids_that_count_on_take_little() -> None:
    ids = [f"{article}-{i}" for article in range(500, 700) for i in range(article % 40 + 3)]
    stored = StoredIds.of(StoredTexts.of(ids))
    check(ids, stored, ["500-0", "501-1", "600-2", "600-3", "700-0", "699-21", "699-22", "699-", "0500-0"])
    assert len(stored.texts) == 200
    mixed = [f"{i:x}" for i in np.random.default_rng(0).permutation(5000)]
    assert StoredIds.of(StoredTexts.of(mixed)).runs is None
    check(mixed[:3000], StoredIds.of(StoredTexts.of(mixed[:3000])), mixed[:5] + mixed[-5:])


def test_damaged_arrays_are_noticed() -> None:
    stored = StoredIds.of(StoredTexts.of([f"d{i}" for i in range(3000)]))
    assert stored.runs is not None
    texts = stored.texts
    assert not StoredIds(texts, stored.runs[:1], stored.order).fit()
    assert not StoredIds(texts, stored.runs, np.zeros(5, np.uint32)).fit()
    with pytest.raises(DamagedTextsError):
        StoredIds(texts, stored.runs, np.array([9], np.uint32)).find(StoredTexts.of(["d7"]))
    with pytest.raises(DamagedTextsError):
        stored.at(np.array([3000]))
    no_text = StoredIds(StoredTexts(np.array([97, 255], np.uint8), np.ones(2, np.uint8), np.zeros(1, np.int64)))
    assert no_text.at(np.array([0])) == ["a"]
    with pytest.raises(DamagedTextsError):  # at once, not when somebody looks at the ids
        id_lists([(no_text, 0, np.array([0, 1]))], np.array([0, 2]))
    with pytest.raises(DamagedTextsError):
        StoredIds(StoredTexts.of(["d"]), stored.runs, stored.order).at(np.array([1]))
    assert not StoredIds(StoredTexts.of(["d"]), stored.runs, stored.order).is_sound()
    assert not StoredIds(StoredTexts.of(["b", "a"]), None, np.array([0, 1], np.uint32)).is_sound()
    assert not StoredIds(StoredTexts.of(["a", "b"]), None, np.array([0, 0], np.uint32)).is_sound()


def test_ids_of_any_size() -> None:
    """Sizes of one, two and four bytes."""
    for longest in (200, 60_000, 70_000):
        texts = ["a" * longest, *(f"d{i}" for i in range(300)), "b" * longest]
        ids = StoredIds.of(StoredTexts.of(texts))
        assert ids.at(np.arange(len(ids))) == texts
        wanted = [texts[0], "d7", "c", texts[-1]]
        assert ids.find(StoredTexts.of(wanted)) == [(0, 0), (1, 8), (3, 301)]
