"""Time and size of the systems of BEIR's Table 3, on a small collection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from small import documents_of
from vizsla import VizslaError
from vizsla.evaluation.efficiency import TABLE, Measurement, Shape, markdown, measure

SMALL = Shape(1, 32, 4)
DOCUMENTS = [*documents_of(30), {"id": "q", "text": "dogs bark", "queries": "what do dogs do"}]


@pytest.mark.parametrize("drawn", [False, True])
def test_each_system_is_measured(drawn: bool, tmp_path: Path) -> None:
    """With the networks' vectors, and with drawn ones; TAS-B and DPR differ in their shapes alone."""
    names = ("BM25+CE", "ColBERT", "docT5query", "BM25", "TAS-B", "SPARTA", "DeepCT")
    systems = [replace(s, shape=s.shape and SMALL) for s in TABLE if s.name in names]
    if drawn:
        systems = [replace(s, dimensions=32) if s.kind == "dense" else s for s in systems]
    made = {one.system: one for one in measure(DOCUMENTS, ["dogs", "cats"], tmp_path, systems, drawn=drawn, k=5)}
    assert set(made) == set(names)
    for name, one in made.items():
        assert one.documents == (1 if name == "docT5query" else 31)
        assert one.bytes > 0
        assert one.milliseconds > 0
        assert ("drawn" in one.note) == (drawn and name in ("ColBERT", "TAS-B", "SPARTA", "DeepCT"))
    assert made["BM25+CE"].bytes == made["BM25"].bytes
    assert made["TAS-B"].bytes > 31 * 32 * 4
    assert made["ColBERT"].bytes > 31 * 30 * 128 * 2
    assert made["SPARTA"].bytes > made["DeepCT"].bytes
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_measured_is_said(tmp_path: Path) -> None:
    (expanded,) = (s for s in TABLE if s.name == "docT5query")
    with pytest.raises(VizslaError, match="no document has generated queries; write them with: vizsla queries"):
        list(measure(documents_of(2), ["dogs"], tmp_path, [expanded]))
    with pytest.raises(VizslaError, match="give a list or a source"):
        list(measure(iter(DOCUMENTS), ["dogs"], tmp_path))
    with pytest.raises(VizslaError, match="no queries"):
        list(measure(DOCUMENTS, [], tmp_path))


def test_the_table_has_the_papers_figures_beside_ours() -> None:
    table = markdown([Measurement("DPR", 100_000, 307_600_000, 51.26, 50, "cpu", 10.0, "random weights")])
    assert table.splitlines()[-1] == (
        "| DPR | 768 | 100,000 | 307.6 | 3.08 | 3 | 51.3 | cpu | 230 | 19 | random weights |"
    )
