"""The arrays of a network: those of its folder, and those of checkpoints in safetensors or torch's own files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import InputError
from vizsla.plain_data import parse_settings

NETWORK, WEIGHTS, SHARES = "network.onnx", "weights.safetensors", "shares.json"
SCALE, DIVISORS = ".scale", ".divisors"
"""Suffixes of an int8 array's name: for the scale of each row, and for the divisors of its columns."""
_TYPES = {"F32": "<f4", "I8": "i1", "I32": "<i4", "U16": "<u2", "U8": "u1"}  # safetensors' names
_OTHERS = {"F64": "<f8", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "BOOL": "?"}


def read_weights(folder: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a network, dequantised to float32, under their original names."""
    stored = read_arrays(folder)
    weights = {}
    for name, values in stored.items():
        if name.endswith((SCALE, DIVISORS)):
            continue
        if name + SCALE in stored:
            values = values * stored[name + SCALE][:, None]
        weights[name] = values / stored[name + DIVISORS] if name + DIVISORS in stored else values
    return weights


def in_8_bits(folder: str | Path) -> bool:
    """Whether some arrays of a network are stored as int8."""
    return any(name.endswith(SCALE) for name in read_arrays(folder))


def read_arrays(folder: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a network as they are stored, those it shares with another included."""
    path = Path(folder)
    arrays = read_tensors(path / WEIGHTS)
    if not shares(path):
        return arrays
    try:
        sharing = parse_settings((path / SHARES).read_text("utf-8"))
        other = read_tensors(path / sharing["network"] / WEIGHTS)
        shared = {name: other[name] for name in sharing["arrays"]}
        if _hash(shared) != sharing["sha256"]:
            raise ValueError("not what was shared")
        return arrays | shared
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            "this does not say which arrays are shared with which network, or the shared arrays have changed",
            file=str(path / SHARES),
        ) from None


def shares(folder: Path) -> bool:
    """Whether some arrays of a network lie in the folder of another."""
    return (folder / SHARES).is_file()


def share(folder: Path, other: Path) -> None:
    """Remove from a network's file the arrays that another network has as well. The folders must then not be moved."""
    own, common = read_arrays(folder), read_tensors(other / WEIGHTS)
    same = [n for n, a in own.items() if n in common and a.dtype == common[n].dtype and np.array_equal(a, common[n])]
    digest = _hash({name: own[name] for name in same})
    sharing = {"network": os.path.relpath(other, folder), "arrays": sorted(same), "sha256": digest}
    write_arrays(folder / "own", {name: a for name, a in own.items() if name not in same})
    (folder / SHARES).write_text(json.dumps(sharing, indent=2) + "\n", "utf-8")
    (folder / "own").replace(folder / WEIGHTS)  # until then the whole file is there


def _hash(arrays: Mapping[str, np.ndarray]) -> str:
    sha256 = hashlib.sha256()
    for name in sorted(arrays):
        sha256.update(name.encode() + arrays[name].tobytes())
    return sha256.hexdigest()


def copy_weights(folder: Path, target: Path) -> None:
    """Write the complete weight file to another folder, shared arrays included."""
    if shares(folder):
        write_arrays(target / WEIGHTS, read_arrays(folder))
    else:
        shutil.copyfile(folder / WEIGHTS, target / WEIGHTS)


def write_arrays(file: Path, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Write arrays; returns where in the file each begins. The wide types come first, so that all are aligned."""
    codes = {np.dtype(code): name for name, code in _TYPES.items()}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    end = 0
    for name in order:
        start, end = end, end + arrays[name].nbytes
        kind = codes[arrays[name].dtype]
        header[name] = {"dtype": kind, "shape": list(arrays[name].shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 64 + 56)  # with the eight bytes of its length the header fills whole cache lines
    with file.open("wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            out.write(arrays[name].astype(arrays[name].dtype.newbyteorder("<"), copy=False).tobytes())
    return {name: 8 + len(text) + header[name]["data_offsets"][0] for name in order}


def read_tensors(file: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file; bfloat16 becomes float32."""
    try:
        data = file.read_bytes()
    except OSError as e:
        raise InputError(f"these weights cannot be read ({e.strerror})", file=str(file)) from None
    begin = 8 + int.from_bytes(data[:8], "little")
    kinds = {**_TYPES, **_OTHERS}
    found = {}
    try:
        for name, entry in parse_settings(data[8:begin]).items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                values = np.frombuffer(data[begin + start : begin + end], kinds[entry["dtype"]])
                if entry["dtype"] == "BF16":
                    values = (values.astype(np.uint32) << 16).view(np.float32)
                found[name] = values.reshape(entry["shape"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError("this is not a weight file, or it is damaged", file=str(file)) from None
    return found


_PATTERNS = ("model*.safetensors", "pytorch_model*.bin")


def has_weights(folder: Path) -> bool:
    """Whether a folder has weight files."""
    return any(any(folder.glob(pattern)) for pattern in _PATTERNS)


def weight_files(folder: Path) -> list[Path]:
    """The weight files of an encoder: its safetensors files or, if it has none, its torch files."""
    for pattern in _PATTERNS:
        if files := sorted(folder.glob(pattern)):
            return files
    raise InputError(f"there are no weights here (no {_PATTERNS[0].replace('*', '')})", file=str(folder))


def read_checkpoint(folder: Path) -> dict[str, np.ndarray]:
    """All floating-point arrays in an encoder's files, as float32. Reading safetensors needs no torch."""
    floats: dict[str, np.ndarray] = {}
    for file in weight_files(folder):
        arrays = read_tensors(file) if file.suffix == ".safetensors" else _of_torch(file)
        floats |= {n: a.astype(np.float32, copy=False) for n, a in arrays.items() if a.dtype.kind == "f"}
    return floats


def _of_torch(file: Path) -> dict[str, np.ndarray]:
    return {name: tensor.float().numpy() for name, tensor in read_pickled(file).items() if tensor.is_floating_point()}


def read_pickled(file: Path) -> dict[str, Any]:
    """The tensors in a torch file. Nothing but tensors is unpickled."""
    if find_spec("torch") is None:
        raise InputError("weights in torch's own format need torch; install it with: pip install torch", file=str(file))
    import torch

    try:
        content = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as e:  # the unpickler's own, the archive's, and those of the system
        reason = (str(e) or type(e).__name__).splitlines()[0]
        raise InputError(f"this is not a weight file, or it is damaged ({reason})", file=str(file)) from None
    content = content.get("state_dict", content) if isinstance(content, dict) else {}
    tensors = {name: value for name, value in content.items() if isinstance(value, torch.Tensor)}
    if not tensors:
        raise InputError("there are no weights in this file", file=str(file))
    return tensors


def prefix_of(names: Any, expected: Any) -> str:
    """The prefix of an encoder's array names in a file in which the encoder is part of a larger model.

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
