"""The masked-language stage: a head learns to name words that were taken out, before it is asked to weigh them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vizsla.networks import Splade, packed
from vizsla.training.corpus import TokenCorpus
from vizsla.training.crops import CroppedPairs, Crops
from vizsla.training.optimiser import adamw
from vizsla.training.settings import Settings
from vizsla.training.team import Team

MASK = 103
SHARE = 0.15  # of the tokens are to be named; of these 8 in 10 are masked, 1 is another token, 1 stays
_WHOLE = Crops(shortest=1.0, longest=1.0, deletion=0.0)


def train_masked(
    network: Splade,
    corpus: TokenCorpus,
    settings: Settings,
    *,
    team: Team | None = None,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> float:
    """Train an encoder and its head on whole stretches of documents; gives the last loss.

    Of the settings it takes steps, batch, chunk, rate, warmup, last_rate, decay, clip, precision, compile and seed.
    One process.
    """
    team = team or Team.assembled()
    network.to(team.device).train()
    if settings.compile:
        network.encoder.compile(dynamic=True)
    pairs = CroppedPairs(corpus, _WHOLE)
    optimiser = adamw(network, settings, team.device)
    loss = float("nan")
    for step in range(settings.steps):
        started = time.perf_counter()
        for group in optimiser.param_groups:
            group["lr"] = settings.rate_at(step)
        ((ids, mask), _) = pairs.sides(settings.batch, settings.seed, step, team.device).texts
        dice = torch.Generator(team.device).manual_seed(settings.seed * 1_000_003 + step)
        asked = mask & (ids != _WHOLE.start) & (ids != (_WHOLE.end or 0))
        asked &= torch.rand(ids.shape, generator=dice, device=team.device) < SHARE
        shown = masked(ids, asked, network.vocabulary, dice)
        right = packed(ids, mask, settings.chunk)
        wanted = packed(asked.long(), mask, settings.chunk)
        count = int(asked.sum())
        total = torch.zeros((), device=team.device)
        for chunk, answers, places in zip(
            packed(shown, mask, settings.chunk).chunks, right.chunks, wanted.chunks, strict=True
        ):
            with torch.autocast(team.device.type, torch.bfloat16, enabled=settings.halves(team.device)):
                chosen = places.ids.bool()
                logits = network.head(network.encoder(chunk)[chosen])
            part = F.cross_entropy(logits.float(), answers.ids[chosen], reduction="sum") / max(count, 1)
            part.backward()  # type: ignore[no-untyped-call]
            total += part.detach()
        torch.nn.utils.clip_grad_norm_(network.parameters(), settings.clip)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        loss = float(total)
        if report is not None and team.leads:
            rate = int(mask.sum()) / (time.perf_counter() - started)
            report({"step": step + 1, "masked_loss": loss, "rate": settings.rate_at(step), "tokens_per_second": rate})
    network.eval()
    return loss


def masked(ids: Tensor, asked: Tensor, vocabulary: int, dice: torch.Generator) -> Tensor:
    """What the encoder is shown in place of the tokens it is asked for."""
    chance = torch.rand(ids.shape, generator=dice, device=ids.device)
    others = torch.randint(0, vocabulary, ids.shape, generator=dice, device=ids.device)
    shown = torch.where(asked & (chance < 0.8), MASK, ids)
    return torch.where(asked & (chance >= 0.9), others, shown)
