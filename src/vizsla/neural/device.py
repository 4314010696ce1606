"""Where networks run: the processor or a GPU, named as torch names it, and which runtime runs them there.

A device belongs to a process or to an opened model. It is never saved with a model, and no index depends on it.

    vizsla.use_device("cuda:1")                       # all networks that this process opens from now on
    model = vizsla.parse_model("minilm", device="cpu")  # but for this one

`VIZSLA_DEVICE=cuda:1` and `--device cuda:1` do the same as `use_device`. Without any of them a network runs on the
first GPU that torch sees, and where it sees none, on the processor.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vizsla.errors import UnknownNameError, VizslaError

if TYPE_CHECKING:
    import torch

DEVICE, RUNTIME = "VIZSLA_DEVICE", "VIZSLA_RUNTIME"
RUNTIMES = ("onnx", "torch")
GPU_PROVIDER, CPU_PROVIDER = "CUDAExecutionProvider", "CPUExecutionProvider"
_NAME = re.compile(r"cpu|mps|cuda(:\d{1,3})?")
_opening_on: ContextVar[str] = ContextVar("opening_on", default="")


@dataclass(frozen=True)
class Device:
    """A processor or a GPU: `kind` is cpu, cuda or mps, `number` that of a GPU, from 0.

    >>> Device.parse("cuda:1"), str(Device.parse("cuda"))
    (Device(kind='cuda', number=1), 'cuda:0')
    >>> Device.parse("gpu")
    Traceback (most recent call last):
    ...
    vizsla.errors.VizslaError: 'gpu' is no device; name cpu, cuda, cuda:1 (the second GPU) or mps
    """

    kind: str
    number: int = 0

    @classmethod
    def parse(cls, name: str) -> Device:
        """A device from the name that torch has for it."""
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise VizslaError(f"{name!r} is no device; name cpu, cuda, cuda:1 (the second GPU) or mps")
        kind, _, number = name.partition(":")
        return cls(kind, int(number or 0))

    def __str__(self) -> str:
        return f"cuda:{self.number}" if self.kind == "cuda" else self.kind

    @property
    def is_gpu(self) -> bool:
        return self.kind != "cpu"


@dataclass(frozen=True)
class Place:
    """Where a network runs: by `runtime`, onnx or torch, on a device."""

    runtime: str
    device: Device


def use_device(name: str) -> None:
    """Run the networks that this process opens from now on, and its child processes, on a device.

    `name`: cpu, cuda, cuda:1 or mps. A device that is not here is an error, at once.
    """
    place_of(str(Device.parse(name)))
    os.environ[DEVICE] = name


@contextmanager
def device_of_process(name: str) -> Iterator[None]:
    """`use_device` for a while."""
    before = os.environ.get(DEVICE)
    use_device(name)
    try:
        yield
    finally:
        if before is None:
            del os.environ[DEVICE]
        else:
            os.environ[DEVICE] = before


@contextmanager
def opening_on(name: str | None) -> Iterator[None]:
    """Models that are opened within run on this device; without a name, on that of the process."""
    token = _opening_on.set(str(Device.parse(name)) if name else _opening_on.get())
    try:
        yield
    finally:
        _opening_on.reset(token)


def device_of_opening() -> str:
    """The device that models being opened now were given; empty where none was named."""
    return _opening_on.get()


def named_device(own: str = "") -> Device | None:
    """The device that was named: for a model itself, else for the process; None if none was."""
    if name := own or _opening_on.get():
        return Device.parse(name)
    if not (name := os.environ.get(DEVICE, "")):
        return None
    try:
        return Device.parse(name)
    except VizslaError as e:
        raise VizslaError(f"{DEVICE}: {e}") from None


def place_of(own: str = "") -> Place:
    """Where a network runs that both runtimes can run; `own` is the device its model was given, if any."""
    device, runtime = named_device(own), _chosen_runtime()
    if device is None:
        runtime = runtime or _usual_runtime()
        return Place(runtime, Device(torch_device().type if runtime == "torch" else "cpu"))
    if not device.is_gpu:
        return Place(runtime or ("onnx" if find_spec("onnxruntime") is not None else _usual_runtime()), device)
    lacking = {name: lacks(device) for name, lacks in _LACKS.items() if runtime in ("", name)}
    for name, reason in lacking.items():
        if not reason:
            return Place(name, device)
    raise _missing(device, list(lacking.values()))


def torch_device(own: str = "") -> torch.device:
    """Where torch runs a network that only torch can run, or trains one."""
    import torch

    device = named_device(own)
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.is_gpu and (reason := _torch_lacks(device)):
        raise _missing(device, [reason])
    return torch.device(str(device))


def onnx_device(own: str = "") -> Device:
    """Where onnxruntime runs a network that only it can run: the processor, unless a GPU was named."""
    device = named_device(own) or Device("cpu")
    if device.is_gpu and (reason := _onnxruntime_lacks(device)):
        raise _missing(device, [reason], "pip install onnxruntime-gpu")
    return device


def providers(device: Device) -> list[Any]:
    """How onnxruntime names a device."""
    return [(GPU_PROVIDER, {"device_id": str(device.number)})] if device.is_gpu else [CPU_PROVIDER]


def on_gpu(own: str = "") -> bool:
    """Whether torch would run a network on a GPU."""
    device = named_device(own)
    return _sees_gpu() if device is None else device.is_gpu


def _sees_gpu() -> bool:
    """Whether torch has a GPU to run on; only CUDA's are used without being named."""
    if find_spec("torch") is None or not Path("/dev/nvidiactl").exists():  # importing torch takes seconds
        return False
    import torch

    return torch.cuda.is_available()


def _chosen_runtime() -> str:
    chosen = os.environ.get(RUNTIME, "")
    if chosen and chosen not in RUNTIMES:
        raise UnknownNameError(f"runtime in {RUNTIME}", chosen, RUNTIMES)
    return chosen


def _usual_runtime() -> str:
    """Torch if it sees a GPU or onnxruntime is not installed, otherwise onnxruntime."""
    if find_spec("torch") is not None and (find_spec("onnxruntime") is None or _sees_gpu()):
        return "torch"
    if find_spec("onnxruntime") is None:
        raise VizslaError("a learned model needs onnxruntime; install it with: pip install onnxruntime")
    return "onnx"


def _torch_lacks(device: Device) -> str:
    """What keeps torch from running on a GPU; empty if it can."""
    if find_spec("torch") is None:
        return "torch is not installed"
    import torch

    if device.kind == "mps":
        return "" if torch.backends.mps.is_available() else "torch sees no GPU of Apple's"
    if not torch.cuda.is_available():
        return "torch sees no GPU" if torch.version.cuda else "the installed torch is built for CPUs"
    count = torch.cuda.device_count()
    return "" if device.number < count else f"torch sees {count} GPU{'s'[: count > 1]}, and they count from cuda:0"


def _onnxruntime_lacks(device: Device) -> str:
    """What keeps onnxruntime from running on a GPU; empty if it can."""
    if device.kind == "mps":
        return "onnxruntime is not used there"
    if find_spec("onnxruntime") is None:
        return "onnxruntime is not installed"
    import onnxruntime

    return (
        "" if GPU_PROVIDER in onnxruntime.get_available_providers() else "the installed onnxruntime is built for CPUs"
    )


_LACKS = {"torch": _torch_lacks, "onnx": _onnxruntime_lacks}
"""What a runtime lacks for a device; torch is first, as its kernels read texts without padding."""


def _missing(device: Device, reasons: list[str], install: str = "") -> VizslaError:
    how = install or "install torch for your GPU (pytorch.org/get-started) or onnxruntime-gpu"
    how = "install torch 2.1 or later on a Mac with Apple's chip" if device.kind == "mps" else how
    return VizslaError(f"nothing here can run a network on {device}: {', and '.join(reasons)}; {how}, or name cpu")
