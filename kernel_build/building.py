"""Building the extension module: translate, compile and link all kernels, in parallel, with a cache.

Cached files are named by a digest of their inputs, so a build only makes what has changed. This module imports only
the standard library: the build hook uses it before numba is installed.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from kernel_build.targets import TARGETS, Level, Target

ROOT = Path(__file__).parents[1]
CACHE = Path(os.environ.get("VIZSLA_KERNEL_CACHE") or ROOT / "build" / "kernels")
PACKAGE = ROOT / "src" / "vizsla"
if str(PACKAGE.parent) not in sys.path:
    sys.path.insert(0, str(PACKAGE.parent))

from vizsla.kernels import library  # noqa: E402
from vizsla.kernels.sources import DECORATORS, Sources, digest_of  # noqa: E402

_TRANSLATES = ("entries.py", "machine_code.py", "signatures.py", "targets.py", "translating.py")
"""Files on which every kernel depends: if one changes, all kernels are rebuilt."""
_LONG = ("segment_search", "phrase_search")
"""Slow modules, which are compiled first, so that all processes finish at about the same time."""


class BuildError(Exception):
    """The kernels cannot be built; the message says what to do."""


class Job(NamedTuple):
    """One kernel: all its overloads, for all levels of a target."""

    module: str
    name: str
    digest: str

    def folder(self, target: Target, level: Level) -> Path:
        """Where its objects are."""
        return CACHE / "objects" / f"{self.name}-{self.digest}-{target.tag}-{level.name}"


@dataclass(frozen=True)
class Plan:
    """What is to be built: a system, and the kinds of its processors."""

    target: Target
    levels: tuple[Level, ...]
    portable: bool
    """Whether to link with zig, which can target the oldest supported version of the system."""

    @classmethod
    def chosen(cls) -> Plan:
        """What the environment asks for: VIZSLA_TARGET, or this machine; VIZSLA_LEVELS=all."""
        named, levels = os.environ.get("VIZSLA_TARGET"), os.environ.get("VIZSLA_LEVELS", "")
        if levels not in ("", "all"):
            raise BuildError(f"VIZSLA_LEVELS is {levels!r}; it may be all")
        if not named:
            target = _this_target()
            return cls(target, target.levels if levels else _own_levels(target), portable=False)
        for target in TARGETS:
            if target.tag == named:
                return cls(target, target.levels, portable=True)
        raise BuildError(f"VIZSLA_TARGET is {named!r}; it may be one of {', '.join(t.tag for t in TARGETS)}")

    @property
    def tag(self) -> str:
        """The platform tag of a wheel."""
        if self.portable:
            return self.target.tag
        return sysconfig.get_platform().replace("-", "_").replace(".", "_")

    @cached_property
    def summary(self) -> tuple[str, str]:
        """What kernels are built from; see `library.summarize`."""
        return library.summarize(ROOT)

    @cached_property
    def library(self) -> Path:
        """The library in the cache."""
        levels = "-".join(level.name.replace("-", "_") for level in self.levels)
        kind = "portable" if self.portable else "local"
        return CACHE / "libraries" / f"{self.summary[0]}-{self.tag}-{levels}-{kind}" / self.target.library

    def compiler(self) -> list[str] | None:
        """The command of a C compiler: the system's for this machine, else zig's, which links for every system."""
        if not self.portable:
            for command in (os.environ.get("CC", "").split(), ["cc"], ["gcc"], ["clang"]):
                if command and shutil.which(command[0]):
                    return command
        return None if find_spec("ziglang") is None else [sys.executable, "-m", "ziglang", "cc"]

    def build(self) -> None:
        """Build the library into the cache, if it is not there."""
        if self.library.exists():
            return
        compiler = self.compiler()
        if compiler is None:
            raise BuildError(
                "building the kernels needs a C compiler: install gcc or clang, or run: pip install ziglang"
            )
        jobs = _jobs()
        todo = [(job, self.target, level) for job in jobs for level in self.levels]
        _compile_all([item for item in todo if not item[0].folder(*item[1:]).exists()])
        self._link(jobs, compiler)

    def install(self) -> None:
        """Put the library beside its sources, with a note of what it was built from."""
        place = library.SUMMARY.with_name(self.target.library)
        beside = place.with_name(f".{place.name}.{os.getpid()}")  # a process that has the old one open keeps it
        shutil.copyfile(self.library, beside)
        os.replace(beside, place)
        library.SUMMARY.write_text(self.summary[1], encoding="utf-8")

    def _link(self, jobs: list[Job], compiler: list[str]) -> None:
        """Link all objects with module.c."""
        self.library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self.library.parent) as name:
            folder = Path(name)
            objects, table = self._table(jobs)
            (folder / "kernels.h").write_text(table)
            (folder / "objects").write_text("".join(f'"{file.as_posix()}"\n' for file in objects))
            made = folder / self.target.library
            command = [
                *compiler, "-shared", "-O2", "-Wall", "-fvisibility=hidden", "-I", str(folder),
                str(ROOT / "kernel_build" / "module.c"), f"@{folder / 'objects'}", *self._options(folder),
                "-o", str(made),
            ]  # fmt: skip
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise BuildError(f"{' '.join(compiler)} cannot link the kernels: {done.stderr.strip()[-2000:]}")
            os.replace(made, self.library)

    def _options(self, folder: Path) -> list[str]:
        cross = ["-target", self.target.name] if self.portable else []
        if self.target.system == "linux":
            return [*cross, "-fPIC", "-s", "-lm"]
        if self.target.system == "macos":
            return [*cross, "-fPIC", "-Wl,-undefined,dynamic_lookup"]
        return [*cross, "-s", str(_import_library(folder))]

    def _table(self, jobs: list[Job]) -> tuple[list[Path], str]:
        """All objects, and the C source of the table of kernels."""
        lines, table, objects = [f'#define DIGEST "{self.summary[0]}"'], [], []
        for n, job in enumerate(jobs):
            folders = [job.folder(self.target, level) for level in self.levels]
            objects += [file for folder in folders for file in sorted(folder.glob("*.o"))]
            compiled = [json.loads((folder / "kernel.json").read_text()) for folder in folders]
            entries = []
            for i, overload in enumerate(compiled[0]["overloads"]):
                symbols = [each["overloads"][i]["symbol"] for each in compiled]
                lines += [f"extern int32_t {symbol}(const int64_t *, int64_t *);" for symbol in symbols]
                codes, signature, result = (overload[part] for part in ("codes", "signature", "result"))
                entries.append(f'    {{"{codes}", "{signature}", \'{result}\', {{{", ".join(symbols)}}}}},')
            lines += [f"static const Overload overloads_{n}[] = {{", *entries, "};"]
            shape = compiled[0]["shape"]
            table.append(f'    {{"{job.module}.{job.name}", "{shape}", overloads_{n}, {len(entries)}}},')
        names = ", ".join(f'"{level.name}"' for level in self.levels)
        lines += ["static const Kernel kernels[] = {", *table, "};"]
        return objects, "\n".join([*lines, f"static const char *const level_names[] = {{{names}}};", ""])


def _this_target() -> Target:
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    system = {"linux": "linux", "darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)
    for target in TARGETS:
        if target.name.startswith(f"{machine}-{system}"):
            return target
    raise BuildError(f"Vizsla has no kernels for {system} on {machine}")


def _own_levels(target: Target) -> tuple[Level, ...]:
    """The best level of this machine where Linux reports the features of its processor; elsewhere all levels."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return target.levels
    flags = set(next((line for line in text.splitlines() if line.startswith("flags")), "").split())
    known = [level for level in target.levels if level.flags <= flags]
    return tuple(known[-1:]) or target.levels


def _jobs() -> list[Job]:
    """All kernels that Python calls."""
    tools = digest_of([library.digest_of_file(ROOT / "kernel_build" / name) for name in _TRANSLATES])
    sources = Sources(PACKAGE)
    return [
        Job(module.name, name, digest_of([tools, sources.digest(module.name, name)])[:16])
        for module in sources.with_kernels()
        for name, text in module.statements.items()
        if text.startswith(tuple(f"{decorator}(" for decorator in DECORATORS))
    ]


def _compile_all(todo: list[tuple[Job, Target, Level]]) -> None:
    if not todo:
        return
    print(f"Compiling {len(todo)} kernels for {todo[0][1].tag} ...", flush=True)
    by_module: dict[str, dict[Job, list[tuple[Target, Level]]]] = {}  # kernels of one module call the same functions
    for job, target, level in todo:
        by_module.setdefault(job.module.rpartition(".")[2], {}).setdefault(job, []).append((target, level))
    shares = [by_module.pop(name) for name in _LONG if name in by_module] + list(by_module.values())
    workers = min(os.cpu_count() or 1, len(shares))
    if workers == 1:
        for share in shares:
            _compile_share(share)
        return
    with ProcessPoolExecutor(workers) as pool:
        for _ in pool.map(_compile_share, shares):
            pass


def _compile_share(share: dict[Job, list[tuple[Target, Level]]]) -> None:
    for job, places in share.items():
        _compile(job, places)


def _compile(job: Job, places: list[tuple[Target, Level]]) -> None:
    """Compile the overloads of a kernel into objects, for some levels."""
    from kernel_build import machine_code, signatures

    kernel = _import_kernels()[job.module, job.name]
    parsed = [signatures.parse(signature) for signature in kernel.signatures]
    shapes = {signatures.shape_of(arguments) for arguments in parsed}
    if len(shapes) != 1:
        raise BuildError(f"the signatures of {job.module}.{job.name} have different numbers of arguments")
    translated = [kernel.compiled.translate(signatures.numba_types(each, _named_tuples())) for each in parsed]
    for target, level in places:
        folder = job.folder(target, level)
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
        overloads = []
        for i, (bitcode, result) in enumerate(translated):
            symbol = f"vizsla_{job.name}_{job.digest}_{i}_{level.name.replace('-', '_')}"
            (beside / f"{symbol}.o").write_bytes(machine_code.object_file(bitcode, symbol, target.triple, level))
            codes = "".join(value.code for value in signatures.values_of(parsed[i]))
            overloads.append({"signature": kernel.signatures[i], "codes": codes, "result": result, "symbol": symbol})
        (beside / "kernel.json").write_text(json.dumps({"shape": shapes.copy().pop(), "overloads": overloads}))
        try:
            beside.rename(folder)
        except OSError:  # another build was faster
            shutil.rmtree(beside, ignore_errors=True)


_imported: dict[tuple[str, str], Any] = {}


def _import_kernels() -> dict[tuple[str, str], Any]:
    """All kernels that Python calls, by module and name; imported once in a process."""
    if not _imported:
        gc.disable()  # nearly all objects that numba creates stay alive; collecting would take a tenth of the time
        from importlib import import_module

        from kernel_build.translating import Dispatcher
        from vizsla import kernels

        kernels.translator = Dispatcher
        for module in Sources(PACKAGE).with_kernels():
            import_module(module.name)
        _imported.update(((k.function.__module__, k.function.__name__), k) for k in kernels.declared)
    return _imported


def _named_tuples() -> dict[str, Any]:
    """The classes of named tuples that signatures may name."""
    modules = [module for name, module in sys.modules.items() if name.startswith("vizsla.")]
    return {
        name: value for module in modules for name, value in vars(module).items()
        if isinstance(value, type) and hasattr(value, "_fields")
    }  # fmt: skip


def _import_library(folder: Path) -> Path:
    """Make the import library of python3.dll that Windows builds are linked with: the names that module.c declares."""
    source = Path(__file__).with_name("module.c").read_text()
    names = []
    for declaration in re.findall(r"^extern API (.*);$", source, re.MULTILINE):
        if "(" in declaration:
            names.append(re.findall(r"(\w+)\(", declaration)[0])
        else:
            names += [f"{name} DATA" for name in re.findall(r"\*?(Py\w+)(?=,|$)", declaration)]
    definition, made = folder / "python3.def", folder / "python3.lib"
    definition.write_text("LIBRARY python3.dll\nEXPORTS\n" + "".join(f"    {name}\n" for name in names))
    command = [sys.executable, "-m", "ziglang", "dlltool", "-m", "i386:x86-64", "-d", str(definition), "-l", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return made
