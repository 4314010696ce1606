"""The memory that training and evaluation take on a corpus of paper scale, and the line through several sizes.

    python bench/paper_scale.py CORPUS FOLDER --sizes 250000,1000000 [--report FILE]

For each size this makes a data set of so many passages (see bench/passages.py) with 2,000 train queries and 100 test
queries, and runs each of these steps in a process of its own:

- **prepare**: a dense model's training data from judged queries: texts as token ids, BM25's hard negatives;
- **train**: three steps from these data with a small network, from opening the data to writing the model;
- **dev**: a dev set: texts as token ids, and BM25's vectors of all passages;
- **lambda**: the training data of SPAR's Lambda: sentences of the passages with BM25's ranking (4,000 sentences);
- **bm25**: `vizsla eval` with BM25: index, search, evaluate;
- **vectors**: `vizsla eval` with random vectors of 64 dimensions in place of a dense model's.

The peak of a step is what the kernel says (`ru_maxrss`): memory that the process has taken, and pages of files that it
has mapped, which the kernel takes back when others need the room. The first alone, sampled, stands beside it. The
line through the sizes gives the bytes for each further passage; from it follows what 8.8 and 21 million need.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import vizsla.text
from vizsla import DenseComponent
from vizsla.models import MODELS, Fields, field_text

CHAINS = (("prepare", "train"), ("dev",), ("lambda",), ("bm25",), ("vectors",))
"""The steps; one that needs what another leaves stands behind it."""
STEPS = tuple(step for chain in CHAINS for step in chain)
PAPERS = {"MS MARCO": 8_841_823, "Wikipedia (DPR)": 21_015_324}
TRAIN, TEST = 2000, 100  # queries
_WIDTH = 64


@MODELS.register("random-vectors", help="A random vector for each text, in place of a dense model's.")
@dataclass(frozen=True)
class RandomVectors(DenseComponent):
    """Vectors that depend on the length of a text and its first letters: cheap to make, costly to hold."""

    fields: tuple[str, ...] = ("text",)
    namespace: str = "random"
    name: str = "random-vectors"

    kind: ClassVar[str] = "bench-random-vectors"

    @property
    def dimensions(self) -> int:
        return _WIDTH

    def document_embeddings(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        return self.query_embeddings([field_text(d, self.fields) for d in documents])

    def query_embeddings(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        seeds = [int.from_bytes(text[:8].encode()[:8].ljust(8, b" "), "little") ^ len(text) for text in texts]
        phases = np.array(seeds, np.uint64)[:, None] * np.arange(1, _WIDTH + 1, dtype=np.uint64)
        vectors = np.sin((phases >> np.uint64(40)).astype(np.float32))
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.ones(len(texts), np.bool_)


def make(corpus: str, folder: Path, count: int) -> None:
    """A data set of made passages; queries are eight neighbouring words of passages far apart."""
    from passages import Words, texts_of

    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    step, splits = max(count // (TRAIN + 2 * TEST), 1), dict[str, list[str]](train=[], test=[], dev=[])
    words = Words(texts_of(corpus))
    with get_context("fork").Pool(initializer=_copies_of, initargs=(words,)) as pool:
        copies = pool.imap(_copy, range(-(-count // len(words))))
        texts = islice((text for copy in copies for text in copy), count)
        _write(texts, folder, step, splits)


_words: Any = None  # of the process that makes a copy


def _copies_of(words: Any) -> None:
    global _words
    _words = words


def _copy(number: int) -> list[str]:
    from passages import GROWTH, real

    return list(_words.copy(number, GROWTH) if number else real(_words))


def _write(texts: Iterable[str], folder: Path, step: int, splits: dict[str, list[str]]) -> None:
    with (folder / "corpus.part").open("w") as file, (folder / "queries.jsonl").open("w") as queries:
        for i, text in enumerate(texts):
            file.write(f'{{"_id": "p{i * 7919 % 99_999_989}", "text": {json.dumps(text, ensure_ascii=False)}}}\n')
            if i % step == 0 and i // step < TRAIN + 2 * TEST:
                words, number = text.split(), i // step
                query = " ".join(words[len(words) // 3 :][:8])
                split = "test" if number % 22 == 20 else "dev" if number % 22 == 21 else "train"
                queries.write(json.dumps({"_id": f"q{number}", "text": query}) + "\n")
                splits[split].append(f"q{number}\tp{i * 7919 % 99_999_989}\t1\n")
    for split, lines in splits.items():
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
    (folder / "corpus.part").rename(folder / "corpus.jsonl")


def run(step: str, data: Path, output: Path) -> None:
    """One step, in this process."""
    if step in ("bm25", "vectors"):
        from vizsla.cli import main as vizsla

        model = "bm25" if step == "bm25" else "random-vectors"
        sys.argv = ["vizsla", "eval", str(data), "--model", model, "--split", "test", "--json"]
        vizsla()
        return
    from vizsla.datasets import BeirDataset
    from vizsla.training import Trainer, TrainingInputs, load_training_recipe
    from vizsla.training.sources.dev_set import dev_set

    network = tiny_network(data.parent / "tiny-bert")
    changes = [f"network.base_model={network}", "training.steps=3", "training.batch_size=16"]
    dataset = BeirDataset.open(data)
    if step == "lambda":
        recipe = load_training_recipe("lambda").with_changes([*changes, f"data.max_sentences={2 * TRAIN}"])
        inputs = TrainingInputs(dataset.documents())
    else:
        recipe = load_training_recipe("dpr").with_changes([*changes, "data.negatives=bm25"])
        inputs = TrainingInputs(datasets=[dataset])
    kind, folder = recipe.make(), output / "training"
    base = kind.load_base()
    if step == "dev":
        dev_set(dataset, base.analyzer).save(output)
        return
    if step != "train":
        kind.prepare(inputs, base, folder)
        return
    opened = kind.open_data(folder)  # dev sets are left out: to encode all passages takes days, whatever the memory
    trainer = Trainer(
        kind.build_network(base, folder), opened.pairs, kind.settings.training, objective=kind.objective()
    )
    trainer.run()
    kind.write(trainer.network, base, folder, output)


def tiny_network(folder: Path) -> Path:
    """A BERT of two small layers with random weights, in transformers' layout."""
    from transformers import BertConfig, BertModel

    if not (folder / "config.json").exists():
        config = BertConfig(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, intermediate_size=128)
        BertModel(config).save_pretrained(folder)
        words = vizsla.text.__path__[0]
        (folder / "tokenizer.json").write_bytes(Path(words, "data", "bert-uncased.json").read_bytes())
    return folder


def tree(pid: int) -> Iterator[int]:
    """A process and all that it has started."""
    yield pid
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                yield from tree(int(child))
    except OSError:
        return


def held(pid: int) -> tuple[int, int]:
    """The bytes in memory of a process and its children: all, and without pages of mapped files."""
    total = files = 0
    for one in tree(pid):
        try:
            lines = dict(line.split(":", 1) for line in Path(f"/proc/{one}/status").read_text().splitlines())
        except OSError:
            continue
        total += 1024 * int(lines.get("VmRSS", "0").split()[0])
        files += 1024 * int(lines.get("RssFile", "0").split()[0])
    return total, total - files


def measure(step: str, data: Path, output: Path) -> dict[str, float]:
    """The peak of memory of a step in bytes, what of it is no mapped file, and its seconds."""
    started, sampled = time.perf_counter(), [0, 0]
    command = [sys.executable, __file__, "--step", step, str(data), str(output)]
    log = data.parent / f"{data.name}-{step}.log"
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, env=os.environ | {"VIZSLA_CACHE": str(output)})
        done = threading.Event()

        def watch() -> None:
            while not done.wait(0.1):
                sampled[:] = map(max, sampled, held(process.pid))

        watcher = threading.Thread(target=watch)
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        done.set()
        watcher.join()
    if status:
        raise SystemExit(f"{step} failed; see {log}\n{log.read_text()[-2000:]}")
    peak = max(1024 * usage.ru_maxrss, sampled[0])
    return {"peak": peak, "held": sampled[1], "seconds": time.perf_counter() - started}


def line(sizes: Sequence[int], values: Sequence[float]) -> tuple[float, float]:
    """The start of the line through some points, and its slope."""
    slope, start = np.polyfit(sizes, values, 1)
    return float(start), float(slope)


def report(found: dict[int, dict[str, dict[str, float]]]) -> str:
    """The peaks, and the line through them, as a table."""
    sizes = sorted(found)
    heads = [
        *(f"{n / 1e6:g} M" for n in sizes),
        "start",
        "bytes a passage",
        *(f"{n / 1e6:.1f} M" for n in PAPERS.values()),
    ]
    lines = ["| step | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for step in STEPS:
        have = [n for n in sizes if step in found[n]]
        if not have:
            continue
        for what, name in (("peak", step), ("held", "… without mapped files")):
            values = [found[n][step][what] for n in have]
            cells = [f"{found[n][step][what] / 1e9:.2f} GB" if n in have else "–" for n in sizes]
            if len(have) > 1:
                start, slope = line(have, values)
                cells += [
                    f"{start / 1e9:.2f} GB",
                    f"{slope:.0f}",
                    *(f"{(start + slope * n) / 1e9:.1f} GB" for n in PAPERS.values()),
                ]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="real passages that others are made of, as JSON lines")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sizes", default="250000,1000000")
    parser.add_argument("--steps", default=",".join(STEPS))
    parser.add_argument("--report", type=Path, help="a file for the figures; those in it already are kept")
    parser.add_argument("--jobs", type=int, default=1, help="steps that run at a time")
    parser.add_argument("--step", choices=[*STEPS, "make"], help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.step == "make":
        make(o.corpus, o.folder, int(o.folder.name.rpartition("-")[2]))
        return
    if o.step:
        run(o.step, Path(o.corpus), o.folder)
        return
    found: dict[int, dict[str, dict[str, float]]] = {}
    if o.report and o.report.is_file():
        found = {int(n): steps for n, steps in json.loads(o.report.read_text()).items()}
    lock, wanted = threading.Lock(), o.steps.split(",")

    def measured(size: int, chain: Sequence[str]) -> None:
        for step in (step for step in chain if step in wanted):
            output = o.folder / f"run-{size}-{chain[0]}"
            output.mkdir(parents=True, exist_ok=True)
            figures = measure(step, o.folder / f"passages-{size}", output)
            with lock:
                found.setdefault(size, {})[step] = figures
                print(f"{size:,} {step}: peak {figures['peak'] / 1e6:,.0f} MB, {figures['held'] / 1e6:,.0f} MB without "
                      f"mapped files, {figures['seconds']:.0f} s", file=sys.stderr, flush=True)  # fmt: skip
                if o.report:
                    o.report.write_text(json.dumps(found, indent=1))

    sizes = [int(size) for size in o.sizes.split(",")]
    with ThreadPoolExecutor(o.jobs) as pool:
        tasks = []
        for size in sizes:
            data = o.folder / f"passages-{size}"
            if not (data / "corpus.jsonl").exists():  # in a process of its own: children inherit a parent's peak
                subprocess.run([sys.executable, __file__, "--step", "make", o.corpus, str(data)], check=True)
            tasks += [pool.submit(measured, size, chain) for chain in CHAINS]
        for task in tasks:
            task.result()
    print(report(found))


if __name__ == "__main__":
    main()
