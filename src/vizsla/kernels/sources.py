"""What the kernels are built from: their source as text, and digests of it.

A kernel depends on its own source and on the functions, constants and classes that it names, in its module or in
others. The rest of a file may change without a new build. This module imports only the standard library: a build
uses it before anything is installed, and a checkout uses it to see whether its library is stale.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

from vizsla.lazy import cached_property

DECORATORS = ("@njit", "@njit_inlined", "@njit_fastsum")
_NAME = re.compile(r"[A-Za-z_]\w*")
_STATEMENT = re.compile(r"(?:async )?(?:def|class) (\w+)|(\w+)(?:: [^=]+)? = ")
_FIELD = re.compile(r" {4}\w+: ")
_TEXTS = re.compile(r"\"\"\"[\s\S]*?\"\"\"")
_COMMENT = re.compile(r"(^|  )#.*$")
_IMPORT = re.compile(r"^from (vizsla[\w.]*) import (\((?:[^)]*)\)|[^\n(]*)", re.MULTILINE)


class Sources:
    """The source files of a package, read when they are asked for.

    >>> sources = Sources(Path(__file__).parents[1])
    >>> sorted(name for _, name in sources.closure("vizsla.engine.blocks", "MANY"))
    ['MANY']
    """

    def __init__(self, package: Path) -> None:
        self.package = package
        self._modules: dict[str, Module] = {}

    def module(self, name: str) -> Module:
        """The module with a name, as in `vizsla.engine.topk`."""
        if name not in self._modules:
            place = self.package.parent.joinpath(*name.split("."))
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            self._modules[name] = Module(name, file)
        return self._modules[name]

    def with_kernels(self) -> Iterator[Module]:
        """The modules that have kernels."""
        for file in sorted(self.package.rglob("*.py")):
            if b"from vizsla.kernels import" in file.read_bytes():
                yield self.module(".".join(("vizsla", *file.relative_to(self.package).with_suffix("").parts)))

    def closure(self, module: str, name: str) -> dict[tuple[str, str], str]:
        """A statement and all that it names, by module and name."""
        found: dict[tuple[str, str], str] = {}
        todo = [(module, name)]
        while todo:
            place = todo.pop()
            home = self.module(place[0])
            if place in found or place[1] not in home.statements:
                continue
            found[place] = text = home.statements[place[1]]
            todo += [home.imports.get(word, (home.name, word)) for word in set(_NAME.findall(text))]
        return found

    def digest(self, module: str, name: str) -> str:
        """A digest of a kernel and of all that it names."""
        return digest_of(sorted(self.closure(module, name).items()))

    def summary(self) -> tuple[str, list[str]]:
        """A digest of all kernels, and the files that define them."""
        found: dict[tuple[str, str], str] = {}
        for module in self.with_kernels():
            for name, text in module.statements.items():
                if text.startswith(DECORATORS):
                    found.update(self.closure(module.name, name))
        files = {str(self.module(home).file.relative_to(self.package)) for home, _ in found}
        return digest_of(sorted(found.items())), sorted(files)


class Module:
    """A source file: its top-level statements, by the names that they define."""

    def __init__(self, name: str, file: Path) -> None:
        self.name = name
        self.file = file

    @cached_property
    def text(self) -> str:
        try:
            return self.file.read_text(encoding="utf-8")
        except OSError:
            return ""

    @cached_property
    def statements(self) -> dict[str, str]:
        """Functions with their decorators, classes and constants."""
        found: dict[str, str] = {}
        lines: list[str] = []
        for line in [*self.text.splitlines(), "end"]:
            goes_on = not line or line[0] in " )]}#\"'" or (bool(lines) and lines[-1].startswith("@"))
            goes_on = goes_on or _is_open_decorator(lines)
            if goes_on:
                lines.append(line)
                continue
            found.update(_named(lines))
            lines = [line]
        return found

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """For each name imported from the package: the module it comes from, and its name in that module."""
        found = {}
        for module, names in _IMPORT.findall(self.text):
            for item in re.sub(r"#.*", "", names).strip("()").split(","):
                name, _, alias = item.strip().partition(" as ")
                if name:
                    found[alias or name] = (module, name)
        return found


def _is_open_decorator(lines: list[str]) -> bool:
    """Whether lines are decorators whose function is still to come."""
    return bool(lines) and lines[0].startswith("@") and not any(line.startswith(("def ", "class ")) for line in lines)


def _named(lines: list[str]) -> Iterator[tuple[str, str]]:
    """The name that a statement defines, and its text without docstrings, comments and empty lines.

    Of a class only the fields are kept: a kernel does not call methods.
    """
    code = _TEXTS.sub("", "\n".join(lines)).splitlines()
    kept = [line for line in (_COMMENT.sub("", line).rstrip() for line in code) if line]
    heads = [line for line in kept if not line.startswith(("@", " ", ")"))]
    match = _STATEMENT.match(heads[0]) if heads else None
    if match is not None:
        if heads[0].startswith("class "):
            kept = [heads[0], *(line for line in kept if _FIELD.match(line))]
        yield match[1] or match[2], "\n".join(kept)


def digest_of(content: object) -> str:
    """A digest of something that JSON can hold."""
    return hashlib.blake2b(json.dumps(content).encode(), digest_size=16).hexdigest()
