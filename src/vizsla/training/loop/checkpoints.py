"""Checkpoints: all that a run needs to resume as if it had never stopped, without pickle."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vizsla.errors import InputError
from vizsla.plain_data import parse_json

CHECKPOINT = "checkpoint.safetensors"


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
    """Restore network and optimizer from a checkpoint; gives the plain data and the best parameters."""
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
