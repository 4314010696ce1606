"""Generators without torch: what onnxruntime writes is what torch writes, in 32 bits; in 8 bits it is close."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Cli
from test_generation import PASSAGES, _slow
from tiny_checkpoints import tiny_seq2seq, torch, transformers
from vizsla import VizslaError
from vizsla.errors import InputError
from vizsla.models import generator as generators
from vizsla.models.generator import CheckpointGenerator, Sampling, export_generator, open_generator
from vizsla.neural.checkpoints.bart import read_quantised
from vizsla.neural.checkpoints.generator import GeneratorCheckpoint
from vizsla.neural.onnx_generator import DECODER, ENCODER, FILES, OnnxGenerator, _Sampling, _States
from vizsla.neural.torch_generator import next_tokens
from vizsla.neural.weights import WEIGHTS, read_checkpoint

pytestmark = pytest.mark.usefixtures("in_floats")

KEYS = list("abcde")
ENDS = list(range(3, 400, 6))  # so that texts of a model at random end, too


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_seq2seq(tmp_path_factory.mktemp("bart") / "floats", "bart")


@pytest.fixture(scope="module")
def exact(floats: Path) -> CheckpointGenerator:
    """The same network for onnxruntime, in 32 bits."""
    export_generator(floats, floats.parent / "exact", precision="float32")
    opened = open_generator(floats.parent / "exact")
    assert isinstance(opened, CheckpointGenerator)
    return opened


@pytest.fixture(scope="module")
def small(floats: Path) -> CheckpointGenerator:
    """In 8 bits."""
    export_generator(floats, floats.parent / "small", sample=PASSAGES)
    opened = open_generator(floats.parent / "small")
    assert isinstance(opened, CheckpointGenerator)
    return opened


@pytest.fixture(scope="module")
def model(floats: Path) -> Any:
    return transformers.AutoModelForSeq2SeqLM.from_pretrained(floats).eval()


def logits(generator: CheckpointGenerator, targets: np.ndarray) -> np.ndarray:
    """[passages, tokens, vocabulary] what follows the tokens of one text for each passage."""
    states = _States(generator.running, generator.checkpoint.inputs(PASSAGES))
    everything = _Sampling(0, 1.0, 1.0)
    return np.stack([states.step(tokens, everything)[0] for tokens in targets.T], 1)


def torch_logits(model: Any, generator: CheckpointGenerator, targets: np.ndarray) -> np.ndarray:
    found = []
    with torch.inference_mode():
        for ids, own in zip(generator.checkpoint.inputs(PASSAGES), targets, strict=True):
            given = torch.from_numpy(ids)[None], torch.from_numpy(own)[None]
            found.append(model(input_ids=given[0], decoder_input_ids=given[1]).logits[0].numpy())
    return np.stack(found)


def targets() -> np.ndarray:
    return np.random.default_rng(1).integers(5, 300, (len(PASSAGES), 7))


def test_keys_values_and_logits_are_those_of_torch(exact: CheckpointGenerator, model: Any) -> None:
    states = _States(exact.running, exact.checkpoint.inputs(PASSAGES))
    with torch.inference_mode():
        for number, ids in enumerate(exact.checkpoint.inputs(PASSAGES)):
            encoded = model.get_encoder()(torch.from_numpy(ids)[None]).last_hidden_state[0]
            for layer, decoder in enumerate(model.get_decoder().layers):
                keys = decoder.encoder_attn.k_proj(encoded).view(len(ids), 4, 8).transpose(0, 1)
                own = states._sources[f"source_keys_{layer}"][number, :, : len(ids)]
                np.testing.assert_allclose(own, keys.numpy(), atol=2e-4)
    np.testing.assert_allclose(logits(exact, targets()), torch_logits(model, exact, targets()), atol=2e-3)


def test_greedy_texts_are_those_of_transformers(exact: CheckpointGenerator, model: Any) -> None:
    written = exact.generate(PASSAGES, Sampling(texts=1, temperature=0, max_tokens=12))
    model.generation_config.forced_eos_token_id = None  # BART's, at the last token
    for passage, own in zip(PASSAGES, written, strict=True):
        ids = torch.from_numpy(exact.checkpoint.inputs([passage])[0])[None]
        tokens = model.generate(ids, do_sample=False, max_new_tokens=12, attention_mask=torch.ones_like(ids))[0, 1:]
        assert own == exact.checkpoint.texts([[t for t in tokens.tolist() if t not in exact.checkpoint.ends]])


def test_sampled_texts_follow_the_distribution_of_the_model(exact: CheckpointGenerator, model: Any) -> None:
    inputs, uniform = exact.checkpoint.inputs(PASSAGES), Sampling(texts=4, max_tokens=7, seed=3).uniform(KEYS)
    opened = OnnxGenerator(exact.checkpoint.folder, exact.checkpoint.start, ENDS)
    written = opened.generate(inputs, uniform, top_k=5, top_p=1.0, temperature=1.0)
    assert len({len(text) for texts in written for text in texts}) > 2, "texts end at different times"
    for row, numbers, texts in zip(inputs, uniform, written, strict=True):
        for text, drawn in zip(texts, numbers, strict=True):
            assert text == _slow(model, True, row, drawn, ENDS)


@pytest.mark.parametrize(
    ("top_k", "top_p", "temperature"), [(5, 1.0, 0.7), (0, 1.0, 1.0), (0, 0.8, 1.3), (9, 0.6, 1.0)]
)
def test_tokens_are_drawn_as_torch_draws_them(top_k: int, top_p: float, temperature: float) -> None:
    rng = np.random.default_rng(0)
    scores, uniform = rng.normal(0, 2, (300, 40)).astype(np.float32), rng.random(300, np.float32)
    wanted = next_tokens(torch.from_numpy(scores), torch.from_numpy(uniform), top_k, top_p, temperature)
    sampling = _Sampling(top_k, top_p, temperature)
    numbers = np.broadcast_to(np.arange(40), scores.shape)
    if count := sampling.count(40):
        numbers = np.argsort(-scores, 1)[:, :count]
        scores = np.take_along_axis(scores, numbers, 1)
    assert (sampling.tokens(scores, numbers, uniform) == wanted.numpy()).mean() > 0.99  # sums are rounded otherwise


def test_8_bits_are_close(small: CheckpointGenerator, floats: Path, model: Any) -> None:
    right, ours = torch_logits(model, small, targets()), logits(small, targets())
    assert 0.001 < np.std(ours - right) / np.std(right) < 0.05
    arrays, stored = read_checkpoint(floats), read_quantised(small.checkpoint)
    assert set(stored) == {name for name in arrays if name != "final_logits_bias"}
    for name, values in stored.items():
        used = slice(2, None) if "embed_positions" in name else slice(None)
        wanted = arrays[name][used]
        step = 2 * np.abs(wanted).max(-1, keepdims=True) / 127 if wanted.ndim == 2 else 1e-6  # two neighbours add up
        assert (np.abs(values[used] - wanted) <= 0.51 * step + 1e-6).all(), name


def test_texts_depend_on_their_key_alone(small: CheckpointGenerator, monkeypatch: pytest.MonkeyPatch) -> None:
    sampling = Sampling(texts=6, max_tokens=10)
    monkeypatch.setattr(small.running, "ends", np.array(ENDS))
    first = small.generate(PASSAGES, sampling, KEYS)
    assert small.generate(PASSAGES[::-1], sampling, KEYS[::-1]) == first[::-1]
    assert [small.generate([text], sampling, [key])[0] for text, key in zip(PASSAGES, KEYS, strict=True)] == first
    assert small.generate(PASSAGES, Sampling(texts=6, max_tokens=10, seed=1), KEYS) != first
    assert small.generate([], sampling) == []
    monkeypatch.setattr(small.running, "threads", 3)
    monkeypatch.setattr("vizsla.neural.onnx_generator._TEXTS", 6)
    assert small.generate(PASSAGES, sampling, KEYS) == first


def test_torch_runs_it_too(exact: CheckpointGenerator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIZSLA_RUNTIME", "torch")
    again = open_generator(exact.checkpoint.folder)
    assert isinstance(again, CheckpointGenerator)
    assert not isinstance(again.running, OnnxGenerator)
    assert again.digest == exact.digest
    sampling = Sampling(texts=3, max_tokens=8)
    assert again.generate(PASSAGES, sampling, KEYS) == exact.generate(PASSAGES, sampling, KEYS)


def test_it_runs_where_torch_and_transformers_are_not_installed(small: CheckpointGenerator) -> None:
    code = f"""
import json, sys
for name in ("torch", "transformers", "onnx", "safetensors", "huggingface_hub"):
    sys.modules[name] = None
from vizsla.models.generator import Sampling, open_generator
opened = open_generator({str(small.checkpoint.folder)!r})
print(json.dumps(opened.generate({PASSAGES!r}, Sampling(texts=2, max_tokens=6))))
"""
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(run.stdout) == small.generate(PASSAGES, Sampling(texts=2, max_tokens=6))


def test_what_is_missing_or_damaged_is_named(floats: Path, tmp_path: Path) -> None:
    for name in FILES:
        export_generator(floats, tmp_path / name)
        file = tmp_path / name / name
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(InputError, match="this network is damaged or of another version"):
            open_generator(file.parent).generate(["x"])
        file.unlink()
        with pytest.raises(InputError, match=rf"there is no network here \(no {name}\)"):
            open_generator(file.parent).generate(["x"])
    export_generator(floats, tmp_path / "bare")
    (tmp_path / "bare" / "config.json").write_text('{"architectures": ["BartForConditionalGeneration"]}')
    with pytest.raises(InputError, match="names no decoder_start_token_id"):
        open_generator(tmp_path / "bare").generate(["x"])


def test_what_it_cannot_do_is_refused(small: CheckpointGenerator, floats: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="texts of 1025 tokens were requested, but this generator writes at most 1024"):
        small.generate(["x"], Sampling(texts=1, max_tokens=1025))
    for ids, problem in (
        (np.ones(1025, np.int64), "an input has 1025 tokens, and this generator reads at most 1024"),
        (np.array([400]), "a token of an input is outside of this generator's vocabulary of 400"),
    ):
        with pytest.raises(InputError, match=problem):
            small.running.generate([ids], np.zeros((1, 1, 1)), top_k=1, top_p=1.0, temperature=1.0)
    with pytest.raises(InputError, match="only a BART with gelu and one table of words runs without torch"):
        export_generator(tiny_seq2seq(tmp_path / "t5"), tmp_path / "out")
    scaled = tmp_path / "scaled"
    model = transformers.BartForConditionalGeneration.from_pretrained(floats, scale_embedding=True)
    model.save_pretrained(scaled)
    (scaled / "tokenizer.json").write_bytes((floats / "tokenizer.json").read_bytes())
    with pytest.raises(InputError, match="only a BART with gelu"):
        export_generator(scaled, tmp_path / "out")


def test_a_bias_of_the_logits_is_kept(floats: Path, tmp_path: Path) -> None:
    model = transformers.BartForConditionalGeneration.from_pretrained(floats)
    model.final_logits_bias[0, 9] = 1000
    model.save_pretrained(tmp_path / "biased")
    (tmp_path / "biased" / "tokenizer.json").write_bytes((floats / "tokenizer.json").read_bytes())
    export_generator(tmp_path / "biased", tmp_path / "small")
    checkpoint = GeneratorCheckpoint.read(tmp_path / "small")
    assert read_quantised(checkpoint)["final_logits_bias"][0, 9] == 1000
    opened = OnnxGenerator(tmp_path / "small", checkpoint.start, checkpoint.ends)
    written = opened.generate([np.array([2, 7, 3])], np.zeros((1, 1, 3)), top_k=1, top_p=1.0, temperature=0)
    assert written == [[[9, 9, 9]]]


def test_the_generator_of_the_package_is_found_by_its_name(
    small: CheckpointGenerator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    monkeypatch.setattr(generators, "SHIPPED", tmp_path)
    with pytest.raises(VizslaError, match=r"not installed; get them \(30 MB\) with: pip install 'vizsla\[doc2query\]'"):
        open_generator("doc2query-small")
    package = tmp_path / "packages" / "vizsla_doc2query_small"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "model").symlink_to(small.checkpoint.folder)
    with monkeypatch.context() as installed:
        installed.syspath_prepend(package.parent)
        assert open_generator("doc2query-small").digest == small.digest
    (tmp_path / "doc2query-small").symlink_to(small.checkpoint.folder)
    assert open_generator().digest == small.digest
    source = tmp_path / "documents.jsonl"
    source.write_text('{"_id": "d1", "text": "Dogs point at birds."}\n')
    code, _, err = cli(
        "queries", "generate", source, "-o", tmp_path / "expanded.jsonl", "--queries", 2, "--max-tokens", 5
    )
    assert code == 0, err
    written = json.loads((tmp_path / "expanded.jsonl").read_text())["queries"]
    assert written == small.generate(["Dogs point at birds."], Sampling(texts=2, max_tokens=5), ["d1"])[0]


def test_opening_needs_all_of_the_network(small: CheckpointGenerator, monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(small.running, OnnxGenerator)
    assert {ENCODER, DECODER, WEIGHTS} < {file.name for file in small.checkpoint.folder.iterdir()}
    assert not (small.checkpoint.folder / "model.safetensors").exists()
    monkeypatch.setattr("vizsla.neural.device.find_spec", lambda _: None)
    with pytest.raises(VizslaError, match="needs onnxruntime; install it with: pip install onnxruntime"):
        open_generator(small.checkpoint.folder).generate(["x"])
