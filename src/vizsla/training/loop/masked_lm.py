"""The masked-language-model stage, in which a new SPLADE or SPARTA head learns to predict masked words."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vizsla.neural.chunks import packed
from vizsla.neural.heads.sparta import Sparta
from vizsla.neural.heads.splade import Splade
from vizsla.neural.lazy_torch import F, torch
from vizsla.training.loop.distributed import Distributed
from vizsla.training.loop.trainer import adamw
from vizsla.training.settings import TrainingSettings
from vizsla.training.sources.pairs import CroppedPairs, Crops
from vizsla.training.sources.token_corpus import MASK, TokenCorpus

if TYPE_CHECKING:
    from torch import Tensor

SHARE = 0.15  # of tokens are predicted; of these 80% are masked, 10% replaced by a random token, 10% left unchanged
_WHOLE_WINDOWS = Crops(min_fraction=1.0, max_fraction=1.0, deletion_rate=0.0)


def train_masked_lm(
    network: Splade | Sparta,
    corpus: TokenCorpus,
    settings: TrainingSettings,
    *,
    distributed: Distributed | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> float:
    """Train an encoder and its head to predict masked tokens; returns the last loss.

    Every process trains on whole batches by itself. Dev sets and checkpoints are not used.
    """
    distributed = distributed or Distributed.start()
    device = distributed.device
    network.to(device).train()
    if settings.compile:
        network.encoder.compile(dynamic=True)
    pairs = CroppedPairs(corpus, _WHOLE_WINDOWS)
    optimizer = adamw(network, settings, device)
    loss = float("nan")
    for step in range(settings.steps):
        started = time.perf_counter()
        learning_rate = settings.learning_rate_at(step)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate
        ((ids, mask), _) = pairs.batch(settings.batch_size, settings.seed, step, device).texts
        loss = _accumulate_gradients(network, ids, mask, step, settings)
        torch.nn.utils.clip_grad_norm_(network.parameters(), settings.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if report is not None and distributed.is_main:
            speed = int(mask.sum()) / (time.perf_counter() - started)
            report({"step": step + 1, "masked_loss": loss, "learning_rate": learning_rate, "tokens_per_second": speed})
    network.eval()
    return loss


def _accumulate_gradients(
    network: Splade | Sparta, ids: Tensor, mask: Tensor, step: int, settings: TrainingSettings
) -> float:
    """Add the gradients of one batch, chunk by chunk; returns its loss."""
    device, tokens = ids.device, settings.tokens_per_chunk
    rng = torch.Generator(device).manual_seed(settings.seed * 1_000_003 + step)
    predicted = mask & (ids != _WHOLE_WINDOWS.cls_id) & (ids != (_WHOLE_WINDOWS.sep_id or 0))
    predicted &= torch.rand(ids.shape, generator=rng, device=device) < SHARE
    inputs = masked_inputs(ids, predicted, network.vocabulary, rng)
    chunks = (packed(rows, mask, tokens).chunks for rows in (inputs, ids, predicted.long()))
    count, total = int(predicted.sum()), torch.zeros((), device=device)
    for chunk, labels, places in zip(*chunks, strict=True):
        with torch.autocast(device.type, torch.bfloat16, enabled=settings.uses_bfloat16(device)):
            chosen = places.ids.bool()
            logits = network.head(network.encoder(chunk)[chosen])
        part = F.cross_entropy(logits.float(), labels.ids[chosen], reduction="sum") / max(count, 1)
        part.backward()  # type: ignore[no-untyped-call]
        total += part.detach()
    return float(total)


def masked_inputs(ids: Tensor, predicted: Tensor, vocabulary: int, rng: torch.Generator) -> Tensor:
    """The input tokens: those to predict are mostly masked or replaced."""
    chance = torch.rand(ids.shape, generator=rng, device=ids.device)
    random_tokens = torch.randint(0, vocabulary, ids.shape, generator=rng, device=ids.device)
    inputs = torch.where(predicted & (chance < 0.8), MASK, ids)
    return torch.where(predicted & (chance >= 0.9), random_tokens, inputs)
