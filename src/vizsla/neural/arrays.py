"""The arrays of an encoder as others save it: safetensors or torch's own files, whole or in parts."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import InputError
from vizsla.neural.weights import read_tensors

_PATTERNS = ("model*.safetensors", "pytorch_model*.bin")


def has_weights(folder: Path) -> bool:
    """Whether there are files of an encoder's arrays."""
    return any(any(folder.glob(pattern)) for pattern in _PATTERNS)


def weight_files(folder: Path) -> list[Path]:
    """The files of an encoder's arrays; torch's own only where there are no safetensors."""
    for pattern in _PATTERNS:
        if files := sorted(folder.glob(pattern)):
            return files
    raise InputError(f"there are no weights here (no {_PATTERNS[0].replace('*', '')})", file=str(folder))


def read_checkpoint(folder: Path) -> dict[str, np.ndarray]:
    """All arrays of floats in an encoder's files, in 32 bits. safetensors need no torch."""
    floats: dict[str, np.ndarray] = {}
    for file in weight_files(folder):
        arrays = read_tensors(file) if file.suffix == ".safetensors" else _of_torch(file)
        floats |= {n: a.astype(np.float32, copy=False) for n, a in arrays.items() if a.dtype.kind == "f"}
    return floats


def _of_torch(file: Path) -> dict[str, np.ndarray]:
    return {name: tensor.float().numpy() for name, tensor in read_pickled(file).items() if tensor.is_floating_point()}


def read_pickled(file: Path) -> dict[str, Any]:
    """The tensors in a file of torch's own; nothing but tensors is read from it."""
    if find_spec("torch") is None:
        raise InputError("weights in torch's own format need torch; install it with: pip install torch", file=str(file))
    import torch

    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as e:  # the unpickler's own, the archive's, and those of the system
        reason = (str(e) or type(e).__name__).splitlines()[0]
        raise InputError(f"this is no file of weights, or a damaged one ({reason})", file=str(file)) from None
    content = content.get("state_dict", content) if isinstance(content, dict) else {}
    tensors = {name: value for name, value in content.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise InputError("there are no weights in this file", file=str(file))
    return tensors


def prefix_of(names: Any, expected: Any) -> str:
    """What stands before the names of an encoder's arrays in a file, where it is a part of something larger.

    >>> prefix_of(["ctx.bert.a.w", "ctx.bert.b.w", "head.w"], ["a.w", "b.w"])
    'ctx.bert.'
    """
    counts: dict[str, int] = {}
    wanted = set(expected)
    for name in names:
        parts = name.split(".")
        for i in range(len(parts)):
            if ".".join(parts[i:]) in wanted:
                prefix = "".join(f"{part}." for part in parts[:i])
                counts[prefix] = counts.get(prefix, 0) + 1
    return max(counts, key=lambda prefix: (counts[prefix], -len(prefix)), default="")
