"""What the tests share: where outside material lies when it is there, and small collections."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import browser
import qdrant_server
from numbered import records
from qdrant_server import pytest_generate_tests, server, where  # noqa: F401 (fixtures)
from small import SMALL_CROSS, documents_of, small_model
from vizsla import Index, read_documents
from vizsla.cli import main

# How fast an example is says nothing about it. `make test-slow` takes "thorough".
for _profile, _examples in (("quick", 20), ("thorough", 200)):
    settings.register_profile(
        _profile, deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=_examples
    )
settings.load_profile("quick")

# The tests start some two hundred processes; each would compile the package's bytecode again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Two workers with two threads each wait for each other: torch then takes four times as long.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests end processes, not the power; waiting for the disk took most of the time of a commit. tests/faults.py watches
# the calls themselves.
os.fsync = lambda _: None

LONG = (
    "test_page",
    "test_page_looks",
    "test_page_documents",
    "test_page_filters",
    "test_page_models",
    "test_mcp",
    "test_upload",
    "test_train",
    "test_adapt",
    "test_docs",
    "test_design",
    "test_hostile",
)
"""Files that take longest."""


def pytest_configure(config: pytest.Config) -> None:
    """Hear Ctrl-C, and look for a Qdrant server once, before processes are started that would each do it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not hasattr(config, "workerinput") and getattr(config.option, "numprocesses", None):
        found = qdrant_server.program()
        os.environ[qdrant_server.VARIABLE] = qdrant_server.NONE if isinstance(found, str) else str(found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line each what this machine could not test."""
    skipped = [report for report in terminalreporter.getreports("skipped") if browser.ABSENT in str(report.longrepr)]
    if skipped:
        terminalreporter.write_line(f"{len(skipped)} tests of the page were skipped: {browser.ABSENT}")
    if any("[stand-in" in report.nodeid for report in terminalreporter.getreports("passed")):
        missed = qdrant_server.program()
        if isinstance(missed, str):
            terminalreporter.write_line(f"tests of clusters ran with a stand-in for Qdrant alone: {missed}")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first, so that at the end nobody waits for it; a file starts each server once."""
    files = {path: place for place, path in enumerate(dict.fromkeys(item.path for item in items))}

    def order(item: pytest.Item) -> tuple[bool, int, str]:
        parameters = item.callspec.params if hasattr(item, "callspec") else {}
        return item.path.stem not in LONG, files[item.path], str(parameters.get("qdrant_command"))

    items.sort(key=order)


BESIDE = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder with Lucene's own output ($VIZSLA_REFERENCE, or shared/reference beside the checkout)."""
    folder = Path(os.environ.get("VIZSLA_REFERENCE", BESIDE / "reference"))
    if not folder.is_dir():
        pytest.skip("Lucene's reference output is not here; set VIZSLA_REFERENCE to its folder")
    return folder


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with SciFact and NFCorpus ($VIZSLA_DATA, or archives in shared/data beside the checkout)."""
    if "VIZSLA_DATA" in os.environ:
        return Path(os.environ["VIZSLA_DATA"])
    archives = [BESIDE / "data" / f"{name}.tar.xz" for name in ("scifact", "nfcorpus")]
    if not all(a.is_file() for a in archives):
        pytest.skip("SciFact and NFCorpus are not here; set VIZSLA_DATA to the folder that holds them")
    folder = tmp_path_factory.mktemp("data")
    for archive in archives:
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
    return folder


DOCUMENTS = [
    {"_id": "d1", "title": "Dogs", "text": "A dog barks at the other dogs.", "year": 1999},
    {"_id": "d2", "title": "Cats", "text": "Cats do not bark, but a cat may purr."},
    {"_id": "d3", "title": "", "text": "The vizsla is a dog that points and retrieves."},
    {"_id": "d4", "title": "Fish", "text": "Fish."},
]


@pytest.fixture
def documents() -> list[dict[str, object]]:
    return [dict(d) for d in DOCUMENTS]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a disk of 3 MB."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can make a small disk")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=False).returncode != 0:
        pytest.skip("no small disk can be mounted here")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", disk], check=False)  # maps of its files may still be around


Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    def run(*arguments: object, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["vizsla", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return int(end.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def corpus(tmp_path: Path, documents: list[dict[str, object]]) -> Path:
    """The small documents in a file."""
    file = tmp_path / "corpus.jsonl"
    file.write_text("".join(json.dumps(d) + "\n" for d in documents))
    return file


@pytest.fixture(scope="session")
def made_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of them that is copied, since many tests want one of their own."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in DOCUMENTS))
    with Index.create(folder / "i") as index:
        index.add(read_documents(folder / "corpus.jsonl"))
        index.commit()
    return folder / "i"


@pytest.fixture
def index(corpus: Path, made_index: Path, tmp_path: Path) -> Path:  # noqa: ARG001
    """An index of them."""
    return Path(shutil.copytree(made_index, tmp_path / "i"))


@pytest.fixture(scope="session")
def made_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of five documents that is copied."""
    folder = tmp_path_factory.mktemp("made") / "i"
    with Index.create(folder) as index:
        index.add(records(range(5)))
        index.commit()
    return folder


@pytest.fixture
def folder(made_folder: Path, tmp_path: Path) -> Path:
    """An index of five documents, to be written to."""
    return Path(shutil.copytree(made_folder, tmp_path / "i"))


@pytest.fixture(scope="module")
def few_documents() -> Iterator[None]:
    """Where collections are small, a filter leaves few documents only if it leaves very few."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vizsla.engine.vector_indexes.faiss_indexes._FEW", 60)
        yield


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """A small data set in BEIR's layout, with dev and test judgements and answers."""
    folder = tmp_path / "pets"
    (folder / "qrels").mkdir(parents=True)
    queries = [
        {"_id": "q1", "text": "barking dogs", "metadata": {"answers": ["other dogs", "cat"]}},
        {"_id": "q2", "text": "purr", "metadata": {"answers": ["hiss"]}},
        {"_id": "q3", "text": "a vizsla"},
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in DOCUMENTS))
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    head = "query-id\tcorpus-id\tscore\n"
    (folder / "qrels" / "test.tsv").write_text(head + "q1\td1\t2\nq1\td3\t1\nq2\td2\t1\n")
    (folder / "qrels" / "dev.tsv").write_text(head + "q3\td3\t1\n")
    return folder


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def in_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch computes in 32-bit floats on every processor, so that results can be compared."""
    monkeypatch.setattr("vizsla.neural.torch_network.has_fast_bfloat16", lambda _: False)


@pytest.fixture
def cache(own_cache: None, in_floats: None, tmp_path: Path) -> Path:  # noqa: ARG001
    """A cache of the test's own, and networks in floats that are made the same each time."""
    import torch

    torch.manual_seed(7)
    return tmp_path / "cache" / "vizsla"


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model that training starts from."""
    folder = tmp_path_factory.mktemp("start")
    small_model(folder / "network").save(folder / "model")
    return folder / "model"


@pytest.fixture(scope="session")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set in BEIR's layout whose queries are stretches of its documents."""
    folder = tmp_path_factory.mktemp("judged") / "set"
    (folder / "qrels").mkdir(parents=True)
    documents = documents_of(40)
    lines = [json.dumps({"_id": d["id"], "text": d["text"]}) for d in documents]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    queries = [{"_id": f"q{i}", "text": " ".join(d["text"].split()[3:8])} for i, d in enumerate(documents)]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)) + "\n")
    for split, part in (("train", range(30)), ("dev", range(30, 35)), ("test", range(35, 40))):
        rows = [f"q{i}\t{i}\t1" for i in part]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


@pytest.fixture(scope="session")
def trained(start: Path, judged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder that two steps have made of a small network."""
    from vizsla import BeirDataset, Reranker
    from vizsla.training import TrainingInputs, load_training_recipe, train

    folder = tmp_path_factory.mktemp("trained") / "cross"
    recipe = load_training_recipe("cross-encoder").with_changes([*SMALL_CROSS, f"network.base_model={start}"])
    dataset = BeirDataset.open(judged)
    model, result = train(recipe, folder, TrainingInputs(datasets=[dataset], dev=[dataset]))
    assert isinstance(model, Reranker)
    assert set(result.figures) == {"set nDCG@10", "set MRR@10"}
    return folder
