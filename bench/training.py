"""How fast BM26's training step is: tokens a second and TFLOP/s of gradient caching, by the size of its chunks.

    python bench/training.py [--batch 16384] [--chunks 512,2048,8192] [--steps 3] [--device cuda]

The encoder has MiniLM's shape and random weights; documents are random tokens, as long as Wikipedia passages.
Tokens are counted on both sides, padding not, and the arithmetic of both passes (forward, then forward and backward).
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from transformers import BertConfig, BertModel

from vizsla.networks import UniCoil
from vizsla.training import Crops, TokenCorpus, cached_backward, chunked, info_nce

VOCABULARY, HIDDEN, LAYERS, INNER = 30_522, 384, 6, 1536


def network(device: str) -> UniCoil:
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=12,
        intermediate_size=INNER, attn_implementation="sdpa",
    )  # fmt: skip
    return UniCoil(BertModel(config, add_pooling_layer=False), HIDDEN, VOCABULARY).to(device)


def operations(lengths: np.ndarray) -> float:
    """Of a forward pass, a multiplication and an addition each counted: the layers' matrices and attention."""
    matrices = LAYERS * (4 * HIDDEN * HIDDEN + 2 * HIDDEN * INNER)
    return float(2 * matrices * lengths.sum() + LAYERS * 4 * HIDDEN * (lengths.astype(float) ** 2).sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16_384)
    parser.add_argument("--chunks", default="512,2048,8192")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--profile", action="store_true", help="where the time of the last step goes")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")  # scores: sums of 32 bits from factors of 19
    rng = np.random.default_rng(0)
    corpus = TokenCorpus.pack(rng.integers(1000, VOCABULARY, int(n)) for n in rng.normal(135, 20, 50_000).clip(20, 256))
    crops = Crops()
    ids, offsets = crops.tensors(corpus, options.device)
    dice = torch.Generator(options.device).manual_seed(0)
    for size in map(int, options.chunks.split(",")):
        model = network(options.device)
        encode = torch.compile(model, dynamic=True) if options.compile else model
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=options.device != "cpu")

        def vectors(x: torch.Tensor, mask: torch.Tensor, encode: torch.nn.Module = encode) -> torch.Tensor:
            with torch.autocast(options.device, torch.bfloat16):
                return encode(x, mask)

        spent, tokens, work = [], 0, 0.0
        for step in range(options.steps + 1):  # the first warms up
            chosen = torch.randint(0, len(corpus), (options.batch,), generator=dice, device=options.device)
            _wait(options.device)
            started = time.perf_counter()
            sides = [crops.crop(ids, offsets, chosen, dice) for _ in range(2)]
            loss = cached_backward(vectors, [chunked(*side, size) for side in sides], info_nce)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            _wait(options.device)
            if step:
                spent.append(time.perf_counter() - started)
                lengths = torch.cat([mask.sum(1) for _, mask in sides]).cpu().numpy()
                tokens += int(lengths.sum())
                work += 4 * operations(lengths)  # forward, forward again, backward twice a forward
        seconds = sum(spent)
        print(
            f"chunks of {size}: {seconds / options.steps:.2f} s a step of {options.batch:,}, "
            f"{tokens / seconds / 1e6:.2f} M tokens/s, {work / seconds / 1e12:.1f} TFLOP/s, loss {loss.item():.2f}",
            flush=True,
        )
        if options.profile:
            with torch.profiler.profile() as seen:
                cached_backward(vectors, [chunked(*side, size) for side in sides], info_nce)
                _wait(options.device)
            print(seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=16, max_name_column_width=50))
        del model, encode, optimiser


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
