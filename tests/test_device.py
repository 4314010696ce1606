"""Devices: their names, what is said where one is missing, and that no model or index remembers one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vizsla
from small import small_dense
from vizsla import Index, Reranker, VizslaError, parse_model
from vizsla.models.generator import Sampling, open_generator
from vizsla.models.saving import open_model, save_model
from vizsla.neural.device import GPU_PROVIDER, Device, device_of_process, onnx_device, opening_on, place_of
from vizsla.neural.network import Network
from vizsla.neural.onnx_network import OnnxNetwork, check_runs_on

MODEL = "bm26"  # a network in 8 bits that comes with the package
TEXTS = ["Dogs bark at night.", "A cat sleeps.", "The vizsla is a dog of hunters, which points and retrieves."]


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VIZSLA_DEVICE", "VIZSLA_RUNTIME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def documents() -> list[dict[str, str]]:
    return [{"id": str(i), "text": text} for i, text in enumerate(TEXTS)]


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "CPU", "cuda:-1", "cuda:1:2", " cpu", "xla"])
def test_a_bad_name_is_refused_in_one_sentence(name: str) -> None:
    with pytest.raises(VizslaError, match=r"is no device; name cpu, cuda, cuda:1"):
        vizsla.use_device(name)
    with pytest.raises(VizslaError, match=r"is no device"):
        parse_model("bm25", device=name)
    with pytest.raises(VizslaError, match=r"is no device"):
        Reranker.open(device=name)
    assert "VIZSLA_DEVICE" not in os.environ


def test_a_bad_name_in_the_environment_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIZSLA_DEVICE", "gpu0")
    with pytest.raises(VizslaError, match="VIZSLA_DEVICE: 'gpu0' is no device"):
        parse_model(MODEL).encode_documents([{"text": "dogs"}])


@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("runtime", ["", "onnx", "torch"])
def test_a_missing_gpu_is_never_replaced_by_the_processor(runtime: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if runtime:
        monkeypatch.setenv("VIZSLA_RUNTIME", runtime)
    model = parse_model(MODEL, device="cuda:1")
    with pytest.raises(VizslaError, match="nothing here can run a network on cuda:1: ") as said:
        model.encode_documents([{"text": "dogs"}])
    for name in {"onnx": ["onnxruntime"], "torch": ["torch"]}.get(runtime, ["torch", "onnxruntime"]):
        assert name in str(said.value)
    assert str(said.value).endswith("or name cpu")
    with pytest.raises(VizslaError, match="cuda:1"):
        vizsla.use_device("cuda:1")
    assert "VIZSLA_DEVICE" not in os.environ


def test_a_gpu_that_is_not_there_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert place_of("cuda") == place_of("cuda:0")
    assert place_of("cuda").runtime == "torch"
    with pytest.raises(VizslaError, match="torch sees 1 GPU, and they count from cuda:0"):
        place_of("cuda:1")


def weights(model: Any, texts: list[str] = TEXTS) -> list[dict[tuple[str, str], float]]:
    """The weights of the terms of each text."""
    vectors = model.encode_documents([{"text": text} for text in texts])
    return [vectors[i] for i in range(len(texts))]


def test_cpu_is_what_happens_without_a_gpu(tmp_path: Path) -> None:
    assert weights(parse_model(MODEL)) == weights(parse_model(MODEL, device="cpu"))
    save_model(small_dense(tmp_path / "network"), tmp_path / "dense")
    dense = [open_model(tmp_path / "dense", device=device) for device in (None, "cpu")]
    own, named = (m.document_embeddings([{"text": text} for text in TEXTS]) for m in dense)  # type: ignore[attr-defined]
    assert np.array_equal(own[0], named[0])
    written = [open_generator(device=device).generate(TEXTS[:1], Sampling(2, max_tokens=5)) for device in (None, "cpu")]
    assert written[0] == written[1]


def test_an_index_keeps_the_device_while_it_is_open_and_saves_none(tmp_path: Path) -> None:
    folders = [tmp_path / "named", tmp_path / "plain"]
    for folder, device in zip(folders, ("cpu", None), strict=True):
        with Index.create(folder, parse_model(MODEL, device=device)) as index:
            index.add(documents())
            index.commit()
            index.refresh()
            assert index.model.device == (device or "")
    signatures = []
    for folder in folders:
        saved = [file for file in folder.rglob("*.json") if "device" in json.loads(file.read_text() or "{}")]
        assert not saved
        with Index.open(folder) as index, Index.open(folder, device="cpu") as named:
            assert index.model.device == ""
            assert named.model.device == "cpu"
            assert named.with_model(MODEL).model.device == "cpu"
            signatures.append([part.component.index_signature for part in index.model.parts])
            assert signatures[-1] == [part.component.index_signature for part in named.model.parts]
            hits = [[(hit.id, hit.score) for hit in one.search("dogs that bark")] for one in (index, named)]
            assert hits[0] == hits[1]
    assert signatures[0] == signatures[1]


def test_a_saved_model_names_no_device(tmp_path: Path) -> None:
    save_model(parse_model(MODEL, device="cpu"), tmp_path)
    assert open_model(tmp_path).device == ""
    assert open_model(tmp_path, device="cpu").device == "cpu"
    described = [file.read_text() for name in ("model.json", "network.json") for file in tmp_path.rglob(name)]
    assert len(described) == 2
    assert not any("device" in text for text in described)


def test_the_device_of_the_process_holds_where_a_model_names_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr("vizsla.neural.device._torch_lacks", lambda device: seen.append(str(device)) or "no torch")
    monkeypatch.setattr("vizsla.neural.device._LACKS", {"torch": lambda d: seen.append(str(d)) or ""})
    with device_of_process("cuda:2"):
        assert place_of() == place_of("cuda:2")
        assert place_of("cpu").device == Device("cpu")
        assert os.environ["VIZSLA_DEVICE"] == "cuda:2"
    assert "VIZSLA_DEVICE" not in os.environ
    assert set(seen) == {"cuda:2"}


class _Session:
    """onnxruntime's session of a processor, which says that it runs on a GPU."""

    def __init__(self, session: Any, provider: str) -> None:
        self.session, self.provider = session, provider
        self.get_modelmeta, self.get_inputs, self.get_outputs = (
            session.get_modelmeta, session.get_inputs, session.get_outputs,
        )  # fmt: skip
        self.shapes: list[tuple[int, ...]] = []

    def run(self, names: Any, inputs: dict[str, np.ndarray]) -> Any:
        self.shapes.append(inputs["ids"].shape)
        return self.session.run(names, inputs)

    def get_providers(self) -> list[str]:
        return [self.provider, "CPUExecutionProvider"]


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """An onnxruntime that has a GPU, and computes on the processor; gives what its sessions were opened with."""
    onnxruntime = pytest.importorskip("onnxruntime")
    opened: list[Any] = []
    real = onnxruntime.InferenceSession

    def session(file: Path, options: Any = None, providers: Any = None) -> Any:
        opened.append(providers)
        first = providers[0]
        made = real(file, options, providers=["CPUExecutionProvider"])
        return made if first == "CPUExecutionProvider" else _Session(made, first[0])

    monkeypatch.setattr(onnxruntime, "InferenceSession", session)
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: [GPU_PROVIDER, "CPUExecutionProvider"])
    monkeypatch.setenv("VIZSLA_RUNTIME", "onnx")
    return opened


def test_onnxruntime_runs_on_the_gpu_that_is_named(fake_gpu: list[Any], tmp_path: Path) -> None:
    """Packaged networks are in 8 bits: on a GPU their weights are floats, and texts are encoded together."""
    pytest.importorskip("onnx")
    texts = [*TEXTS, "word"]
    on_gpu: Any = parse_model("vizsla-splade", device="cuda:3")
    found, expected = weights(on_gpu, texts), weights(parse_model("vizsla-splade", device="cpu"), texts)
    assert [(GPU_PROVIDER, {"device_id": "3"})] in fake_gpu
    assert len(found[0].keys() & expected[0].keys()) > 0.8 * len(expected[0])
    running = on_gpu.network.running
    assert isinstance(running, OnnxNetwork)
    assert max(rows for rows, _ in running._session.shapes) > 1
    dense = small_dense(tmp_path)
    with opening_on("cuda:1"):
        moved: Any = replace(dense, network=Network.open(tmp_path))
    fields = [{"text": text} for text in [*texts, ""]]
    assert moved.document_embeddings(fields)[0] == pytest.approx(dense.document_embeddings(fields)[0], abs=1e-4)


def test_onnxruntime_says_what_it_cannot_run_on_a_gpu(fake_gpu: list[Any]) -> None:
    assert onnx_device("cuda") == Device("cuda")
    with pytest.raises(VizslaError, match="8 bits, which onnxruntime runs on processors only; install torch"):
        open_generator(device="cuda").generate(["dogs"])
    with pytest.raises(VizslaError, match="nothing here can run a network on mps"):
        place_of("mps")
    assert not any(provider for provider in fake_gpu if provider != ["CPUExecutionProvider"])


def test_onnxruntime_that_falls_back_to_the_processor_is_an_error() -> None:
    class FellBack:
        def get_providers(self) -> list[str]:
            return ["CPUExecutionProvider"]

    check_runs_on(FellBack(), Device("cpu"))
    with pytest.raises(VizslaError, match="onnxruntime could not start cuda:0 and would use the processor"):
        check_runs_on(FellBack(), Device("cuda"))


def test_several_processes_name_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from vizsla.training import Distributed

    assert Distributed.start("cpu").device == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert Distributed.start("cuda:1").device == torch.device("cuda:1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(VizslaError, match="name cuda, not cuda:1"):
        Distributed.start("cuda:1")


def vizsla_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "vizsla", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""})


def test_the_command_line_takes_a_device(tmp_path: Path) -> None:
    (tmp_path / "d.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents()))
    source, folder = str(tmp_path / "d.jsonl"), str(tmp_path / "i")
    made = vizsla_command("index", source, "-o", folder, "-m", MODEL, "--device", "cpu", "--workers", "2")
    assert made.returncode == 0, made.stderr
    found = vizsla_command("search", folder, "dogs that bark", "--device", "cpu", "--json")
    assert found.returncode == 0, found.stderr
    refused = vizsla_command("search", folder, "dogs", "--device", "cuda")
    assert refused.returncode == 2
    assert refused.stderr.startswith("vizsla: ")
    assert "nothing here can run a network on cuda:0" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
