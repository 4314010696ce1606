"""Checkpoints: all that a run needs to go on as if it had never stopped, without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vizsla.errors import InputError

_FILE = "checkpoint.safetensors"


def save_checkpoint(
    folder: Path,
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    told: dict[str, Any],
    best: Mapping[str, Tensor],
) -> None:
    """Write parameters, what the optimiser remembers of them, the best parameters so far, and plain data.

    The old checkpoint stays until the new one is whole.
    """
    from safetensors.torch import save_file

    tensors = {f"network.{n}": p.detach().cpu().contiguous() for n, p in network.named_parameters()}
    for name, parameter in network.named_parameters():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"optimiser.{key}.{name}"] = torch.as_tensor(value).detach().cpu().contiguous()
    tensors |= {f"best.{name}": value.cpu().contiguous() for name, value in best.items()}
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / (_FILE + ".partial")
    save_file(tensors, partial, metadata={"told": json.dumps(told)})
    with partial.open("rb") as file:
        os.fsync(file.fileno())
    partial.replace(folder / _FILE)


def has_checkpoint(folder: Path) -> bool:
    return (folder / _FILE).is_file()


def load_checkpoint(
    folder: Path, network: nn.Module, optimiser: torch.optim.Optimizer
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Put a checkpoint back; gives the plain data and the best parameters."""
    from safetensors import SafetensorError, safe_open

    file = folder / _FILE
    try:
        with safe_open(file, "pt") as kept:
            told: dict[str, Any] = json.loads(kept.metadata()["told"])
            names = set(kept.keys())
            best = {
                name: kept.get_tensor(f"best.{name}").to(parameter.device)
                for name, parameter in network.named_parameters()
                if f"best.{name}" in names
            }
            with torch.no_grad():
                for name, parameter in network.named_parameters():
                    parameter.copy_(kept.get_tensor(f"network.{name}"))
                    state = {
                        key: kept.get_tensor(f"optimiser.{key}.{name}")
                        for key in ("step", "exp_avg", "exp_avg_sq")
                        if f"optimiser.{key}.{name}" in names
                    }
                    if state:
                        on = {
                            k: v.to(parameter.device) if k != "step" or parameter.is_cuda else v
                            for k, v in state.items()
                        }
                        optimiser.state[parameter] = on
    except (SafetensorError, KeyError, ValueError, RuntimeError) as e:
        raise InputError(
            f"this checkpoint does not belong to this network, or is damaged ({e})", file=str(file)
        ) from None
    return told, best
