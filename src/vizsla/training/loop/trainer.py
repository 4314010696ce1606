"""The training loop: batches in, a trained network out; gradient caching, the optimizer and checkpoints."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vizsla.errors import InputError, VizslaError
from vizsla.neural.chunks import Batch, Chunk, packed
from vizsla.neural.encoder import PackedBert, Padded, forward_operations
from vizsla.neural.lazy_torch import nn, no_grad, torch
from vizsla.plain_data import parse_json
from vizsla.training.loop.distributed import Distributed
from vizsla.training.loop.objectives import ContrastiveObjective, Objective, Step
from vizsla.training.settings import TrainingSettings, keys_of
from vizsla.training.sources.dev_set import Dev
from vizsla.training.sources.pairs import BatchSource, TrainingBatch
from vizsla.training.sources.refresh import NegativesRefresh

if TYPE_CHECKING:
    from torch import Tensor


class _RandomState:
    """The state of the random number generators of the CPU and of a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.cpu = torch.get_rng_state()
        self.on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.on_device is not None:
            torch.cuda.set_rng_state(self.on_device, self.device)


def cached_backward(
    encode: Callable[[Chunk], Tensor],
    sides: Sequence[Batch],
    loss_of: Callable[..., Tensor],
    *,
    random: bool = True,
    kept_chunks: int = 0,
) -> Tensor:
    """Accumulate the gradients of a loss over all outputs of a batch; returns the loss.

    `loss_of` gets one argument per side: the outputs of `encode` for its chunks. `random`: whether encoding is
    random (dropout). `kept_chunks`: this many chunks keep their activations and are not encoded a second time.
    """
    outputs: list[list[Tensor]] = []
    with_activations: list[Tensor | None] = []
    states: list[_RandomState | None] = []
    for side in sides:
        side_outputs = []
        for chunk in side.chunks:
            states.append(_RandomState(chunk.ids.device) if random else None)
            with torch.set_grad_enabled(len(with_activations) < kept_chunks):
                output = encode(chunk)
            with_activations.append(output if output.requires_grad else None)
            side_outputs.append(output.detach().requires_grad_())
        outputs.append(side_outputs)
    loss = loss_of(*outputs)
    loss.backward()  # type: ignore[no-untyped-call]
    after = _RandomState(loss.device) if random else None
    chunks = [chunk for side in sides for chunk in side.chunks]
    gradients = [output.grad for side_outputs in outputs for output in side_outputs]
    for i, (chunk, gradient, state) in enumerate(zip(chunks, gradients, states, strict=True)):
        first, with_activations[i] = with_activations[i], None  # so that its memory is freed after its backward pass
        if first is None and state is not None:
            state.restore()
        output = encode(chunk) if first is None else first
        if output.requires_grad:  # without parameters there is no gradient, as for queries that are plain word pieces
            torch.autograd.backward(output, gradient)
    if after is not None:
        after.restore()
    return loss.detach()


def adamw(network: nn.Module, settings: TrainingSettings, device: torch.device) -> torch.optim.AdamW:
    """AdamW over all trainable parameters. Weight decay is for matrices only, not for biases, norms and single weights.

    >>> groups = adamw(nn.Linear(3, 2), TrainingSettings(weight_decay=0.1), torch.device("cpu")).param_groups
    >>> [([tuple(p.shape) for p in group["params"]], group["weight_decay"]) for group in groups]
    [([(2, 3)], 0.1), ([(2,)], 0.0)]
    """
    trainable = [p for p in network.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in trainable if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, settings.learning_rate, (settings.beta1, settings.beta2), settings.epsilon, fused=device.type == "cuda"
    )


CHECKPOINT, START, LOG = "checkpoint.safetensors", "start.safetensors", "log.jsonl"


def save_start(folder: Path, network: nn.Module) -> None:
    """Write the parameters that the loop begins with, for other runs that begin with the same."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({n: p.detach().cpu().contiguous() for n, p in network.named_parameters()}, folder / START)


@no_grad
def load_start(folder: Path, network: nn.Module) -> None:
    """Give a network the parameters that `save_start` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / START, "pt") as tensors:
            for name, parameter in network.named_parameters():
                parameter.copy_(tensors.get_tensor(name))
    except (SafetensorError, RuntimeError) as e:
        raise InputError(f"this is not the initial network of this run ({e})", file=str(folder / START)) from None


def save_checkpoint(
    folder: Path,
    network: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: dict[str, Any],
    best: Mapping[str, Tensor],
) -> None:
    """Write parameters, optimizer state, the best parameters so far, and plain data about the run (`state`).

    The old checkpoint stays until the new one is complete.
    """
    from safetensors.torch import save_file

    tensors = {f"network.{n}": p.detach().cpu().contiguous() for n, p in network.named_parameters()}
    for name, parameter in network.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{key}.{name}"] = torch.as_tensor(value).detach().cpu().contiguous()
    tensors |= {f"best.{name}": value.cpu().contiguous() for name, value in best.items()}
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / (CHECKPOINT + ".partial")
    save_file(tensors, partial, metadata={"state": json.dumps(state)})
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(folder / CHECKPOINT)


def has_checkpoint(folder: Path) -> bool:
    """Whether a folder has a checkpoint to resume from."""
    return (folder / CHECKPOINT).is_file()


def load_checkpoint(
    folder: Path, network: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Restore network and optimizer from a checkpoint; returns the plain data and the best parameters."""
    from safetensors import SafetensorError, safe_open

    file = folder / CHECKPOINT
    try:
        with safe_open(file, "pt") as tensors:
            state: dict[str, Any] = parse_json(tensors.metadata()["state"])
            names = set(tensors.keys())
            best = {
                name: tensors.get_tensor(f"best.{name}").to(parameter.device)
                for name, parameter in network.named_parameters()
                if f"best.{name}" in names
            }
            with torch.no_grad():
                for name, parameter in network.named_parameters():
                    parameter.copy_(tensors.get_tensor(f"network.{name}"))
                    moments = {
                        key: tensors.get_tensor(f"optimizer.{key}.{name}")
                        for key in ("step", "exp_avg", "exp_avg_sq")
                        if f"optimizer.{key}.{name}" in names
                    }
                    if moments:
                        optimizer.state[parameter] = {
                            key: value.to(parameter.device) if key != "step" or parameter.is_cuda else value
                            for key, value in moments.items()
                        }
    except (SafetensorError, KeyError, ValueError, RuntimeError) as e:
        raise InputError(
            f"this checkpoint does not belong to this network, or is damaged ({e})", file=str(file)
        ) from None
    return state, best


Report = Callable[[dict[str, Any]], None]
"""Gets the log line of each step."""


@dataclass
class TrainingResult:
    """How a run ended: its last step, and the best values on the dev sets with the step that reached them."""

    step: int = 0
    best: float = float("-inf")
    """The highest mean over all values on the dev sets."""
    best_step: int = 0
    figures: dict[str, float] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)


class Trainer:
    """Trains a network.

    `pairs` provides the batches and `objective` their loss; `refresh` mines new negatives from time to time.
    Checkpoints and the log go to `folder`; without a folder, nothing is written. After a run with dev sets the network
    has the parameters of its best evaluation, by the mean over all values.
    """

    def __init__(
        self,
        network: Any,
        pairs: BatchSource,
        settings: TrainingSettings,
        *,
        objective: Objective | None = None,
        refresh: NegativesRefresh | None = None,
        dev: Sequence[Dev] = (),
        folder: str | Path | None = None,
        distributed: Distributed | None = None,
        report: Report | None = None,
    ) -> None:
        self.network, self.pairs, self.settings, self.dev = network, pairs, settings, dev
        self.report, self.objective, self.refresh = report, objective or ContrastiveObjective(), refresh
        self.distributed = distributed or Distributed.start()
        self.folder = Path(folder) if folder is not None else None
        self.network.to(self.distributed.device)
        self.distributed.broadcast(self.network)
        if settings.dropout:
            for module in self.network.modules():
                if isinstance(module, nn.Dropout):
                    module.p = settings.dropout
        self._random = any(isinstance(m, nn.Dropout) and m.p > 0 for m in network.modules())
        if settings.compile and self._random:
            raise VizslaError(
                "compiled code draws other random numbers in its second pass; set training.dropout to 0 or "
                "training.compile to false"
            )
        if settings.compile:
            for encoder in (m for m in network.modules() if isinstance(m, PackedBert | Padded)):
                encoder.compile(dynamic=True)
        self.optimizer = adamw(network, settings, self.distributed.device)
        self.result = TrainingResult()
        self._best_parameters: dict[str, Tensor] = {}
        self._evaluations_since_best = 0
        self._saved_step, self._refreshed_step = 0, 0

    def run(self, *, resume: bool = False) -> TrainingResult:
        """Train to the last step, or until results on the dev sets stop improving."""
        if resume:
            self._resume()
        settings = self.settings
        self.network.train()
        while self.result.step < settings.steps:
            if self.refresh is not None:
                self._refresh_negatives(self.refresh)
            line = self.step()
            step = self.result.step
            if self.dev and (step % settings.eval_steps == 0 or step == settings.steps):
                line |= self._evaluate()
            self._log(line)
            if self.folder is not None and self.distributed.is_main and step % settings.save_steps == 0:
                self._save()
            if settings.patience and self._evaluations_since_best >= settings.patience:
                break
        if self._best_parameters:
            self.network.load_state_dict(self._best_parameters, strict=False)
        self.network.eval()
        return self.result

    def step(self) -> dict[str, Any]:
        """Make one optimizer step; returns its log line."""
        settings, step, distributed = self.settings, self.result.step, self.distributed
        started = time.perf_counter()
        torch.manual_seed((settings.seed * 1_000_003 + step) * distributed.world_size + distributed.rank)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.learning_rate_at(step)
        metrics: dict[str, Tensor] = {}
        sides: list[Batch] = []
        with self._memory_errors():
            first = step * settings.accumulation
            for number in range(first, first + settings.accumulation):
                batch = self.pairs.batch(settings.batch_size, settings.seed, number, distributed.device)
                sides += self._accumulate(batch, metrics)
            distributed.sum_gradients(self.network.parameters())
            norm = torch.nn.utils.clip_grad_norm_(self.network.parameters(), settings.max_grad_norm)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        self.result.step += 1
        values = {name: value.item() for name, value in (metrics | {"grad_norm": norm}).items()}
        line = {"step": self.result.step, "learning_rate": settings.learning_rate_at(step), **values}
        return line | self._speed(sides, time.perf_counter() - started)

    def _accumulate(self, batch: TrainingBatch, metrics: dict[str, Tensor]) -> list[Batch]:
        """Add the gradients of a batch to those of the step, and its values to `metrics`; returns what was encoded."""
        settings, step, distributed = self.settings, self.result.step, self.distributed
        shares = [[distributed.share(part) for part in texts] for texts in batch.texts]
        sides = [packed(ids, mask, settings.tokens_per_chunk, min(i, 1)) for i, (ids, mask) in enumerate(shares)]
        values: dict[str, Tensor] = {}

        def loss_of(*outputs: list[Tensor]) -> Tensor:
            loss = self.objective(Step(step, self.network, distributed, batch, sides, outputs), values)
            return loss / settings.accumulation

        loss = cached_backward(
            self.encode, sides, loss_of, random=self._random, kept_chunks=settings.kept_chunks
        )  # fmt: skip
        for name, value in values.items():
            metrics[name] = metrics.get(name, torch.zeros_like(value)) + value / settings.accumulation
        metrics["loss"] = metrics.get("loss", torch.zeros_like(loss)) + loss
        return sides

    def encode(self, chunk: Chunk) -> Tensor:
        """The network's output for a chunk of texts."""
        device = self.distributed.device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.settings.uses_bfloat16(device)):
            return self.network(chunk)  # type: ignore[no-any-return]

    def _speed(self, sides: Sequence[Batch], seconds: float) -> dict[str, float]:
        chunks = [chunk for side in sides for chunk in side.chunks]
        lengths = torch.cat([chunk.starts.diff() for chunk in chunks]).cpu().numpy()
        encoder = getattr(self.network, "encoder", self.network)
        operations = 4 * forward_operations(encoder, lengths)  # two forward passes, backward counts twice
        kept = [chunk.starts.diff() for chunk in chunks[: self.settings.kept_chunks]]
        if kept:  # these have one forward pass only
            operations -= forward_operations(encoder, torch.cat(kept).cpu().numpy())
        processes = self.distributed.world_size
        return {
            "tokens_per_second": lengths.sum().item() * processes / seconds,
            "tflops": operations * processes / seconds / 1e12,
        }

    def _evaluate(self) -> dict[str, float]:
        self.network.eval()
        figures: dict[str, float] = {}
        for dev in self.dev:
            figures |= dev.figures(self.encode, self.network.vectors, self.distributed.device)
        self.network.train()
        mean = sum(figures.values()) / len(figures)
        if mean > self.result.best:
            self.result.best, self.result.best_step, self.result.figures = mean, self.result.step, figures
            self._best_parameters = {n: p.detach().clone() for n, p in self.network.named_parameters()}
            self._evaluations_since_best = 0
        else:
            self._evaluations_since_best += 1
        return figures

    def _refresh_negatives(self, refresh: NegativesRefresh) -> None:
        """Use the negatives of this step: mine them if they are due, or read them if the run was resumed."""
        step = self.result.step
        due = refresh.last(step)
        if due == self._refreshed_step:
            return
        if due == step:
            self.network.eval()
            self.pairs = refresh.mined(step, self.encode, self.network.vectors, self.distributed)
            self.network.train()
            if self.distributed.is_main:
                refresh.drop_before(refresh.last(self._saved_step))
        else:
            self.pairs = refresh.opened(due)
        self._refreshed_step = due

    def _log(self, line: dict[str, Any]) -> None:
        self.result.log.append(line)
        if self.distributed.is_main:
            if self.report is not None:
                self.report(line)
            if self.folder is not None:
                self.folder.mkdir(parents=True, exist_ok=True)
                with (self.folder / LOG).open("a") as file:
                    file.write(json.dumps(line) + "\n")

    def _identity(self) -> dict[str, Any]:
        """The settings that a resumed run must share with the original one."""
        fixed = {key.name: key.value for key in keys_of(self.settings) if not key.resumable}
        return fixed | {"objective": asdict(self.objective), "dev": [d.name for d in self.dev]}  # type: ignore[call-overload]

    def _save(self) -> None:
        assert self.folder is not None
        state = {
            "step": self.result.step, "best": self.result.best, "best_step": self.result.best_step,
            "figures": self.result.figures, "evaluations_since_best": self._evaluations_since_best,
            "identity": self._identity(),
        }  # fmt: skip
        save_checkpoint(self.folder, self.network, self.optimizer, state, self._best_parameters)
        self._saved_step = self.result.step

    def _resume(self) -> None:
        if self.folder is None or not has_checkpoint(self.folder):
            raise VizslaError(f"there is no checkpoint to resume from in {self.folder}")
        state, self._best_parameters = load_checkpoint(self.folder, self.network, self.optimizer)
        before, now = state["identity"], self._identity()
        changed = next((name for name in now if before.get(name) != now[name]), None)
        if changed is not None:
            raise VizslaError(
                f"the run began with {changed} {before.get(changed)}, not {now[changed]}; resume it with the same value"
            )
        self.result = TrainingResult(state["step"], state["best"], state["best_step"], state["figures"])
        self._evaluations_since_best = state["evaluations_since_best"]
        self._saved_step = self.result.step

    @contextmanager
    def _memory_errors(self) -> Iterator[None]:
        """Translate out-of-memory errors into advice."""
        try:
            yield
        except torch.OutOfMemoryError:
            chunk, batch = self.settings.tokens_per_chunk, self.settings.batch_size
            raise VizslaError(
                f"the device has too little memory for chunks of {chunk:,} tokens in a batch of {batch:,}; try half, "
                f"as in --set training.tokens_per_chunk={chunk // 2}"
            ) from None
