"""Networks run by onnxruntime give what torch gives: to rounding in 32 bits, closely in 8."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from vizsla import VizslaError
from vizsla.errors import InputError
from vizsla.neural.chunks import packed
from vizsla.neural.encoder import Padded
from vizsla.neural.heads.splade import Splade, TiedHead, low_rank
from vizsla.neural.heads.unicoil import UniCoil
from vizsla.neural.network import write_network
from vizsla.neural.onnx_graph import Graph, quantise, save_graph
from vizsla.neural.onnx_network import OnnxNetwork, batches, open_graph
from vizsla.neural.weights import NETWORK, SHARES, WEIGHTS, copy_weights, read_arrays, read_weights, share, write_arrays

VOCABULARY, LONGEST, SPECIAL_TOKENS = 200, 40, (0, 1)
CLOSE = 0.08
"""The error of 8 bits as a part of the spread of the weights: half of this, or several times as much with a bug."""


def texts(seed: int, count: int = 12, longest: int = 30) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(1, VOCABULARY, rng.integers(1, longest + 1)) for _ in range(count)]


def padded(rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """With a token that would speak, if padding did."""
    lengths = np.array([len(row) for row in rows])
    ids = np.full((len(rows), lengths.max()), 7)
    for row, text in zip(ids, rows, strict=True):
        row[: len(text)] = text
    return ids, lengths


def ragged(rows: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.concatenate([np.zeros(0, np.int64), *rows]), np.cumsum([0, *map(len, rows)])


def small_network(kind: str) -> UniCoil | Splade:
    """Random, with weights large enough that all parts matter."""
    torch.manual_seed(3)
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
        max_position_embeddings=LONGEST,
    )  # fmt: skip
    bert = transformers.BertModel(config, add_pooling_layer=False)
    encoder = Padded(bert)
    head = TiedHead(bert.embeddings.word_embeddings, 64, shift=0.3)
    network = UniCoil(encoder, special_tokens=SPECIAL_TOKENS) if kind == "unicoil" else Splade(encoder, head)
    with torch.no_grad():
        for name, values in network.named_parameters():
            if name.startswith("weigh.") or "decoder" in name:
                continue
            if values.ndim == 2:
                values.normal_(0, 0.15)
            else:
                values.add_(torch.randn_like(values) * 0.1)
    return network.eval()


def arrays(network: UniCoil | Splade) -> dict[str, np.ndarray]:
    prefixes = ("encoder.model.", "head.")
    named = {name: values.detach().numpy().copy() for name, values in network.named_parameters()}
    return {next((n[len(p) :] for p in prefixes if n.startswith(p)), n): values for n, values in named.items()}


def by_torch(network: UniCoil | Splade, row: np.ndarray) -> np.ndarray:
    ids = torch.from_numpy(row)[None]
    with torch.inference_mode():
        return network(packed(ids, torch.ones_like(ids).bool(), 100).chunks[0]).numpy().ravel()


Opener = Callable[..., OnnxNetwork]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Opener:
    """Networks by kind and precision, each written once."""
    made: dict[tuple[str, str], Path] = {}

    def network(kind: str, precision: str, threads: int = 1) -> OnnxNetwork:
        if (kind, precision) not in made:
            folder = made[kind, precision] = tmp_path_factory.mktemp("network")
            weights = arrays(small_network(kind))
            sample = texts(99, 30)
            write_network(
                folder,
                weights,
                kind,
                attention_heads=4,
                precision=precision,
                special_tokens=SPECIAL_TOKENS,
                sample=sample,
            )
        return OnnxNetwork(made[kind, precision], threads)

    return network


@pytest.mark.parametrize("kind", ["unicoil", "splade"])
def test_in_32_bits_a_network_gives_what_torch_gives(kind: str, opened: Opener) -> None:
    network, rows = small_network(kind), texts(1)
    found = opened(kind, "float32").run(*padded(rows))
    assert found.std() > 0.05
    for row, made in zip(rows, found, strict=True):
        expected = by_torch(network, row)
        assert np.allclose(made[: len(expected)], expected, rtol=0, atol=1e-4)
        assert kind == "splade" or (made[len(row) :] == 0).all()


@pytest.mark.parametrize("kind", ["unicoil", "splade"])
def test_in_8_bits_a_network_gives_nearly_that(kind: str, opened: Opener) -> None:
    network, rows, small = small_network(kind), texts(2, 30), opened(kind, "int8")
    found = np.concatenate([small.run(row[None], np.array([len(row)])).ravel() for row in rows])
    expected = np.concatenate([by_torch(network, row) for row in rows])
    error = np.sqrt(np.mean((found - expected) ** 2)) / expected.std()
    assert CLOSE / 20 < error < CLOSE


@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 1e-4), ("int8", 2 * CLOSE)])
@pytest.mark.parametrize("kind", ["unicoil", "splade"])
def test_padding_changes_nothing(kind: str, precision: str, tolerance: float, opened: Opener) -> None:
    """In 8 bits only what follows from a scale that is shared with the neighbours."""
    network, rows = opened(kind, precision), texts(3)
    alone = [network.run(row[None], np.array([len(row)]))[0] for row in rows]
    together = [made[: len(a)] for a, made in zip(alone, network.run(*padded(rows)), strict=True)]
    a, b = np.concatenate(alone), np.concatenate(together)
    assert np.sqrt(np.mean((a - b) ** 2)) < tolerance * a.std()


@given(seed=st.integers(0, 1000), outputs=st.integers(1, 20), inputs=st.sampled_from([1, 7, 64, 133]))
def test_8_bit_products_are_exact_on_every_processor(seed: int, outputs: int, inputs: int) -> None:
    """Also where large weights of one sign are neighbours, which overflows 16 bits on processors without VNNI."""
    rng = np.random.default_rng(seed)
    matrix = rng.choice([-1.0, 1.0], (outputs, inputs)) * rng.choice([1.0, 0.99, 0.3], (outputs, inputs))
    values, scale = quantise(matrix)
    assert (np.abs(values * scale[:, None] - matrix) <= scale[:, None] * 0.501).all()
    graph = Graph()
    graph.store("table", values), graph.store("scale", np.ones(outputs, np.float32))
    parts = graph("DynamicQuantizeLinear", "rows", outputs=3)
    product = graph(
        "MatMulIntegerToFloat", parts[0], graph("Transpose", "table", perm=[1, 0]), parts[1], "scale", parts[2]
    )
    rows = rng.integers(250, 256, (9, inputs)).astype(np.float32)
    rows[0, 0], rows[1] = 0, rng.integers(0, 256, inputs)
    rows[2, 0] = 255
    with TemporaryDirectory() as folder:
        places = write_arrays(Path(folder) / WEIGHTS, graph.stored)
        inputs_of = {"rows": (np.float32, [9, inputs])}
        save_graph(
            Path(folder) / NETWORK, graph, places, inputs_of, [(product, "product", np.float32, [9, outputs])], {}
        )
        found = open_graph(Path(folder), NETWORK).run(None, {"rows": rows})[0]
    assert np.allclose(found, rows @ values.T, rtol=1e-6)


def test_a_table_of_low_rank_gives_nearly_the_same_products() -> None:
    rng = np.random.default_rng(0)

    def error_and_rank(states: np.ndarray) -> tuple[float, int]:
        table, with_ones = rng.normal(size=(300, 96)), np.column_stack([states, np.ones(500)])
        basis, narrow, shift = low_rank(table, with_ones.T @ with_ones)
        expected = states @ table.T
        return (states @ basis @ narrow.T + shift - expected).var() / expected.var(), narrow.shape[1]

    few = rng.normal(size=(500, 20)) @ rng.normal(size=(20, 96)) + rng.normal(size=96) * 5
    error, rank = error_and_rank(few)
    assert rank < 96
    assert error < 0.001
    error, rank = error_and_rank(rng.normal(size=(500, 96)))
    assert rank == 96
    assert error < 1e-6


def test_a_network_of_low_rank_is_written_narrower(tmp_path: Path) -> None:
    """It gives what torch gives, to 8 bits, and its arrays are read back as they were."""
    network = small_network("splade")
    with torch.no_grad():
        network.head.dense.weight[20:] = network.head.dense.weight[:1]
        network.head.dense.bias[20:] = network.head.dense.bias[:1]
    write_network(tmp_path, arrays(network), "splade", attention_heads=4, sample=texts(99, 30))
    assert read_arrays(tmp_path)["low_rank.terms"].shape == (VOCABULARY, 32)
    assert set(read_weights(tmp_path)) == set(arrays(network))
    found = OnnxNetwork(tmp_path)
    rows = texts(2, 30)
    vectors = np.concatenate([found.run(row[None], np.array([len(row)])).ravel() for row in rows])
    expected = np.concatenate([by_torch(network, row) for row in rows])
    assert np.sqrt(np.mean((vectors - expected) ** 2)) < CLOSE * expected.std()


def test_weights_are_read_back_to_half_a_step(tmp_path: Path) -> None:
    original = arrays(small_network("splade"))
    write_network(tmp_path / "exact", original, "splade", attention_heads=4, precision="float32")
    exact = read_weights(tmp_path / "exact")
    assert {name: values.shape for name, values in exact.items()} == {n: v.shape for n, v in original.items()}
    assert all(np.array_equal(exact[name], values) for name, values in original.items())
    write_network(tmp_path / "small", original, "splade", attention_heads=4, sample=texts(99))
    small = read_weights(tmp_path / "small")
    safetensors = pytest.importorskip("safetensors.numpy")
    raw = safetensors.load_file(tmp_path / "small" / WEIGHTS)
    assert any(name.endswith(".divisors") for name in raw)
    for name, values in original.items():
        assert small[name].dtype == np.float32
        if name + ".scale" in raw:
            assert raw[name].dtype == np.int8
            step = raw[name + ".scale"][:, None] / raw.get(name + ".divisors", np.float32(1))
            assert (np.abs(small[name] - values) <= step * 0.501).all()
        else:
            assert values.ndim == 1 or len(values) <= 2
            assert np.array_equal(small[name], values)


def test_a_network_may_leave_out_what_another_has(tmp_path: Path) -> None:
    weights = arrays(small_network("unicoil"))
    for name, shift in (("one", 0.0), ("other", 0.5)):
        changed = {**weights, "weigh.bias": weights["weigh.bias"] + shift}
        write_network(tmp_path / name, changed, "unicoil", attention_heads=4, special_tokens=SPECIAL_TOKENS)
    ids, lengths = np.arange(5, 17).reshape(2, 6), np.array([6, 4])
    expected = OnnxNetwork(tmp_path / "other").run(ids, lengths)
    whole = (tmp_path / "other" / WEIGHTS).read_bytes()
    share(tmp_path / "other", tmp_path / "one")
    assert (tmp_path / "other" / WEIGHTS).stat().st_size < len(whole) / 10
    assert np.array_equal(OnnxNetwork(tmp_path / "other").run(ids, lengths), expected)
    assert np.array_equal(read_weights(tmp_path / "other")["weigh.bias"], weights["weigh.bias"] + np.float32(0.5))
    (tmp_path / "copy").mkdir()
    copy_weights(tmp_path / "other", tmp_path / "copy")
    assert (tmp_path / "copy" / WEIGHTS).read_bytes() == whole
    for content in ("{", '{"network": "../one", "arrays": ["none"]}', "[]"):
        (tmp_path / "other" / SHARES).write_text(content)
        with pytest.raises(InputError, match="which arrays are shared"):
            OnnxNetwork(tmp_path / "other")


def test_a_sample_keeps_channels_that_run_high_from_drowning_the_others(tmp_path: Path) -> None:
    network = small_network("unicoil")
    with torch.no_grad():
        for layer in network.encoder.model.encoder.layer:
            layer.attention.output.LayerNorm.bias[5] = 60.0
            layer.intermediate.dense.weight[:, 5] *= 0.02
            layer.output.dense.bias[5] = -60.0  # so that the layer after is none the wiser
    rows = texts(5, 30)
    expected = np.concatenate([by_torch(network, row) for row in rows])
    errors = []
    for name, sample in (("without", []), ("with", texts(99))):
        write_network(
            tmp_path / name, arrays(network), "unicoil", attention_heads=4, special_tokens=SPECIAL_TOKENS, sample=sample
        )
        found = OnnxNetwork(tmp_path / name, 1).weights(*ragged(rows))
        errors.append(np.sqrt(np.mean((found - expected) ** 2)) / expected.std())
    assert errors[1] < CLOSE
    assert errors[1] < errors[0] / 2


@given(
    lengths=st.lists(st.one_of(st.just(1), st.integers(0, LONGEST)), max_size=12),
    budget=st.sampled_from([0, 1, 30, 1000]),
    threads=st.sampled_from([1, 3]),
)
def test_ragged_texts_come_back_in_their_order(lengths: list[int], budget: int, threads: int, opened: Opener) -> None:
    rng = np.random.default_rng(sum(lengths))
    rows = [rng.integers(1, VOCABULARY, n) for n in lengths]
    ids, offsets = ragged(rows)
    network = opened("unicoil", "float32", threads)
    found = network.weights(ids, offsets, budget)
    assert found.shape == ids.shape
    assert (found[np.isin(ids, SPECIAL_TOKENS)] == 0).all()
    vectors = opened("splade", "float32", threads)
    words, weights, starts = vectors.vectors(ids, offsets, budget)
    assert len(starts) == len(rows) + 1
    for i, row in enumerate(rows):
        made = np.zeros(VOCABULARY, np.float32)
        made[words[starts[i] : starts[i + 1]]] = weights[starts[i] : starts[i + 1]]
        if len(row):
            alone = network.run(row[None], np.array([len(row)]))[0]
            assert np.allclose(found[offsets[i] : offsets[i + 1]], alone, atol=1e-4)
            assert np.allclose(made, vectors.run(row[None], np.array([len(row)]))[0], atol=1e-4)
        else:
            assert not made.any()


@given(lengths=st.lists(st.integers(0, 50), max_size=60), budget=st.integers(0, 300))
def test_batches_hold_each_text_once_and_keep_to_their_budget(lengths: list[int], budget: int) -> None:
    sizes = np.array(lengths, np.int64)
    made = batches(sizes, budget)
    assert sorted(text for batch in made for text in batch) == np.flatnonzero(sizes).tolist()
    assert all(len(batch) == 1 or len(batch) * sizes[batch].max() <= budget for batch in made)


def test_texts_alone_do_not_depend_on_their_neighbours_or_on_threads(opened: Opener) -> None:
    rows = texts(7, 20)
    all_of_them = opened("unicoil", "int8", 3).weights(*ragged(rows))
    alone = [opened("unicoil", "int8").weights(*ragged([row])) for row in rows]
    assert np.array_equal(all_of_them, np.concatenate(alone))


def test_what_a_network_cannot_read_is_said_in_a_sentence(opened: Opener) -> None:
    network = opened("unicoil", "float32")
    with pytest.raises(InputError, match="a text has 41 tokens, and this network reads at most 40"):
        network.weights(*ragged([np.ones(LONGEST + 1, np.int64)]))
    for wrong in (VOCABULARY, -1):
        with pytest.raises(InputError, match="a token id is outside of this network's vocabulary of 200"):
            network.weights(*ragged([np.array([3, wrong])]))
    with pytest.raises(VizslaError, match="this network has the head unicoil, and only sparta or splade gives vectors"):
        network.vectors(*ragged(texts(1)))
    lacking = {k: v for k, v in arrays(small_network("splade")).items() if k != "decoder.bias"}
    with pytest.raises(InputError, match=r"the weights of this network lack decoder\.bias"):
        write_network("nowhere", lacking, "splade")


def test_missing_and_damaged_files_are_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no network here \(no network\.onnx\)"):
        OnnxNetwork(tmp_path)
    with pytest.raises(InputError, match="these weights cannot be read"):
        read_weights(tmp_path)
    write_network(tmp_path, arrays(small_network("unicoil")), "unicoil", attention_heads=4)
    network, weights = (tmp_path / NETWORK).read_bytes(), (tmp_path / WEIGHTS).read_bytes()
    for file, good in ((tmp_path / NETWORK, network), (tmp_path / WEIGHTS, weights)):
        for bad in (good[: len(good) // 2], b""):
            file.write_bytes(bad)
            with pytest.raises(InputError, match="this network is damaged or of another version") as error:
                OnnxNetwork(tmp_path)
            assert "\n" not in str(error.value)
        file.unlink()
        with pytest.raises(InputError, match=f"no {file.name}"):
            OnnxNetwork(tmp_path)
        file.write_bytes(good)
    for bad in (weights[: len(weights) // 2], weights[:20], b"", b"\x00" * 100, b"\xff" * 100):
        (tmp_path / WEIGHTS).write_bytes(bad)
        with pytest.raises(InputError, match="this is not a weight file, or it is damaged"):
            read_weights(tmp_path)


def test_without_onnxruntime_the_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(VizslaError, match="needs onnxruntime; install it with: pip install onnxruntime"):
        OnnxNetwork(tmp_path)


def test_heads_are_looked_up_without_torch() -> None:
    code = (
        "import sys; sys.modules['torch'] = sys.modules['onnx'] = sys.modules['onnxruntime'] = None\n"
        "from vizsla.neural.heads import HEADS\n"
        "print({entry.name: entry.make().gives for entry in HEADS if entry.help})"
    )
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    expected = {"augmenter": "augmentations", "cross": "scores", "dense": "embeddings", "splade": "vectors"}
    expected |= {"sparta": "vectors", "unicoil": "weights", "deepct": "weights", "colbert": "token_vectors"}
    expected |= {"coil": "coil_vectors"}
    assert ast.literal_eval(found) == expected
    with pytest.raises(VizslaError, match="unknown network head 'spalde'; did you mean 'splade'"):
        write_network("nowhere", {}, "spalde")
