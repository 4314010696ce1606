"""The import library that Windows builds are linked with: the names of Python's stable ABI in `python3.dll`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path


def import_library(folder: Path) -> Path:
    """Make the import library of python3.dll, with the names that module.c declares."""
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
