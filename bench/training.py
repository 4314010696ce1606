"""How fast BM26 trains: tokens a second and TFLOP/s of our step, beside sentence-transformers' cached loss.

    python bench/training.py [--batch 16384] [--chunks 65536,131072] [--peer 128,256,512,1024,2048] [--corpus FOLDER]

The encoder has MiniLM's shape and random weights. Texts are all 64 tokens long, so that nobody pads, and dropout is 0
for all. The peer gets the same network as a module of its own, in bfloat16 and with scaled-dot-product attention; once
with uniCOIL's vectors and once with mean-pooled ones of 384 numbers, whose scores cost it next to nothing. With
--ragged crops are as BM26's are, and the peer pads them to the longest of a batch, as its collator does. Arithmetic is
counted for the encoder alone: forward, then forward and backward.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from itertools import product

import numpy as np
import torch
from transformers import BertConfig, BertModel

from vizsla.errors import VizslaError
from vizsla.neural.encoder import encoder_of, forward_operations
from vizsla.neural.heads.unicoil import UniCoil
from vizsla.training import CroppedPairs, Crops, SparseObjective, TokenCorpus, Trainer, TrainingSettings

VOCABULARY, TOKENS = 30_522, 62  # and two special ones
CROPS = Crops(window=256, min_fraction=TOKENS / 256, max_fraction=TOKENS / 256, deletion_rate=0.0)


def bert() -> BertModel:
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, attn_implementation="sdpa",
    )  # fmt: skip
    return BertModel(config, add_pooling_layer=False)


class PaddedUniCoil(torch.nn.Module):
    """uniCOIL as a module of sentence-transformers would be written: padded rows, a scatter by maximum."""

    def __init__(self, pooled: bool) -> None:
        super().__init__()
        self.bert, self.weigh, self.pooled = bert(), torch.nn.Linear(384, 1), pooled
        torch.nn.init.constant_(self.weigh.bias, 0.5)

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        ids, mask = features["input_ids"], features["attention_mask"]
        states = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        if self.pooled:
            made = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        else:
            weights = torch.relu(self.weigh(states).squeeze(-1)) * mask
            made = weights.new_zeros(len(ids), VOCABULARY).scatter_reduce(1, ids, weights, "amax")
        return {**features, "sentence_embedding": made}


def timed(name: str, step: Callable[[int], None], work: float, tokens: int, steps: int) -> float:
    """Seconds a step, the median, after one that warms up."""
    spent = []
    for i in range(steps + 1):
        _wait()
        started = time.perf_counter()
        step(i)
        _wait()
        spent.append(time.perf_counter() - started)
    seconds = float(np.median(spent[1:]))
    rates = f"{tokens / seconds / 1e6:5.2f} M tokens/s {work / seconds / 1e12:4.0f} TFLOP/s"
    others = f"first {spent[0]:.1f} s, spread {min(spent[1:]):.2f} to {max(spent[1:]):.2f}"
    print(f"{name:<56} {seconds:6.2f} s a step {rates} ({others})", flush=True)
    return seconds


def ours(pairs: CroppedPairs, batch: int, chunk: int, compiled: bool, kept: int, device: str) -> Trainer:
    network = UniCoil(encoder_of(bert().to(device)))
    settings = TrainingSettings(
        batch_size=batch, tokens_per_chunk=chunk, compile=compiled, kept_chunks=kept, warmup_steps=10
    )
    return Trainer(network, pairs, settings, objective=SparseObjective())


def peer(pairs: CroppedPairs, batch: int, mini: int, pooled: bool, device: str) -> Callable[[int], None]:
    from sentence_transformers import SentenceTransformer, util
    from sentence_transformers.losses import CachedMultipleNegativesRankingLoss

    model = SentenceTransformer(modules=[PaddedUniCoil(pooled)], device=device)
    loss_of = CachedMultipleNegativesRankingLoss(
        model, scale=1.0, similarity_fct=util.dot_score, mini_batch_size=mini, show_progress_bar=False
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device == "cuda")

    def step(i: int) -> None:
        sides = pairs.batch(batch, 0, i, torch.device(device)).texts
        features = [{"input_ids": ids, "attention_mask": mask.long()} for ids, mask in sides]
        with torch.autocast(device, torch.bfloat16):
            loss = loss_of(features, None)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=16_384)
    parser.add_argument("--chunks", default="65536,131072,262144")
    parser.add_argument("--peer", default="", help="mini-batches to try the peer with, as in 128,256,512,1024,2048")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--ragged", action="store_true", help="crops of BM26's lengths")
    parser.add_argument("--kept", default="0", help="chunks that are not encoded twice, as in 8,12")
    parser.add_argument("--plain", action="store_true", help="not compiled")
    parser.add_argument("--corpus", help="a packed corpus; otherwise random tokens")
    parser.add_argument("--profile", action="store_true", help="where the time of a step goes")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    if options.corpus:
        corpus = TokenCorpus.open(options.corpus)
    else:
        rng = np.random.default_rng(0)
        corpus = TokenCorpus.pack(rng.integers(1000, VOCABULARY, (max(options.batch, 20_000), 256)))
    pairs = CroppedPairs(corpus, Crops() if options.ragged else CROPS)
    sides = pairs.batch(options.batch, 0, 0, torch.device(device)).texts
    lengths = torch.cat([mask.sum(1) for _, mask in sides]).cpu().numpy()
    tokens, work = int(lengths.sum()), 4 * forward_operations(encoder_of(bert()), lengths)
    best: dict[str, float] = {}
    for chunk, kept in product(*(map(int, values.split(",")) for values in (options.chunks, options.kept))):
        trainer = ours(pairs, options.batch, chunk, not options.plain, kept, device)
        name = f"vizsla, chunks of {chunk:,} tokens, {kept} kept{'' if options.plain else ', compiled'}"
        try:
            seconds = timed(name, lambda _, t=trainer: t.step() and None, work, tokens, options.steps)
        except VizslaError as e:
            print(f"{name}: {e}", flush=True)
            continue
        best["vizsla"] = min(best.get("vizsla", np.inf), seconds)
    if options.profile:
        with torch.profiler.profile() as seen:
            trainer.step()
        print(seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=24, max_name_column_width=60))
    for pooled in (False, True) if options.peer else ():
        for mini in map(int, options.peer.split(",")):
            kind = "mean-pooled" if pooled else "uniCOIL"
            name = f"sentence-transformers, {kind}, mini-batches of {mini:,}"
            try:
                seconds = timed(name, peer(pairs, options.batch, mini, pooled, device), work, tokens, options.steps)
            except torch.OutOfMemoryError:
                print(f"{name}: out of memory", flush=True)
                continue
            best[kind] = min(best.get(kind, np.inf), seconds)
    for kind in ("uniCOIL", "mean-pooled"):
        if kind in best:
            print(
                f"vizsla is {best[kind] / best['vizsla']:.2f} times as fast as sentence-transformers' best with {kind}"
            )


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
