"""The loop: batches in, a trained network out."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from vizsla.errors import VizslaError
from vizsla.networks import Batch, Chunk, PackedBert, Padded, forward_operations, packed
from vizsla.training.batches import Pairs, Sides
from vizsla.training.caching import cached_backward
from vizsla.training.checkpoints import has_checkpoint, load_checkpoint, save_checkpoint
from vizsla.training.dev import Encode
from vizsla.training.losses import contrast, flops, inner_products, margins, quadratic_rise
from vizsla.training.optimiser import adamw
from vizsla.training.settings import Settings
from vizsla.training.team import Team


class Dev(Protocol):
    """What tells how good a network is while it is trained."""

    @property
    def name(self) -> str: ...

    def figures(self, encode: Encode, assemble: Any, device: torch.device) -> dict[str, float]: ...


FREE = ("steps", "keep", "evaluate", "patience", "chunk", "kept", "compile")
"""Settings that a run may go on with changed; with other ones it would be another run."""
Report = Callable[[dict[str, Any]], None]
Objective = Callable[["Trainer", list[Batch], tuple[list[Tensor], ...], Sides, dict[str, Any]], Tensor]
"""The loss of what was made of a batch; what there is to tell of it goes into the last argument."""


def told_apart(
    trainer: Trainer, sides: list[Batch], made: tuple[list[Tensor], ...], drawn: Sides, seen: dict[str, Any]
) -> Tensor:
    """Each query's document must score higher than all others of the batch; few terms, if that is asked for."""
    settings, network, team = trainer.settings, trainer.network, trainer.team
    if settings.loss == "binary":
        raise VizslaError("vectors are not learnt by loss=binary, which is for cross-encoders; try contrast or margins")
    own = [network.vectors(m, side) for m, side in zip(made, sides, strict=True)]
    queries, *documents = (team.gathered(v) for v in own)
    scores = inner_products(queries, torch.cat(documents) if len(documents) > 1 else documents[0])
    if settings.temperature != 1:
        scores = scores / settings.temperature
    if settings.loss == "margins":
        loss = margins(scores, drawn.forbidden)
    else:
        loss = contrast(scores, symmetric=settings.symmetric, forbidden=drawn.forbidden)
    with torch.no_grad():
        right = scores.argmax(1) == torch.arange(len(scores), device=scores.device)
        seen["accuracy"] = right.float().mean()
        if network.kind != "dense":
            seen["query_terms"] = (queries > 0).sum(1).float().mean()
            seen["document_terms"] = (documents[0] > 0).sum(1).float().mean()
    if settings.flops_queries or settings.flops_documents:
        share = quadratic_rise(trainer.outcome.step, settings.flops_rise)
        costs = settings.flops_queries * flops(queries) + settings.flops_documents * flops(torch.cat(documents))
        loss = loss + share * costs
        seen["flops"] = (share * costs).detach()
    return loss


@dataclass
class Outcome:
    """What came of a run: the step it ended with, the best figures of the dev sets and the step they were seen at."""

    step: int = 0
    best: float = float("-inf")
    best_step: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)


class Trainer:
    """A network in training.

    `folder`: where checkpoints and the log go; without one, nothing is written. After a run with dev sets the network
    has the parameters of its best evaluation, the mean over all figures deciding.
    """

    def __init__(
        self,
        network: Any,
        pairs: Pairs,
        settings: Settings,
        *,
        dev: Sequence[Dev] = (),
        folder: str | Path | None = None,
        team: Team | None = None,
        report: Report | None = None,
        objective: Objective | None = None,
    ) -> None:
        self.network, self.pairs, self.settings, self.dev = network, pairs, settings, dev
        self.report, self.objective = report, objective or told_apart
        self.team = team or Team.assembled()
        self.folder = Path(folder) if folder is not None else None
        self.network.to(self.team.device)
        self.team.agree(self.network)
        self.random = any(isinstance(m, nn.Dropout) and m.p > 0 for m in network.modules())
        if settings.compile and self.random:
            raise VizslaError("compiled code throws other dice in its second pass; set dropout to 0 or compile to no")
        if settings.compile:
            for encoder in (m for m in network.modules() if isinstance(m, PackedBert | Padded)):
                encoder.compile(dynamic=True)
        self.optimiser = adamw(network, settings, self.team.device)
        self.outcome = Outcome()
        self._best: dict[str, Tensor] = {}
        self._misses = 0

    def run(self, *, resume: bool = False) -> Outcome:
        """Train to the last step, or until the dev sets say that it gets no better."""
        if resume:
            self._resume()
        self.network.train()
        while self.outcome.step < self.settings.steps:
            line = self.step()
            step = self.outcome.step
            if self.dev and (step % self.settings.evaluate == 0 or step == self.settings.steps):
                line |= self._evaluate()
            self._tell(line)
            if self.folder is not None and self.team.leads and step % self.settings.keep == 0:
                self._keep()
            if self.settings.patience and self._misses >= self.settings.patience:
                break
        if self._best:
            self.network.load_state_dict(self._best, strict=False)
        self.network.eval()
        return self.outcome

    def step(self) -> dict[str, Any]:
        """One step of the optimiser; gives what there is to tell of it."""
        settings, step, device = self.settings, self.outcome.step, self.team.device
        started = time.perf_counter()
        torch.manual_seed((settings.seed * 1_000_003 + step) * self.team.size + self.team.rank)
        for group in self.optimiser.param_groups:
            group["lr"] = settings.rate_at(step)
        drawn = self.pairs.sides(settings.batch, settings.seed, step, device)
        shares = [[self.team.share(part) for part in side] for side in drawn.texts]
        seen: dict[str, Any] = {}
        with self._memory_told():
            sides = [packed(ids, mask, settings.chunk, min(i, 1)) for i, (ids, mask) in enumerate(shares)]
            loss = cached_backward(
                self.encode,
                sides,
                lambda *made: self.objective(self, sides, made, drawn, seen),
                random=self.random,
                kept=settings.kept,
            )
            self.team.add_up(self.network.parameters())
            length = torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.clip)
            self.optimiser.step()
            self.optimiser.zero_grad(set_to_none=True)
        self.outcome.step += 1
        seen |= {"step": self.outcome.step, "loss": loss, "rate": settings.rate_at(step), "gradient": length}
        line = {name: value.item() if isinstance(value, Tensor) else value for name, value in seen.items()}
        seconds = time.perf_counter() - started
        lengths = torch.cat([c.starts.diff() for side in sides for c in side.chunks]).cpu().numpy()
        once = [c.starts.diff() for c in [c for side in sides for c in side.chunks][: settings.kept]]
        operations = 4 * forward_operations(self.network.encoder, lengths)  # forward, again, and backward for two
        if once:  # these were not encoded again
            operations -= forward_operations(self.network.encoder, torch.cat(once).cpu().numpy())
        line["tokens_per_second"] = lengths.sum().item() * self.team.size / seconds
        line["tflops"] = operations * self.team.size / seconds / 1e12
        return line

    @property
    def assemble(self) -> Any:
        """What a dev set needs to put together what was made of chunks."""
        return getattr(self.network, "vectors", None) or self.network.augmented

    def encode(self, chunk: Chunk) -> Tensor:
        with torch.autocast(self.team.device.type, torch.bfloat16, enabled=self.settings.halves(self.team.device)):
            return self.network(chunk)  # type: ignore[no-any-return]

    def _evaluate(self) -> dict[str, float]:
        self.network.eval()
        figures: dict[str, float] = {}
        for dev in self.dev:
            figures |= dev.figures(self.encode, self.assemble, self.team.device)
        self.network.train()
        mean = sum(figures.values()) / len(figures)
        if mean > self.outcome.best:
            self.outcome.best, self.outcome.best_step, self.outcome.figures = mean, self.outcome.step, figures
            self._best = {n: p.detach().clone() for n, p in self.network.named_parameters()}
            self._misses = 0
        else:
            self._misses += 1
        return figures

    def _tell(self, line: dict[str, Any]) -> None:
        self.outcome.log.append(line)
        if self.team.leads:
            if self.report is not None:
                self.report(line)
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                with (self.folder / "log.jsonl").open("a") as file:
                    file.write(json.dumps(line) + "\n")

    def _keep(self) -> None:
        assert self.folder is not None
        told = {
            "step": self.outcome.step, "best": self.outcome.best, "best_step": self.outcome.best_step,
            "figures": self.outcome.figures, "misses": self._misses, "settings": self.settings.as_data(),
            "dev": [d.name for d in self.dev],
        }  # fmt: skip
        save_checkpoint(self.folder, self.network, self.optimiser, told, self._best)

    def _resume(self) -> None:
        if self.folder is None or not has_checkpoint(self.folder):
            raise VizslaError(f"there is no checkpoint to go on from in {self.folder}")
        told, self._best = load_checkpoint(self.folder, self.network, self.optimiser)
        before = told["settings"] | {"dev": told["dev"]}
        now = self.settings.as_data() | {"dev": [d.name for d in self.dev]}
        other = next((n for n in now if n not in FREE and before.get(n) != now[n]), None)
        if other is not None:
            raise VizslaError(f"the run began with {other} {before.get(other)}, not {now[other]}; go on with the same")
        self.outcome = Outcome(told["step"], told["best"], told["best_step"], told["figures"])
        self._misses = told["misses"]

    @contextmanager
    def _memory_told(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError:
            raise VizslaError(
                f"the device has too little memory for chunks of {self.settings.chunk:,} tokens in a batch of "
                f"{self.settings.batch:,}; try half, as in --set chunk={self.settings.chunk // 2}"
            ) from None
