"""Wheels for all systems from one machine: `python -m kernel_build.wheels FOLDER`.

Each library is inspected: its exports, its imports, and the version of the C library that it requires. A wheel that
this machine cannot run is untested until the workflow in `.github` has run it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from kernel_build.targets import TARGETS, Target

ROOT = Path(__file__).parents[1]
_OLDEST_GLIBC = (2, 28)
_C = {
    "memcpy", "memmove", "memset", "strchr", "strcmp", "strlen", "strrchr", "memchr", "snprintf", "__snprintf_chk",
    "__stack_chk_fail", "__stack_chk_guard", "sqrt", "bzero", "__bzero", "dyld_stub_binder", "__cxa_finalize",
    "__gmon_start__", "_ITM_deregisterTMCloneTable", "_ITM_registerTMCloneTable", "___chkstk_darwin",
}  # fmt: skip
"""The names that a library may import from the system."""


def python_names() -> set[str]:
    """The names of Python's stable ABI that module.c declares."""
    source = Path(__file__).with_name("module.c").read_text()
    declared = re.findall(r"^extern API (.*);$", source, re.MULTILINE)
    return {name for line in declared for name in re.findall(r"\b(Py_?[A-Z]\w+)(?=\(|,|$)", line)}


def problems(library: bytes, target: Target) -> list[str]:
    """What is wrong with a library."""
    import lief

    binary: Any = lief.parse(list(library))
    found, known = [], python_names() | _C
    if target.system == "linux":
        symbols = list(binary.dynamic_symbols)
        exported = {s.name for s in symbols if s.name and not s.imported and s.exported}
        taken = {s.name for s in symbols if s.name and s.imported}
        versions = {v.name for need in binary.symbols_version_requirement for v in need.get_auxiliary_symbols()}
        for version in versions:
            numbers = tuple(map(int, re.findall(r"\d+", version)))
            if not version.startswith("GLIBC_") or numbers > _OLDEST_GLIBC:
                found.append(f"it asks for {version}")
    elif target.system == "macos":
        exported = {s.name.removeprefix("_") for s in binary.exported_symbols} - {"__dso_handle", "_mh_dylib_header"}
        taken = {s.name.removeprefix("_") for s in binary.imported_symbols}
        if "arm64" in target.tag and not binary.has_code_signature:
            found.append("it is not signed, which macOS on ARM asks for")
    else:
        exported = {e.name for e in binary.get_export().entries}
        taken = {e.name for i in binary.imports if i.name.lower().startswith("python") for e in i.entries}
        dlls = {i.name.lower() for i in binary.imports}
        strange = {d for d in dlls if d not in ("python3.dll", "kernel32.dll") and not d.startswith("api-ms-win-crt")}
        found += [f"it asks for {dll}" for dll in sorted(strange)]
    if exported != {"PyInit__native"}:
        found.append(f"it exports {', '.join(sorted(exported)) or 'nothing'}")
    if taken - known:
        found.append(f"it takes {', '.join(sorted(taken - known))} from elsewhere")
    return found


def main() -> None:
    folder, wrong = Path(sys.argv[1]), 0
    for target in TARGETS:
        command = [sys.executable, "-m", "build", "-q", "--wheel", "-o", str(folder), str(ROOT)]
        subprocess.run(command, check=True, env={**os.environ, "VIZSLA_TARGET": target.tag})
        (wheel,) = folder.glob(f"vizsla-*-cp311-abi3-{target.tag}.whl")
        with zipfile.ZipFile(wheel) as files:
            library = files.read(f"vizsla/kernels/{target.library}")
        found = problems(library, target)
        wrong += len(found)
        print(f"{wheel.name}: kernels of {len(library) / 1e6:.1f} MB; {'; '.join(found) or 'sound'}", flush=True)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
