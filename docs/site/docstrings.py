"""How docstrings become Markdown: examples become code, and lines that explain a parameter become a list.

mkdocstrings reads this file as an extension of griffe, which reads the sources.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

try:
    from griffe import Class, Docstring, Extension, Module, Object
except ImportError:  # the tests need as_markdown alone
    Class, Docstring, Extension, Module, Object = object, object, object, object, object  # type: ignore[assignment, misc]

PARAMETER = re.compile(r"`[^`]+`(, `[^`]+`)*: ")


def as_markdown(docstring: str) -> str:
    """A docstring whose examples stand between fences and whose parameters are a list.

    >>> as_markdown("Twice.\\n\\n`x`: a number,\\nor a text.\\n\\n>>> twice(2)\\n4").split("\\n")
    ['Twice.', '', '- `x`: a number,', '  or a text.', '', '```pycon', '>>> twice(2)', '4', '```']
    """
    return "\n\n".join(_paragraphs(docstring.split("\n\n")))


def _paragraphs(paragraphs: list[str]) -> Iterator[str]:
    session: list[str] = []
    for paragraph in paragraphs:
        if paragraph.lstrip().startswith(">>> "):
            session.append(paragraph)
            continue
        if session:
            yield _fenced("pycon", session)
            session = []
        if paragraph.startswith("    ") and not paragraph.lstrip().startswith(("-", "`")):
            yield _fenced("python", [paragraph])
        elif PARAMETER.match(paragraph):
            lines = paragraph.split("\n")
            yield "\n".join(f"- {line}" if PARAMETER.match(line) else f"  {line}" for line in lines)
        else:
            yield paragraph
    if session:
        yield _fenced("pycon", session)


def _fenced(language: str, paragraphs: list[str]) -> str:
    text = "\n\n".join(paragraphs)
    indent = len(text) - len(text.lstrip())
    lines = [line[indent:] for line in text.split("\n")]
    return "\n".join([f"```{language}", *lines, "```"])


class Docstrings(Extension):
    """Gives griffe the docstrings as Markdown."""

    def on_object(self, *, obj: Object, **_: object) -> None:
        """Called for every module, class, function and attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_package(self, *, pkg: Module, **_: object) -> None:
        """Called when all of a package is read: a method without a docstring gets that of the class above."""
        for module in _modules(pkg):
            for cls in module.classes.values():
                if not cls.is_alias:
                    _inherit(cls)


def _modules(module: Module) -> Iterator[Module]:
    yield module
    for inner in module.modules.values():
        if not inner.is_alias:
            yield from _modules(inner)


def _inherit(cls: Class) -> None:
    above = cls.mro()
    for name, member in cls.members.items():
        if not member.is_alias and member.docstring is None:
            described = (base.members[name].docstring for base in above if name in base.members)
            if (found := next((text for text in described if text is not None), None)) is not None:
                member.docstring = Docstring(found.value, parent=member)
