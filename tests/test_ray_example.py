"""`examples/encode_with_ray.py`: parts that a Ray cluster encodes are those of `vizsla encode`."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from vizsla.datasets import read_documents
from vizsla.index import PartSet, encode_shard

if importlib.util.find_spec("ray") is None:
    pytest.skip('needs Ray: pip install "ray[data]==2.60.*" in an environment of its own', allow_module_level=True)

ROOT = Path(__file__).parents[1]
SHARDS = 3


def run_example(folder: Path, *sources: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "examples" / "encode_with_ray.py", *sources, "-o", folder]
    options = ["--shards", str(SHARDS), "--actors", "2"]
    settings = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "RAY_USAGE_STATS_ENABLED": "0"}
    return subprocess.run([*command, *options], capture_output=True, text=True, check=False, env=settings, timeout=240)


def write(file: Path, records: list[dict[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))
    return file


def test_parts_are_those_of_one_machine(tmp_path: Path) -> None:
    """Ids that look like numbers stay texts, and a line ends where JSON lines do."""
    records = [{"_id": f"{i:04}", "text": f"dog {i} barks\u2028and\u0085runs", "year": i % 7} for i in range(4500)]
    sources = [write(tmp_path / "b.jsonl", records[:2500]), write(tmp_path / "a.jsonl", records[2500:])]
    done = run_example(tmp_path / "parts", *sources)
    assert done.returncode == 0, done.stderr
    assert [line.split(": ")[1] for line in done.stderr.splitlines() if ": shard" in line] == [
        "shard 1/3 has 2,000 documents", "shard 2/3 has 2,000 documents", "shard 3/3 has 500 documents"
    ]  # fmt: skip
    (tmp_path / "ours").mkdir()
    for n in range(1, SHARDS + 1):
        documents = (document for source in sources for document in read_documents(source))
        encode_shard(documents, tmp_path / "ours" / f"part-{n}.parquet", "bm25", f"{n}/{SHARDS}")
    files = sorted(file.name for file in (tmp_path / "ours").iterdir())
    assert sorted(file.name for file in (tmp_path / "parts").iterdir()) == files
    for name in files:
        assert (tmp_path / "parts" / name).read_bytes() == (tmp_path / "ours" / name).read_bytes(), name
    assert PartSet(tmp_path / "parts").rows == 4500


def test_a_line_that_is_not_json_is_named(tmp_path: Path) -> None:
    source = tmp_path / "c.jsonl"
    source.write_text('{"_id": "1", "text": "dog"}\n{"_id": "2", "text":\n')
    done = run_example(tmp_path / "parts", source)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert f"{source}:2: this line is not JSON" in last
