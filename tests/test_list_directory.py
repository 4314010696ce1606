"""Directories of posting lists give back what was packed, and damage in them is found before it does harm."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla.engine import BlockTable, DamagedSegmentError, ListDirectory, PostingLists

LISTS = st.dictionaries(
    st.one_of(st.integers(0, 40), st.integers(0, (1 << 32) - 1)),
    st.dictionaries(st.integers(0, (1 << 16) - 1), st.one_of(st.just(1), st.integers(1, 600)), min_size=1, max_size=5),
    max_size=40,
)


Lists = dict[int, dict[int, int]]


def table_of(lists: Lists) -> BlockTable:
    """A table of lists by term: for each range how many postings it has."""
    blocks = [block for _, own in sorted(lists.items()) for block in sorted(own.items())]
    return BlockTable.plain(
        np.array(sorted(lists), np.uint32),
        np.cumsum([0, *(len(own) for _, own in sorted(lists.items()))]),
        np.array([doc_range for doc_range, _ in blocks], np.uint16),
        np.cumsum([0, *(count for _, count in blocks)]).astype(np.uint32),
    )


@given(lists=LISTS, asked=st.lists(st.integers(-1, 50), max_size=8))
def test_a_directory_gives_back_its_table(lists: Lists, asked: list[int]) -> None:
    table = table_of(lists)
    directory = ListDirectory.pack(table)
    assert len(directory) == len(lists)
    assert [array.tolist() for array in directory.unpack()] == [array.tolist() for array in table]
    terms = np.array([*asked, *lists], np.int64)
    places, lengths = directory.find(terms)
    known = {t: (i, sum(lists[t].values())) for i, t in enumerate(sorted(lists))}
    assert list(zip(places.tolist(), lengths.tolist(), strict=True)) == [known.get(t, (-1, 0)) for t in terms.tolist()]


@given(lists=LISTS.filter(bool), data=st.data())
def test_a_directory_knows_the_counts_of_lists_with_bitmaps(lists: Lists, data: st.DataObject) -> None:
    table = table_of(lists)
    many = [data.draw(st.integers(1, 1 << 31)) if n > 1 else n for n in table.counts.tolist()]
    directory = ListDirectory.pack(table._replace(counts=np.array(many)))
    assert directory.unpack().counts.tolist() == many
    assert directory.find(np.array(sorted(lists)))[1].tolist() == many
    assert directory.count_postings() == sum(many)


@given(lists=LISTS.filter(bool), data=st.data())
def test_a_damaged_directory_is_refused_or_leads_nowhere_else(lists: Lists, data: st.DataObject) -> None:
    """Whatever it says, a search reads only postings that are there, and ranges that the segment has."""
    table = table_of(lists)
    sound = ListDirectory.pack(table)
    groups, records = sound.groups.copy(), sound.records.copy()
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            records[data.draw(st.integers(0, len(records) - 1))] = data.draw(st.integers(0, 255))
        else:
            row, column = data.draw(st.integers(0, len(groups) - 2)), data.draw(st.integers(0, 2))
            groups[row, column] = data.draw(st.integers(0, 1 << 31))
    directory, postings = ListDirectory(groups, records), int(table.starts[-1])
    damaged = PostingLists(directory, np.zeros(postings, np.uint16), np.zeros(0, np.uint8), np.zeros(0))
    terms = np.array(sorted(lists), np.int64)
    blocks = np.empty((len(terms), 2), np.int64)
    try:
        found = damaged.open(terms, 100, blocks, np.empty(len(terms)))
    except DamagedSegmentError:
        return
    for first, last in blocks.tolist():
        assert (found.ranges[first:last] < 100).all()
        if last > first:
            starts = found.starts[first : last + 1].astype(np.int64)
            assert starts[0] >= 0
            assert (np.diff(starts) > 0).all()
            assert starts[-1] <= postings
    try:
        damaged.table()
    except DamagedSegmentError:
        return


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t._replace(terms=t.terms[::-1]),
        lambda t: t._replace(ranges=t.ranges[[1, 0, 2]]),
        lambda t: t._replace(starts=t.starts[:-1]),
        lambda t: t._replace(starts=np.append(t.starts[:-1], 0).astype(np.uint32)),
        lambda t: t._replace(block_starts=t.block_starts * 0),
        lambda t: t._replace(block_starts=t.block_starts + 1),
    ],
)
def test_tables_that_contradict_themselves_are_refused(change: Callable[[BlockTable], BlockTable]) -> None:
    table = table_of({3: {0: 5, 9: 1}, 4: {2: 1}})
    assert len(ListDirectory.pack(table)) == 2
    with pytest.raises(DamagedSegmentError):
        ListDirectory.pack(change(table))
