"""Table 3 of the BEIR paper for the systems that are here: time of a query on CPU and GPU, and size of the index.

    python bench/table3.py cpu FOLDER --corpus corpus.jsonl --queries queries.jsonl [--documents 20000]
                                      [--system NAME=EXPRESSION[@VECTORS]]... [--reranker DIR]
    python bench/table3.py gpu FOLDER        # on a machine with a GPU; needs numpy, torch and transformers only
    python bench/table3.py table FOLDER      # the table in Markdown, with the paper's figures

`cpu` indexes the first documents of a collection once for all systems and writes `FOLDER/cpu.json`. A system is any
model expression, perhaps with a vector index: `--system "HNSW=minilm@hnsw"`. Without --system it is those of SYSTEMS.
`--reranker` adds BM25 with a cross-encoder over its first 100 documents. docT5query is BM25 over documents that have a
field `queries`, as `vizsla queries generate` writes it; where the collection has none, it is left out.

Queries are asked one at a time, from text to ids and scores, the encoding of the query included. Times are those of the
processor, so that other work on the machine disturbs little; a reranker, which uses all processors, answers sooner than
its time says. Systems take turns. The time of a query is the shortest of all rounds. A system that needs longer than
--slow seconds a query is asked fewer queries in one round.

`gpu` times networks of the same shape with random weights, in bfloat16, one query at a time, from word pieces. A dense
model then takes the product with all vectors (in 16 bits, exact) on the GPU. What a sparse or a summed model does after
encoding stays on the CPU, so its time there is added. A reranker scores 100 pairs.
"""

from __future__ import annotations

import os

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

import argparse
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import torch

    from vizsla.index import Index
    from vizsla.models import Model
    from vizsla.runs import Retriever

SYSTEMS = (
    "bm25=bm25",
    "docT5query=bm25(fields=title/text/queries)",
    "bm26=bm26",
    "bm51=bm51",
    "minilm, exact=minilm",
    "minilm, HNSW=minilm@hnsw",
    "minilm, IVF and PQ=minilm@ivf(codes=pq)",
    "hybrid=bm25 + 20 * minilm",
)
RERANKED = "bm25, reranked"
DEPTH = 100  # documents of a query that are reranked
FEW = 10  # queries that a slow system is asked
FITTED = 1000  # documents that weights are fitted to
PAPER = {
    "bm25": ("BM25", None, 20, 0.4),
    RERANKED: ("BM25+CE", 450, 6100, 0.4),
    "docT5query": ("docT5query", None, 30, 0.4),
    "minilm, exact": ("TAS-B", 14, 125, 3),
    "genq": ("GenQ", 14, 125, 3),
    "ance": ("ANCE", 20, 275, 3),
    "sparta": ("SPARTA", None, 20, 12),
    "deepct": ("DeepCT", None, 25, 0.4),
    "dpr": ("DPR", 19, 230, 3),
}
"""By our name: the paper's system, milliseconds on GPU and CPU, GB for a million documents."""


class System(NamedTuple):
    """A system to time: its name, its model, and how the model's dense vectors are searched."""

    name: str
    model: Model
    vectors: str = ""

    @classmethod
    def parse(cls, text: str) -> System:
        """A system from `NAME=EXPRESSION`, perhaps with `@VECTORS`."""
        from vizsla.errors import VizslaError
        from vizsla.models import parse_model

        name, given, expression = text.partition("=")
        if not given or not name.strip():
            raise VizslaError(f"a system is written as NAME=EXPRESSION, not {text!r}")
        model, _, vectors = expression.partition("@")
        return cls(name.strip(), parse_model(model.strip()), vectors.strip())

    def fitted(self, documents: list[dict[str, Any]]) -> System:
        """The system with its model fitted to documents, if it needs that."""
        if self.model.needs_corpus_statistics:
            return self._replace(model=self.model.fit(documents))
        return self._replace(model=self.model.fit(documents[:FITTED])) if self.model.needs_fit else self


def kind_of(model: Model) -> str:
    """lexical, learned sparse, dense or hybrid."""
    from vizsla.models import DenseComponent

    kinds = set()
    for part in model.parts:
        learned = getattr(part.component, "network", None) is not None
        is_dense = isinstance(part.component, DenseComponent)
        kinds.add("dense" if is_dense else "learned sparse" if learned else "lexical")
    return kinds.pop() if len(kinds) == 1 else "hybrid"


def shape_of(folder: Path, heads: int) -> dict[str, int]:
    """The shape of a BERT-like network."""
    from vizsla.neural.weights import read_weights

    arrays = read_weights(folder)
    layers = {name.split(".layer.")[1].split(".")[0] for name in arrays if ".layer." in name}
    inner = arrays["encoder.layer.0.intermediate.dense.bias"].shape[0]
    width = arrays["embeddings.LayerNorm.bias"].shape[0]
    return {"layers": len(layers), "width": width, "inner": inner, "heads": heads}


def shapes_of(model: Model) -> list[dict[str, int]]:
    """The shapes of the networks that read a query; those of others than BERT are left out."""
    from vizsla.models import Network

    networks = [getattr(part.component, "network", None) for part in model.parts]
    return [shape_of(n.folder, n.heads) for n in networks if isinstance(n, Network)]


def read_lines(file: Path, count: int) -> list[dict[str, Any]]:
    with file.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, count or None)]


def usable(systems: Iterable[System], documents: list[dict[str, Any]]) -> list[System]:
    """The systems that this collection has fields and enough documents for; the others are named."""
    from vizsla.engine import VectorIndex

    known = {field for document in documents[:1000] for field in document}
    kept = []
    for system in systems:
        wanted = {field for part in system.model.parts for field in getattr(part.component, "fields", ())}
        lacking = wanted - known - {"title"}
        least = getattr(VectorIndex.parse(system.vectors or "exact"), "min_documents", 0)
        if lacking:
            print(f"{system.name} is left out: no document has the field {lacking.pop()}", file=sys.stderr)
        elif len(documents) < least:
            print(f"{system.name} is left out: with fewer than {least:,} documents it is exact", file=sys.stderr)
        else:
            kept.append(system)
    return kept


def timed(ask: Callable[[str], object], queries: list[str], best: np.ndarray) -> None:
    """Ask each query once, and keep its time where it is the shortest so far."""
    for i, query in enumerate(queries):
        started = time.process_time()
        ask(query)
        best[i] = min(best[i], time.process_time() - started)


class Timing:
    """The shortest times of a system's queries, in all and for the encoding alone."""

    def __init__(self, retriever: Retriever, encode: Callable[[str], object], queries: list[str], k: int) -> None:
        self.retriever, self.encode, self.k = retriever, encode, k
        self.first = float("inf")
        for query in queries[:3]:  # the first one compiles kernels and fills caches
            started = time.process_time()
            self.search(query)
            self.first = min(self.first, time.process_time() - started)
        self.queries = queries
        self.total, self.encoding = np.full(len(queries), np.inf), np.full(len(queries), np.inf)

    def search(self, query: str) -> object:
        more = {} if hasattr(self.retriever, "reranker") else {"documents": False}
        return self.retriever.search_many([query], self.k, **more)  # type: ignore[arg-type]

    def shorten(self) -> None:
        self.queries = self.queries[:FEW]
        self.total, self.encoding = self.total[:FEW], self.encoding[:FEW]

    def round(self) -> None:
        timed(self.search, self.queries, self.total)
        timed(self.encode, self.queries, self.encoding)


def encoder_of(index: Index, model: Model) -> Callable[[str], object]:
    """What makes a query ready for the search."""

    def encode(query: str) -> object:
        with index._reading() as searcher:
            return searcher.encode([query], searcher.bind(model))

    return encode


def cpu(folder: Path, options: argparse.Namespace) -> None:
    os.environ["VIZSLA_RUNTIME"] = "onnx"  # a GPU that is here has a column of its own
    from vizsla.evaluation.systems import shared_index_model
    from vizsla.index import Index, bytes_of
    from vizsla.models import BM25, Reranker
    from vizsla.retrievers import RerankedRetriever
    from vizsla.text import Analyzer

    documents = read_lines(options.corpus, options.documents)
    queries = [query["text"] for query in read_lines(options.queries, options.asked)]
    parsed = map(System.parse, options.system or SYSTEMS)
    systems = [system.fitted(documents) for system in usable(parsed, documents)]
    if "bm25" not in [system.name for system in systems]:
        systems.insert(0, System("bm25", BM25()))
    folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    whole = Index.create(folder / "exact.index", shared_index_model(s.model for s in systems), overwrite=True)
    whole.add(documents)
    whole.commit()
    print(f"{len(documents):,} documents indexed in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    indexes = {"": whole}
    timings, facts = {}, {}
    for system in systems:
        index = indexes.get(system.vectors) or with_vectors(whole, system.vectors, folder)
        indexes[system.vectors] = index
        view = index.with_model(system.model, threads=1)
        timings[system.name] = Timing(view, encoder_of(index, system.model), queries, options.k)
        facts[system.name] = {
            "kind": kind_of(system.model), "vectors": system.vectors,
            "bytes": bytes_of(index, system.model), "shapes": shapes_of(system.model),
        }  # fmt: skip
    if options.reranker:
        bm25 = next(system.model for system in systems if system.name == "bm25")
        reranker, first = Reranker.open(str(options.reranker)), whole.with_model(bm25, threads=1)
        retriever = RerankedRetriever(first, reranker, DEPTH)
        timings[RERANKED] = Timing(retriever, lambda _: None, queries, options.k)
        shapes = [shape_of(n.folder, n.heads) for n in (getattr(reranker.network, "network", None),) if n is not None]
        facts[RERANKED] = {"kind": "reranking", "vectors": "", "bytes": facts["bm25"]["bytes"], "shapes": shapes}
    take_turns(timings, options.rounds, options.slow)
    for name, timing in timings.items():
        total, encoding = 1000 * timing.total, 1000 * timing.encoding
        facts[name] |= {"queries": len(total), "mean": total.mean(), "median": float(np.median(total))}
        facts[name] |= {"encoding": encoding.mean(), "search": (total - encoding).mean()}
        of_bm25 = 1000 * timings["bm25"].total[: len(total)]
        facts[name] |= {"ratio": total.mean() / of_bm25.mean()}
    pieces = Analyzer.parse("wordpiece").tokenizer
    lengths = [len(ids) + 2 for ids in pieces.ids(queries)]
    texts = [f"{d.get('title', '')} {d.get('text', '')}" for d in documents[:1000]]
    pair = min(512, float(np.mean([len(ids) for ids in pieces.ids(texts)])) + float(np.mean(lengths)) + 1)
    about = {"documents": len(documents), "k": options.k, "lengths": lengths, "pair": round(pair), "systems": facts}
    (folder / "cpu.json").write_text(json.dumps(about, indent=1, default=float) + "\n")
    for index in indexes.values():
        index.close()


def with_vectors(index: Index, vectors: str, folder: Path) -> Index:
    """A copy of an index whose dense vectors are searched in another way."""
    from vizsla.index import Index

    path = folder / f"{len(list(folder.glob('*.index')))}.index"
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(index.path, path)
    copied = Index.open(path)
    copied.compact(vector_index=vectors)
    return copied


def take_turns(timings: dict[str, Timing], rounds: int, slow: float) -> None:
    for timing in timings.values():
        if timing.first > slow:
            timing.shorten()
    for turn in range(rounds):
        for timing in timings.values():
            if turn == 0 or timing.first <= slow:
                timing.round()


def gpu(folder: Path) -> None:
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here")
    about = json.loads((folder / "cpu.json").read_text())
    found = {"device": torch.cuda.get_device_name(), "systems": {}}
    for name, facts in about["systems"].items():
        if not facts["shapes"] or facts["vectors"]:
            continue  # approximate vector indexes are searched on the CPU
        networks = [bert(shape) for shape in facts["shapes"]]
        if name == RERANKED:
            ids = torch.randint(1000, 30_000, (DEPTH, about["pair"]), device="cuda")
            first_stage = about["systems"]["bm25"]["mean"]
            scored = milliseconds(lambda ids=ids, network=networks[0]: network(ids).cpu(), 20)
            found["systems"][name] = {"mean": first_stage + scored}
        else:
            width = sum(shape["width"] for shape in facts["shapes"]) if facts["kind"] == "dense" else 0
            found["systems"][name] = {"mean": encoded_and_found(networks, about, width, facts["search"])}
        print(name, found["systems"][name], flush=True)
    (folder / "gpu.json").write_text(json.dumps(found, indent=1) + "\n")


def bert(shape: dict[str, int]) -> Callable[[torch.Tensor], torch.Tensor]:
    """A BERT of this shape with random weights, from ids to the first token's states."""
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=shape["width"], num_hidden_layers=shape["layers"], num_attention_heads=shape["heads"],
        intermediate_size=shape["inner"], attn_implementation="sdpa",
    )  # fmt: skip
    network = BertModel(config, add_pooling_layer=False).to("cuda", torch.bfloat16).eval()

    @torch.inference_mode()
    def encode(ids: torch.Tensor) -> torch.Tensor:
        return network(ids).last_hidden_state[:, 0]

    return encode


def encoded_and_found(
    networks: list[Callable[[torch.Tensor], torch.Tensor]], about: dict[str, Any], width: int, elsewhere: float
) -> float:
    """Milliseconds a query: its networks, then the exact product with all vectors, or the search on the CPU."""
    import torch

    vectors = torch.randn(about["documents"], width, device="cuda", dtype=torch.bfloat16) if width else None
    spent = []
    for length in about["lengths"]:
        ids = torch.randint(1000, 30_000, (1, length))

        def ask(ids: torch.Tensor = ids) -> object:
            states = torch.cat([network(ids.to("cuda")) for network in networks], 1)
            if vectors is None:
                return states.cpu()
            return (states @ vectors.T).topk(min(about["k"], len(vectors)), 1).indices.cpu()

        spent.append(milliseconds(ask, 3))
    return float(np.mean(spent)) + (0.0 if width else elsewhere)


def milliseconds(ask: Callable[[], object], rounds: int) -> float:
    """The shortest of some rounds, after one that warms up."""
    import torch

    best = float("inf")
    for _ in range(rounds + 1):
        torch.cuda.synchronize()
        started = time.perf_counter()
        ask()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 1000 * best


def table(folder: Path) -> str:
    about = json.loads((folder / "cpu.json").read_text())
    on_gpu = json.loads((folder / "gpu.json").read_text())["systems"] if (folder / "gpu.json").is_file() else {}
    ours = ["system", "kind", "CPU, ms: mean", "median", "to BM25", "GPU, ms", "index, MB", "GB for 1 M documents"]
    head = [*ours, "paper: CPU, ms", "to BM25", "GPU, ms", "GB"]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, f in about["systems"].items():
        gpu_time = f"{on_gpu[name]['mean']:.2f}" if name in on_gpu else ""
        million = f["bytes"] / about["documents"] * 1e6 / 1e9
        known = PAPER.get(name) or PAPER.get(name.lower())
        theirs = ["", "", "", ""]
        if known:
            other, their_gpu, their_cpu, size = known
            same = "" if other.lower() == name.lower() else f" ({other})"
            theirs = [f"{their_cpu:,}{same}", f"{their_cpu / 20:.1f}", str(their_gpu or ""), f"{size:g}"]
        ours = [f"{f['mean']:.2f}", f"{f['median']:.2f}", f"{f['ratio']:.1f}", gpu_time, f"{f['bytes'] / 1e6:.1f}"]
        lines.append("| " + " | ".join([name, f["kind"], *ours, f"{million:.2f}", *theirs]) + " |")
    asked = " or ".join(map(str, sorted({f["queries"] for f in about["systems"].values()}, reverse=True)))
    return "\n".join([*lines, "", f"{about['documents']:,} documents, {asked} queries, k = {about['k']}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=["cpu", "gpu", "table"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--documents", type=int, default=0, help="how many documents are taken; 0 for all")
    parser.add_argument("--asked", type=int, default=100, help="how many queries are asked")
    parser.add_argument("--system", action="append", metavar="NAME=EXPRESSION[@VECTORS]")
    parser.add_argument("--reranker", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--slow", type=float, default=0.5, help="seconds a query, above which few queries are asked")
    parser.add_argument("-k", type=int, default=100)
    options = parser.parse_args()
    if options.stage == "gpu":
        gpu(options.folder)
        return
    if options.stage == "cpu":
        if options.corpus is None or options.queries is None:
            parser.error("cpu needs --corpus and --queries")
        cpu(options.folder, options)
    print(table(options.folder))


if __name__ == "__main__":
    main()
