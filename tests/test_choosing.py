"""`bench/choosing.py`: what a model gains over BM25, and what it costs."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

FILE = Path(__file__).parents[1] / "bench" / "choosing.py"


@pytest.fixture(scope="module")
def bench() -> Any:
    spec = importlib.util.spec_from_file_location("choosing", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(bench: Any, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", ["choosing.py", *map(str, arguments)])
    bench.main()


def test_the_table_and_the_picture(
    bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    documents = [{"_id": str(i), "title": "", "text": f"dog number {i} barks"} for i in range(20)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "which dog barks"}\n' * 3)
    files = ["--corpus", tmp_path / "corpus.jsonl", "--queries", tmp_path / "queries.jsonl", "--rounds", 1]
    run(bench, monkeypatch, "cost", tmp_path / "cost.json", "bm25", "both=bm25 + 0.5 * bm25-wp", *files)
    costs = json.loads((tmp_path / "cost.json").read_text())
    assert list(costs) == ["bm25", "both"]
    assert costs["both"]["index"] > costs["bm25"]["index"]
    assert costs["bm25"]["weights"] == 0
    assert bench.needs_of("bm51") == {"onnxruntime"}

    figures = [
        {"system": system, "dataset": dataset, "measure": "nDCG@10", "value": value}
        for system, values in {"bm25": (0.3, 0.5), "both": (0.4, 0.49), "elsewhere": (0.4, 0.4)}.items()
        for dataset, value in zip(("a", "b"), values, strict=True)
    ]
    (tmp_path / "quality.json").write_text(json.dumps({"figures": figures}))
    capsys.readouterr()
    picture = tmp_path / "choosing.svg"
    run(
        bench,
        monkeypatch,
        "table",
        tmp_path / "cost.json",
        tmp_path / "quality.json",
        "--seen",
        "a",
        "--picture",
        picture,
    )
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[0] for line in lines[2:]] == ["| `bm25`", "| `both`"]
    assert lines[3].split(" | ")[1:5] == ["0.4450", "+4.5", "-1.0", "-1.0 (b)"]
    drawn = ElementTree.fromstring(picture.read_text())
    assert sum(element.tag.endswith("circle") for element in drawn) == 2


def test_reports_without_bm25_are_refused(bench: Any, tmp_path: Path) -> None:
    (tmp_path / "quality.json").write_text('{"figures": []}')
    with pytest.raises(SystemExit, match="no report has the system bm25"):
        bench.read_quality([tmp_path / "quality.json"])
