"""The systems and processors that kernels are built for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Level:
    """A kind of processor: `name` as Python sees it, and what LLVM calls it."""

    name: str
    processor: str
    flags: frozenset[str] = frozenset()
    """The flags in /proc/cpuinfo of a processor with this level."""


@dataclass(frozen=True)
class Target:
    """A system that kernels are built for."""

    name: str
    """As zig names it: processor, system, and the oldest version of it."""
    triple: str
    """As LLVM names it."""
    tag: str
    """Of a wheel."""
    levels: tuple[Level, ...]
    """Processor levels, oldest first; a machine uses the last one that it supports."""

    @property
    def system(self) -> str:
        return "windows" if "windows" in self.triple else "macos" if "apple" in self.triple else "linux"

    @property
    def library(self) -> str:
        """The name of the extension module's file."""
        return "_native.pyd" if self.system == "windows" else "_native.abi3.so"


_V2 = frozenset(["cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"])
_V3 = _V2 | frozenset(["abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"])
_V4 = _V3 | frozenset(["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"])
_X86 = tuple(Level(f"x86-64-v{n}", f"x86-64-v{n}", flags) for n, flags in ((2, _V2), (3, _V3)))  # v4 is no faster
_ARM, _APPLE = (Level("aarch64", "generic"),), (Level("aarch64", "apple-m1"),)
TARGETS = (
    Target("x86_64-linux-gnu.2.28", "x86_64-unknown-linux-gnu", "manylinux_2_28_x86_64", _X86),
    Target("aarch64-linux-gnu.2.28", "aarch64-unknown-linux-gnu", "manylinux_2_28_aarch64", _ARM),
    Target("aarch64-macos.11.0", "arm64-apple-macosx11.0.0", "macosx_11_0_arm64", _APPLE),
    Target("x86_64-macos.11.0", "x86_64-apple-macosx11.0.0", "macosx_11_0_x86_64", _X86),
    Target("x86_64-windows-gnu", "x86_64-pc-windows-gnu", "win_amd64", _X86),
)
