"""The plan to internet scale: the arithmetic of the model, the simulation of many shards, and the commands."""

from __future__ import annotations

import doctest
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

BENCH = Path(__file__).parents[1] / "bench"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # its dataclasses look for it there
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.environ", {})  # it sets the number of threads
        spec.loader.exec_module(module)
    return module


model: Any = load("scale_model")
measures: Any = load("scale_measures")


@pytest.fixture(scope="module")
def bench() -> Any:
    return load("scale")


def test_examples_are_true(bench: Any) -> None:
    assert doctest.testmod(model).failed == doctest.testmod(bench).failed == 0
    assert doctest.testmod(model).attempted >= 4


@given(st.floats(0.001, 10), st.floats(1e-7, 1e-3), st.lists(st.integers(100, 10**6), min_size=2, unique=True))
def test_a_line_through_points_on_a_line_is_that_line(fixed: float, each: float, sizes: list[int]) -> None:
    line = model.Line.fit(sizes, [fixed + each * n for n in sizes])
    assert line.at(2_000_000) == pytest.approx(fixed + each * 2_000_000, rel=1e-3)
    assert line.reach(line.at(5_000_000)) == pytest.approx(5_000_000, rel=1e-3)


def test_a_line_needs_two_sizes_and_costs() -> None:
    for sizes, costs in (([1], [1.0]), ([1, 2], [1.0]), ([1, 2], [1.0, 0.0])):
        with pytest.raises(ValueError, match="two sizes"):
            model.Line.fit(sizes, costs)
    assert model.Line(5.0, 1.0).reach(4.0) == 0


SYSTEMS = st.builds(
    lambda fixed, each, memory, disk: model.System("s", model.Line(fixed, each), memory, memory + disk, 10_000.0),
    st.floats(0.01, 5), st.floats(1e-7, 1e-3), st.floats(50, 3000), st.floats(0, 3000),
)  # fmt: skip


@given(SYSTEMS, st.floats(1e5, 1e11), st.integers(1, 3), st.floats(1, 1000))
def test_a_plan_satisfies_every_demand(system: Any, passages: float, replicas: int, queries: float) -> None:
    machines = model.Machines(replicas=replicas, queries=queries)
    found = model.plan(system, passages, machines)
    assert found.nodes >= replicas
    assert found.memory <= found.nodes * machines.memory * machines.memory_share
    assert found.disk <= found.nodes * machines.disk * machines.disk_share
    assert queries * found.core_seconds <= found.nodes * machines.cores * machines.load * (1 + 1e-9)
    per_replica = found.nodes // replicas * machines.cores
    assert system.search_ms.at(passages / per_replica) <= machines.budget_ms * (1 + 1e-9)
    assert found.demands[found.decided_by] == max(found.demands.values()) <= found.nodes


def test_a_plan_counts_time_and_money() -> None:
    system = model.System("s", model.Line(0.0, 1e-6), 1000.0, 2000.0, index_rate=10_000.0, encode_rate=50_000.0)
    machines = model.Machines(replicas=2, queries=1.0)
    found = model.plan(system, 1e9, machines)
    assert found.nodes == 11  # 2 TB at 192 GB a machine
    assert found.decided_by == "memory"
    assert found.core_seconds == pytest.approx(1.0)
    assert found.gpu_hours == pytest.approx(1e9 / 50_000 / 3600)
    assert found.gpus == 1
    assert found.index_hours == pytest.approx(2e9 / 10_000 / (11 * 32) / 3600)
    assert found.month == pytest.approx(11 * 2.0 * 730)
    assert found.build == pytest.approx(found.gpu_hours * 3.5 + found.index_hours * 22)


def test_a_plan_that_cannot_be_fast_enough_is_refused() -> None:
    slow = model.System("slow", model.Line(300.0, 1e-6), 1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="slow: a shard without passages takes longer than 200"):
        model.plan(slow, 1e6, model.Machines())


def test_the_slowest_shard_is_simulated_as_by_drawing_all_shards() -> None:
    rng = np.random.default_rng(1)
    times = rng.lognormal(0, 1, (60, 1)) + rng.exponential(0.3, (60, 8))
    found = model.slowest(times, 16, rng, draws=500)
    delays = (times - times.min(1)[:, None]).ravel()
    drawn = (times.min(1) + rng.choice(delays, (500, 16, 60)).max(1)).ravel()
    for quantile in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(found, quantile) == pytest.approx(np.quantile(drawn, quantile), rel=0.05)
    free = model.independent(times, 16, rng, draws=500)
    assert np.median(free) > 1.5 * np.median(found)  # a long query makes every answer long if shards are independent


@pytest.fixture
def collection(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    words = [f"w{i}" for i in range(400)]
    rows = [{"_id": str(i), "text": " ".join(rng.choice(words, 12))} for i in range(160)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "w1 w2"}\n{"_id": "q2", "text": "w3 w4 w5"}\n')
    return tmp_path


def run(bench: Any, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["scale.py", *arguments])
    bench.main()


def test_measure_check_and_plan(
    bench: Any, collection: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ["--corpus", str(collection / "corpus.jsonl"), "--queries", str(collection / "queries.jsonl")]
    sizes = ["--sizes", "20,40,80,160", "--shards", "4", "--encoder", ""]
    folder = str(collection / "out")
    run(bench, monkeypatch, "measure", folder, *files, *sizes)
    figures = json.loads((collection / "out" / "figures.json").read_text())
    assert [row["passages"] for row in figures["sparse"]] == [20, 40, 80, 160]
    assert np.shape(figures["shards"]["times"]) == (2, 4)
    assert 0 < figures["shards"]["overlap"] <= 1
    capsys.readouterr()
    run(bench, monkeypatch, "check", folder)
    checked = capsys.readouterr().out
    assert "| BM25 index, MB |" in checked
    assert "S = 4, simulated from 2" in checked
    run(bench, monkeypatch, "plan", folder, "--price", "3", "--queries", "10")
    planned = capsys.readouterr().out
    assert "costs $3.00 an hour" in planned
    assert [line.split("|")[1].strip() for line in planned.splitlines() if "`bm25` |" in line] == [
        "10 M",
        "1 B",
        "100 B",
    ]
    cluster = [
        {"passages": n, "core_ms": 1 + n / 1000, "memory_bytes": 1e6 + 900 * n, "disk_bytes": 1e6 + 2000 * n}
        for n in (10, 20, 40)
    ]
    figures["cluster"] = [{**row, "server_rate": 3000.0} for row in cluster]
    (collection / "out" / "figures.json").write_text(json.dumps(figures))
    run(bench, monkeypatch, "check", folder)
    assert "| Qdrant, memory, 10 20 40, MB | 1.01 | 1.02 | 1.04 | 1.04 | +0.0% |" in capsys.readouterr().out
    run(bench, monkeypatch, "plan", folder)
    assert "| 10 M | `bm25` on Qdrant |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"has 160 documents, fewer than 1,000"):
        run(bench, monkeypatch, "measure", folder, *files, "--sizes", "20,1000")


def test_what_a_process_and_a_folder_take(tmp_path: Path) -> None:
    import os
    import time

    begun, before = time.process_time(), measures.server_seconds(os.getpid())
    for _ in range(3_000_000):
        pass
    taken, ended = measures.server_seconds(os.getpid()) - before, time.process_time()
    assert 0 < taken <= ended - begun + 0.1  # it counts in hundredths
    assert 1_000_000 < measures.server_memory(os.getpid()) < 100e9
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "file").write_bytes(b"x" * 100_000)
    assert 100_000 <= measures.folder_bytes(tmp_path) < 200_000
