"""Queries for documents: Vizsla's generator beside `generate` of transformers, on the same checkpoint.

    python bench/generation.py CHECKPOINT DOCUMENTS [--count 64] [--queries 40] [--batches 8,32] [--max-tokens 48]
        [--threads N] [--fixed]

DOCUMENTS: JSON lines with title and text. Both draw from the 10 likeliest tokens, in the same precision. transformers
is given the documents sorted by length, in batches of each size; the best of these counts. Prints documents a second,
the mean tokens of a query, and the ratio. A generator in 8 bits that onnxruntime runs, on N threads, stands beside
transformers with the same weights in 32-bit floats, which is all it can do with them. `--fixed`: no token ends a query,
so that all have as many tokens as they may.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from itertools import islice
from typing import Any, cast

import numpy as np

from vizsla.datasets import read_documents
from vizsla.models import field_text
from vizsla.models.generator import CheckpointGenerator, Sampling, open_generator
from vizsla.neural.onnx_generator import OnnxGenerator

REPEATS = 2  # the faster run counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("documents")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--queries", type=int, default=40)
    parser.add_argument("--batches", default="8,32")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--fixed", action="store_true")
    options = parser.parse_args()
    generator = open_generator(options.checkpoint)
    assert isinstance(generator, CheckpointGenerator)
    documents = islice(read_documents(options.documents), options.count)
    texts = [field_text(document.content, ("title", "text")) for document in documents]
    sampling = Sampling(texts=options.queries, max_tokens=options.max_tokens)
    inputs, uniform = generator.checkpoint.inputs(texts), sampling.uniform([str(i) for i in range(len(texts))])
    written: list[list[list[int]]] = []
    without_torch = isinstance(generator.running, OnnxGenerator)
    if without_torch and options.threads:
        generator.running.threads = options.threads
    if options.fixed:
        generator.running.ends = generator.running.ends * 0 - 1

    def own() -> None:
        written[:] = generator.running.generate(inputs, uniform, top_k=10, top_p=1.0, temperature=1.0)

    ours = len(texts) / seconds(own, generator)
    lengths = [len(tokens) for rows in written for tokens in rows]
    print(f"vizsla: {ours:.2f} documents a second, {np.mean(lengths):.1f} tokens a query", flush=True)
    other = generator
    if without_torch:
        os.environ["VIZSLA_RUNTIME"] = "torch"
        other = cast(CheckpointGenerator, open_generator(options.checkpoint))
    best = 0.0
    for size in map(int, options.batches.split(",")):
        theirs = len(texts) / seconds(lambda size=size: peer(other, inputs, size, sampling), other)  # type: ignore[misc]
        best = max(best, theirs)
        print(f"transformers, batches of {size}: {theirs:.2f} documents a second", flush=True)
    print(f"ratio: {ours / best:.1f}")


def peer(generator: CheckpointGenerator, inputs: list[np.ndarray], size: int, sampling: Sampling) -> None:
    """transformers' own `generate`, inputs padded on the left where a causal model reads them."""
    import torch

    running = generator.running
    order = sorted(inputs, key=len)
    for first in range(0, len(order), size):
        part = order[first : first + size]
        width = max(map(len, part))
        ids = torch.zeros(len(part), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(part):
            place = slice(0, len(tokens)) if running.seq2seq else slice(width - len(tokens), width)
            ids[row, place], mask[row, place] = torch.from_numpy(tokens), 1
        with torch.inference_mode():
            running.model.generate(
                input_ids=ids.to(running.device), attention_mask=mask.to(running.device), do_sample=True,
                top_k=sampling.top_k, num_return_sequences=sampling.texts, max_new_tokens=sampling.max_tokens,
                pad_token_id=generator.checkpoint.ends[0],
            )  # fmt: skip


def seconds(call: Callable[[], Any], generator: CheckpointGenerator) -> float:
    """The time of the fastest of some calls."""
    times = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        call()
        if not isinstance(generator.running, OnnxGenerator) and generator.running.device.type == "cuda":
            import torch

            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times)


if __name__ == "__main__":
    main()
