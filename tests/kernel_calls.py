"""Whether the tests call each kernel with each of its declared types, and with no others: the recorder's verdict.

    VIZSLA_KERNEL_CALLS=folder python -m pytest ...
    python tests/kernel_calls.py folder

Types that no test calls are not known to work, and cost every build time. Types that are called and not declared are
errors by themselves.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from kernel_build import signatures
from vizsla.kernels import library


def never_called(folder: Path) -> list[str]:
    """The declared types that no file of calls has."""
    called: dict[str, set[str]] = {}
    for file in folder.glob("*.calls"):
        for line in file.read_text().splitlines():
            name, _, codes = line.partition(" ")
            called.setdefault(name, set()).add(codes)
    missing = []
    for name, declared in library.native().signatures().items():
        for signature in declared:
            values = signatures.values_of(signatures.parse(signature))
            if not any(_fits(codes, values) for codes in called.get(name, ())):
                missing.append(f"{name}({signature})")
    return missing


def _fits(codes: str, values: list[signatures.Value]) -> bool:
    found = [codes[i : i + 3] for i in range(0, len(codes), 3)]
    return found == [value.code[:3] for value in values]


if __name__ == "__main__":
    missing = never_called(Path(sys.argv[1]))
    if missing:
        sys.exit("kernels are declared for types that no test calls them with:\n  " + "\n  ".join(missing))
    print("Every kernel was called with all types that it is declared for.")
