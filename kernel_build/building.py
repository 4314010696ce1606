"""Building the extension module: translate, compile and link all kernels, in parallel, with a cache.

    python -m kernel_build                  # for this machine, into src/vizsla/kernels
    python -m kernel_build --target macosx_11_0_arm64 --out FOLDER

Files of the cache are named by what they were made from, so a build makes only what has changed.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from kernel_build.targets import TARGETS, Target

ROOT = Path(__file__).parents[1]
CACHE = ROOT / "build" / "kernels"
PACKAGE = ROOT / "src" / "vizsla"


class BuildError(Exception):
    """The kernels cannot be built; the message says what to do."""


class Job(NamedTuple):
    """One kernel: all its overloads, for all levels of a target."""

    module: str
    name: str
    digest: str

    def folder(self, target: Target) -> Path:
        return CACHE / "objects" / f"{self.name}-{self.digest}-{target.tag}"


def this_target() -> Target:
    """The target that this machine is."""
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    system = {"linux": "linux", "darwin": "macos", "win32": "windows"}.get(sys.platform, sys.platform)
    for target in TARGETS:
        if target.name.startswith(f"{machine}-{system}"):
            return target
    raise BuildError(f"Vizsla has no kernels for {system} on {machine}")


def compiler() -> list[str]:
    """The command of a C compiler: the system's, else zig's."""
    named = os.environ.get("CC", "").split()
    for command in (named, ["cc"], ["gcc"], ["clang"]):
        if command and shutil.which(command[0]):
            return command
    return zig()


def zig() -> list[str]:
    """The command of zig's C compiler, which links for every target."""
    from importlib.util import find_spec

    if find_spec("ziglang") is None:
        raise BuildError(
            "building Vizsla's kernels needs a C compiler: install gcc or clang, or run: pip install ziglang"
        )
    return [sys.executable, "-m", "ziglang", "cc"]


def build(target: Target, out: Path, *, portable: bool, workers: int | None = None) -> Path:
    """Build the library of a target into a folder; `portable`: link it with zig for the oldest supported system."""
    from vizsla.kernels.library import summarize

    summary = summarize(ROOT)
    kind = "portable" if portable else "local"
    built = CACHE / "libraries" / f"{summary['digest']}-{target.tag}-{kind}" / target.library
    if not built.exists():
        jobs = list(_jobs())
        _compile_all(jobs, target, workers or os.cpu_count() or 1)
        _link(jobs, target, summary["digest"], built, zig() if portable else compiler(), portable=portable)
    out.mkdir(parents=True, exist_ok=True)
    _put(built, out / target.library)
    return out / target.library


def install() -> None:
    """Build the library of this machine beside the sources, with a note of what it was built from."""
    from vizsla.kernels import library

    build(this_target(), library.SUMMARY.parent, portable=False)
    library.SUMMARY.write_text(json.dumps(library.summarize(ROOT), indent=1) + "\n")


def _jobs() -> Iterator[Job]:
    """All kernels that Python calls."""
    from vizsla.kernels.library import digest_of_file
    from vizsla.kernels.sources import DECORATORS, Sources, digest_of

    tools = digest_of([digest_of_file(ROOT / "kernel_build" / name) for name in _TOOLS])
    sources = Sources(PACKAGE)
    for module in sources.with_kernels():
        for name, text in module.statements.items():
            if text.startswith(tuple(f"{d}(" for d in DECORATORS)):
                yield Job(module.name, name, digest_of([tools, sources.digest(module.name, name)])[:16])


_TOOLS = ("entries.py", "machine_code.py", "signatures.py", "targets.py", "translating.py")


def _compile_all(jobs: list[Job], target: Target, workers: int) -> None:
    todo = sorted((job for job in jobs if not job.folder(target).exists()), key=_cost, reverse=True)
    if not todo:
        return
    print(f"Compiling {len(todo)} kernels for {target.tag} ...", file=sys.stderr, flush=True)
    if workers == 1 or len(todo) == 1:
        for job in todo:
            _compile(job, target)
        return
    os.environ["VIZSLA_KERNELS"] = "build"
    with ProcessPoolExecutor(min(workers, len(todo))) as pool:
        for _ in pool.map(_compile, todo, [target] * len(todo)):
            pass


def _cost(job: Job) -> int:
    """Kernels that take long come first, so that no process works alone at the end."""
    return _LONG.index(job.name) + 1 if job.name in _LONG else 0


_LONG = ("score_rows", "_find_phrases", "number_words", "search_exhaustively", "search_segment")


def _compile(job: Job, target: Target) -> None:
    """Compile the overloads of a kernel into objects."""
    kernels = _import_kernels()
    from kernel_build import machine_code, signatures

    kernel = kernels[job.module, job.name]
    folder = job.folder(target)
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    overloads = []
    for i, signature in enumerate(kernel.signatures):
        arguments = signatures.parse(signature)
        bitcode, result = kernel.compiled.translate(signatures.numba_types(arguments, _named_tuples()))
        symbols = []
        for level in target.levels:
            symbol = f"vizsla_{job.name}_{job.digest}_{i}_{level.name.replace('-', '_')}"
            (beside / f"{symbol}.o").write_bytes(machine_code.object_file(bitcode, symbol, target.triple, level))
            symbols.append(symbol)
        values = signatures.values_of(arguments)
        codes = "".join(value.code for value in values)
        overloads.append({"signature": signature, "codes": codes, "result": result, "symbols": symbols})
    shapes = {signatures.shape_of(signatures.parse(signature)) for signature in kernel.signatures}
    if len(shapes) != 1:
        raise BuildError(f"the signatures of {job.module}.{job.name} have different numbers of arguments")
    (beside / "kernel.json").write_text(json.dumps({"shape": shapes.pop(), "overloads": overloads}))
    try:
        beside.rename(folder)
    except OSError:  # another build was faster
        shutil.rmtree(beside, ignore_errors=True)


_imported: dict[tuple[str, str], Any] = {}


def _import_kernels() -> dict[tuple[str, str], Any]:
    """All kernels that Python calls, by module and name; imported once in a process."""
    if not _imported:
        os.environ["VIZSLA_KERNELS"] = "build"
        sys.path.insert(0, str(PACKAGE.parent))
        from importlib import import_module

        from kernel_build.translating import Dispatcher
        from vizsla import kernels
        from vizsla.kernels.sources import Sources

        kernels.MODE, kernels.translator = "build", Dispatcher
        for module in Sources(PACKAGE).with_kernels():
            import_module(module.name)
        _imported.update(((k.function.__module__, k.function.__name__), k) for k in kernels.declared)
    return _imported


def _named_tuples() -> dict[str, Any]:
    """The classes of named tuples that signatures may name."""
    _import_kernels()
    modules = [module for name, module in sys.modules.items() if name.startswith("vizsla.")]
    return {
        name: value for module in modules for name, value in vars(module).items()
        if isinstance(value, type) and hasattr(value, "_fields")
    }  # fmt: skip


def _link(jobs: list[Job], target: Target, digest: str, out: Path, command: list[str], *, portable: bool) -> None:
    """Link all objects with module.c."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as name:
        folder = Path(name)
        (folder / "kernels.h").write_text(_table(jobs, target, digest))
        objects = [str(file) for job in jobs for file in sorted(job.folder(target).glob("*.o"))]
        (folder / "objects").write_text("\n".join(f'"{file}"' for file in objects).replace("\\", "/"))
        source = [
            str(ROOT / "kernel_build" / "module.c"),
            "-I",
            str(folder),
            "-O2",
            "-fvisibility=hidden",
            "-Wall",
            "-Wextra",
        ]
        options = _link_options(target, folder, portable=portable)
        made = folder / out.name
        done = subprocess.run(
            [*command, "-shared", *source, f"@{folder / 'objects'}", *options, "-o", str(made)],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            raise BuildError(f"{' '.join(command)} cannot link the kernels: {done.stderr.strip()[-2000:]}")
        os.replace(made, out)


def _link_options(target: Target, folder: Path, *, portable: bool) -> list[str]:
    cross = ["-target", target.name] if portable else []
    if target.system == "linux":
        return [*cross, "-fPIC", "-s", "-lm", "-Wl,--no-undefined-version", "-Wl,-z,now"]
    if target.system == "macos":
        return [*cross, "-fPIC", "-Wl,-undefined,dynamic_lookup"]
    from kernel_build.windows import import_library

    return [*cross, "-s", str(import_library(folder))]


def _table(jobs: list[Job], target: Target, digest: str) -> str:
    """The C source of the table of kernels."""
    lines = [f'#define DIGEST "{digest}"']
    table = []
    for n, job in enumerate(jobs):
        kernel = json.loads((job.folder(target) / "kernel.json").read_text())
        entries = []
        for overload in kernel["overloads"]:
            symbols = overload["symbols"]
            lines += [f"extern int32_t {symbol}(const int64_t *, int64_t *);" for symbol in symbols]
            codes, signature, result = (overload[part] for part in ("codes", "signature", "result"))
            entries.append(f'    {{"{codes}", "{signature}", \'{result}\', {{{", ".join(symbols)}}}}},')
        lines += [f"static const Overload overloads_{n}[] = {{", *entries, "};"]
        count = len(entries)
        table.append(f'    {{"{job.module}.{job.name}", "{kernel["shape"]}", overloads_{n}, {count}}},')
    names = ", ".join(f'"{level.name}"' for level in target.levels)
    return "\n".join(
        [
            *lines,
            "static const Kernel kernels[] = {",
            *table,
            "};",
            f"static const char *const level_names[] = {{{names}}};",
            "",
        ]
    )


def _put(file: Path, to: Path) -> None:
    """Replace a library by a copy; a process that has the old one open keeps it."""
    beside = to.with_name(f".{to.name}.{os.getpid()}")
    shutil.copyfile(file, beside)
    os.replace(beside, to)


def wheel_tag() -> str:
    """The tag of a wheel that is built for this machine alone."""
    return f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
