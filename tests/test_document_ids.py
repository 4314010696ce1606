"""Ids as a writer sees them: in segments, in no segment yet, and after calls that failed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla import BM25, Index
from vizsla.index import verify
from vizsla.index.writing import transaction

Change = tuple[str, list[int]]
CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["add", "fail", "delete", "commit", "flush"]),
        st.lists(st.integers(0, 7), unique=True, max_size=5),
    ),
    max_size=12,
)


class Stopped(Exception):
    """The end of documents that cannot be read."""


def failing(documents: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    yield from documents
    raise Stopped


@pytest.mark.parametrize("passages", [None, 2])
@given(changes=CHANGES)
def test_ids_are_those_of_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, passages: int | None, changes: list[Change]
) -> None:
    folder = tmp_path_factory.mktemp("ids") / "my.index"
    living: dict[str, str] = {}
    with Index.create(folder, passages=passages) as index, pytest.MonkeyPatch.context() as patch:
        patch.setattr(BM25, "batch_size", 2)
        for turn, (kind, chosen) in enumerate(changes):
            documents = [{"id": f"d{i}", "text": f"common one{i} turn{turn} four five"} for i in chosen]
            new = {d["id"]: d["text"] for d in documents}
            if kind == "delete":
                assert index.delete([*new]) == len(new.keys() & living.keys())
                living = {doc_id: text for doc_id, text in living.items() if doc_id not in new}
            elif kind == "commit":
                index.commit()
            else:
                patch.setattr(transaction, "BUFFER_SHARE", 0.25 if kind == "add" else 0)  # each batch is a segment
                if kind == "fail":
                    with pytest.raises(Stopped):
                        index.add(failing(documents))
                else:
                    assert index.add(documents).replaced == len(new.keys() & living.keys())
                    living |= new
        index.commit()
        assert {d.id: d["text"] for d in index.documents()} == living
        assert {d.id: d["text"] for d in index.get_many([f"d{i}" for i in range(9)]).values()} == living
        assert {hit.id for hit in index.search("common", 50)} == living.keys()
    assert verify(folder) == []


def test_an_id_that_is_replaced_again_and_again(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index:
        index.add({"id": f"d{i}", "text": "common"} for i in range(1200))
        for turn in range(3):
            assert index.add({"id": f"d{i}", "text": f"common {turn}"} for i in range(40, 60)).replaced == 20
        index.commit()
        assert len(index) == 1200
        assert index.get_many(["d39", "d40", "d59", "d60"])["d59"]["text"] == "common 2"
        assert [d.id for d in index.documents()][-21:] == ["d1199", *(f"d{i}" for i in range(40, 60))]
    assert verify(tmp_path / "i") == []
