"""`bench/table3.py`: the times and sizes of systems, beside the figures of the BEIR paper."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[1] / "bench" / "table3.py"


@pytest.fixture(scope="module")
def bench() -> Any:
    spec = importlib.util.spec_from_file_location("table3", FILE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.environ", {})  # it sets the number of threads
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    animals = [{"_id": str(i), "title": "dog", "text": f"bark number {i}", "queries": "who barks"} for i in range(9)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in animals))
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "dog 3"}\n{"_id": "q2", "text": "who barks"}\n')
    return tmp_path


def measured(bench: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> dict[str, Any]:
    files = ["--corpus", str(folder / "corpus.jsonl"), "--queries", str(folder / "queries.jsonl")]
    monkeypatch.setattr(sys, "argv", ["table3.py", "cpu", str(folder / "out"), *files, *arguments])
    monkeypatch.setenv("VIZSLA_RUNTIME", "onnx")
    bench.main()
    return json.loads((folder / "out" / "cpu.json").read_text())  # type: ignore[no-any-return]


def test_systems_by_expression(
    bench: Any, corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """BM25 is always there; a field more takes more bytes; vectors can be searched in several ways."""
    found = measured(
        bench, corpus, monkeypatch,
        "--system", "docT5query=bm25(fields=title/text/queries)",
        "--system", "dense=sketch(width=64)", "--system", "dense, 8 bits=sketch(width=64)@sq8",
        "--system", "both=bm25 + 0.5 * sketch(width=64)", "--system", "lacking=bm25(fields=abstract)",
        "--system", "small=sketch(width=64)@hnsw",
    )  # fmt: skip
    systems = found["systems"]
    assert list(systems) == ["bm25", "docT5query", "dense", "dense, 8 bits", "both"]
    assert {name: s["kind"] for name, s in systems.items()} == {
        "bm25": "lexical", "docT5query": "lexical", "dense": "dense", "dense, 8 bits": "dense", "both": "hybrid"
    }  # fmt: skip
    assert systems["bm25"]["bytes"] < systems["docT5query"]["bytes"]
    assert systems["dense, 8 bits"]["bytes"] < systems["dense"]["bytes"]
    assert systems["both"]["bytes"] == systems["bm25"]["bytes"] + systems["dense"]["bytes"]
    assert systems["bm25"]["ratio"] == 1
    assert all(s["mean"] > 0 for s in systems.values())
    out, err = capsys.readouterr()
    assert "lacking is left out: no document has the field abstract" in err
    assert "small is left out: with fewer than 10,000 documents it is exact" in err
    (line,) = [line for line in out.splitlines() if line.startswith("| docT5query")]
    assert line.endswith("| 30 | 1.5 |  | 0.4 |")
    assert "9 documents, 2 queries, k = 100." in out


def test_the_gpu_is_a_column_of_its_own(bench: Any, tmp_path: Path) -> None:
    times = {"mean": 2.0, "median": 1.5, "ratio": 4.0, "queries": 5, "bytes": 3_000_000, "kind": "dense"}
    about = {"documents": 1000, "k": 10, "systems": {"minilm, exact": times, "bm25": {**times, "kind": "lexical"}}}
    (tmp_path / "cpu.json").write_text(json.dumps(about))
    (tmp_path / "gpu.json").write_text(json.dumps({"device": "x", "systems": {"minilm, exact": {"mean": 0.5}}}))
    lines = bench.table(tmp_path).splitlines()
    assert lines[2] == "| minilm, exact | dense | 2.00 | 1.50 | 4.0 | 0.50 | 3.0 | 3.00 | 125 (TAS-B) | 6.2 | 14 | 3 |"
    assert lines[3] == "| bm25 | lexical | 2.00 | 1.50 | 4.0 |  | 3.0 | 3.00 | 20 | 1.0 |  | 0.4 |"


def test_a_system_needs_a_name(bench: Any) -> None:
    from vizsla.errors import VizslaError

    with pytest.raises(VizslaError, match="NAME=EXPRESSION"):
        bench.System.parse("bm25")
    assert bench.System.parse("HNSW = bm25(k1=2)@hnsw(m=8)")[2] == "hnsw(m=8)"
