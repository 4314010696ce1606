"""The format of an index on disk: other formats are refused, and insertion numbers are read back as written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla import Index
from vizsla.errors import CollectionError
from vizsla.index import verify
from vizsla.index.storage import arrays, segment_files
from vizsla.index.storage.database import FORMAT
from vizsla.index.storage.segment_files import from_runs, to_runs


@pytest.mark.parametrize("number", [1, FORMAT - 1, FORMAT + 1, 99])
def test_an_index_of_another_format_is_refused_in_one_sentence(tmp_path: Path, number: int) -> None:
    folder = tmp_path / "my.index"
    with Index.create(folder) as index:
        index.add([{"id": "1", "text": "Dogs bark."}])
        index.commit()
    with closing(sqlite3.connect(folder / "index.db")) as db, db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'format'", (str(number),))
    advice = "upgrade Vizsla to open it" if number > FORMAT else "build it again"
    sentence = f"{folder}: the index has format {number}, this version reads format {FORMAT}; {advice}"
    with pytest.raises(CollectionError) as refused:
        Index.open(folder)
    assert str(refused.value) == sentence
    assert verify(folder) == [sentence]
    Index.create(folder, overwrite=True).close()  # an index of any format may be replaced by a new one
    assert verify(folder) == []


@given(st.sets(st.integers(0, 1 << 40), min_size=1), st.integers(0, 50))
def test_runs_give_back_their_numbers(starts: set[int], length: int) -> None:
    numbers = np.array(sorted({start + i for start in starts for i in range(length % 7 + 1)}), np.int64)
    assert from_runs(to_runs(numbers)).tolist() == numbers.tolist()


@pytest.mark.parametrize("runs", [[[0, 2], [5, 1]], [[0, 1 << 59]], [[-1, 4]], [[0, 4], [9, -1], [20, 1]]])
def test_runs_of_other_documents_are_refused(tmp_path: Path, runs: list[list[int]]) -> None:
    folder = tmp_path / "segments" / "s"
    folder.mkdir(parents=True)
    facts = {"number_runs": arrays.write_array(folder / "number_runs.npy", np.array(runs, np.int64))}
    with pytest.raises(CollectionError, match="its arrays contradict each other"):
        segment_files.read_numbers(tmp_path, "s", facts, 4)
