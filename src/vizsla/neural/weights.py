"""The arrays of a network: those of its folder, and those of checkpoints in safetensors or torch's own files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
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
LOW_RANK = "low_rank."
"""Prefix of the arrays that stand for a table whose products with states are of low rank; they follow from others."""
_TYPES = {"F32": "<f4", "I8": "i1", "I32": "<i4", "U16": "<u2", "U8": "u1"}  # safetensors' names
_OTHERS = {"F64": "<f8", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "BOOL": "?"}


def read_weights(folder: str | Path) -> dict[str, np.ndarray]:
    """The arrays of a network, dequantised to float32, under their original names."""
    stored = read_arrays(folder)
    weights = {}
    for name, values in stored.items():
        if name.endswith((SCALE, DIVISORS)) or name.startswith(LOW_RANK):
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
        floats |= file_floats(file)
    return floats


def array_names(folder: Path) -> list[str]:
    """The names of the arrays in an encoder's files; a torch file is mapped where its format allows it."""
    names: list[str] = []
    for file in weight_files(folder):
        names += _header(file) if file.suffix == ".safetensors" else read_pickled(file, mapped=True)
    return names


def _header(file: Path) -> list[str]:
    try:
        with file.open("rb") as data:
            size = int.from_bytes(data.read(8), "little")
            return list(parse_settings(data.read(min(size, file.stat().st_size))))
    except (OSError, ValueError, OverflowError, TypeError) as e:
        raise InputError(f"this is not a weight file, or it is damaged ({e})", file=str(file)) from None


def file_floats(file: Path) -> dict[str, np.ndarray]:
    """All floating-point arrays in a file of safetensors or of torch, as float32."""
    if file.suffix == ".safetensors":
        return {n: a.astype(np.float32, copy=False) for n, a in read_tensors(file).items() if a.dtype.kind == "f"}
    return {name: tensor.float().numpy() for name, tensor in read_pickled(file).items() if tensor.is_floating_point()}


def read_pickled(file: Path, *, mapped: bool = False) -> dict[str, Any]:
    """The tensors in a torch file: its own, or those that it has as `state_dict` or under a similar name.

    Nothing in the file is run: torch unpickles tensors and plain data, and objects of training libraries beside them,
    such as PyTorch Lightning's settings, become `Placeholder`. A file with any other object is refused.
    """
    content = unpickled(file, mapped=mapped)
    content = content if isinstance(content, dict) else {}
    inside = next((content[name] for name in _STATES if isinstance(content.get(name), dict)), content)
    tensors = {name: value for name, value in inside.items() if hasattr(value, "is_floating_point")}
    if not tensors:
        raise InputError("there are no weights in this file", file=str(file))
    return tensors


_STATES = ("state_dict", "model_dict", "model_state_dict")
_BESIDE = {"omegaconf", "hydra", "pytorch_lightning", "lightning", "lightning_fabric", "transformers", "argparse"}
_BESIDE |= {"dpr_scale", "dpr", "arguments", "typing"}
_PLAIN_TYPES = ("dict", "list", "tuple", "set", "str", "int", "float", "bool", "bytes", "type")


class Placeholder:
    """Stands for an object in a torch file whose class is not loaded; it holds the object's fields and does nothing."""

    def __new__(cls, *_: Any, **__: Any) -> Placeholder:
        return super().__new__(cls)

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setitem__(self, name: Any, value: Any) -> None:
        self.__dict__[str(name)] = value

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.__dict__.update({str(name): value for name, value in state.items()})


def unpickled(file: Path, *, mapped: bool = False) -> Any:
    """The tensors and plain data in a torch file, with placeholders for objects of training libraries.

    `mapped`: tensors are read when they are looked at, where the file's format allows it.
    """
    if find_spec("torch") is None:
        raise InputError("weights in torch's own format need torch; install it with: pip install torch", file=str(file))
    import torch

    serialization: Any = torch.serialization
    options: dict[str, Any] = {"map_location": "cpu", "weights_only": True, "mmap": mapped and zipfile.is_zipfile(file)}
    try:
        return torch.load(file, **options)
    except Exception as e:  # the unpickler's own, the archive's, and those of the system
        reason = (str(e) or type(e).__name__).splitlines()[0]
    try:
        names = serialization.get_unsafe_globals_in_checkpoint(file)
    except Exception:  # not an archive of torch's
        raise InputError(f"this is not a weight file, or it is damaged ({reason})", file=str(file)) from None
    refused = [name for name in names if not _stands_beside(name)]
    if refused or not names:
        what = f"it names {refused[0]}, and nothing in a file is run" if refused else reason
        raise InputError(f"this is not a weight file, or it is damaged ({what})", file=str(file))
    with serialization.safe_globals([(type("Placeholder", (Placeholder,), {}), name) for name in names]):
        try:
            return torch.load(file, **options)
        except Exception as e:
            reason = (str(e) or type(e).__name__).splitlines()[0]
    raise InputError(f"this is not a weight file, or it is damaged ({reason})", file=str(file))


def _stands_beside(name: str) -> bool:
    """Whether a placeholder may stand for an object of this name: settings of training beside the weights."""
    package, _, rest = name.partition(".")
    return package in _BESIDE or name.startswith("collections.") or (package == "builtins" and rest in _PLAIN_TYPES)


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
