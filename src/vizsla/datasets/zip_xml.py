"""Zip packages of XML files, as DOCX, PPTX, EPUB and ODT are, read with bounds on what they may hold.

Nothing is unpacked to disk, and no package in a package is opened. XML that declares entities is refused, and nothing
that it refers to is loaded.
"""

from __future__ import annotations

import posixpath
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO
from urllib.parse import unquote
from xml.parsers import expat

from vizsla.datasets.source_format import NoText, Refusal

MAX_ENTRIES = 20_000
MAX_RATIO = 200
"""The most bytes that a byte of a large entry may become."""
MAX_BYTES = 256_000_000
"""The most bytes that all entries of a package together may become."""
_ALWAYS = 4_000_000  # bytes that an entry may become at any ratio
_MAX_DEPTH = 256
_CHUNK = 1 << 16
_OLE = b"\xd0\xcf\x11\xe0"  # the files of Word before 2007, and encrypted ones since


class Package:
    """An open zip package."""

    def __init__(self, stream: IO[bytes]) -> None:
        if stream.read(4) == _OLE:
            raise NoText("this file is encrypted, or of a program from before 2007")
        stream.seek(0)
        try:
            self._zip = zipfile.ZipFile(stream)
        except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError, EOFError, OSError) as e:
            raise _damaged(e) from None
        self._left = MAX_BYTES
        entries = self._zip.infolist()
        if len(entries) > MAX_ENTRIES:
            raise Refusal(f"this file has {len(entries):,} parts; at most {MAX_ENTRIES:,} are read")
        self._entries = {entry.filename: entry for entry in entries}

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def read(self, name: str) -> bytes:
        """The bytes of a part; a missing part is refused, and so is one that is too large."""
        entry = self._entries.get(name)
        if entry is None:
            raise Refusal(f"the file is damaged or not what its name says ({name} is missing)")
        if entry.flag_bits & 1:
            raise NoText("this file is encrypted")
        data = bytearray()
        most = max(_ALWAYS, entry.compress_size * MAX_RATIO)
        try:
            with self._zip.open(entry) as part:
                while chunk := part.read(_CHUNK):
                    data += chunk
                    if len(data) > most:
                        raise Refusal(f"{name} in this file grows to more than {MAX_RATIO} times its packed size")
                    if len(data) > self._left:
                        raise Refusal(f"this file unpacks to more than {MAX_BYTES:,} bytes")
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError, RuntimeError) as e:
            raise _damaged(e) from None
        self._left -= len(data)
        return bytes(data)

    def xml(self, name: str) -> Element:
        """A part of XML as a tree."""
        return parse_xml(self.read(name))

    def relations(self, name: str) -> dict[str, tuple[str, str]]:
        """What a part of an Office file refers to in the same file: its type and its name, by id."""
        folder, base = posixpath.split(name)
        relations = posixpath.join(folder, "_rels", f"{base}.rels")
        if relations not in self:
            return {}
        found = {}
        for relation in self.xml(relations).all("Relationship"):
            if relation.get("TargetMode") != "External":
                kind = relation.get("Type").rpartition("/")[2]
                found[relation.get("Id")] = kind, resolved(folder, relation.get("Target"))
        return found


def _damaged(e: Exception) -> Refusal:
    return Refusal(f"the file is damaged or not what its name says ({e or type(e).__name__})")


def resolved(folder: str, target: str) -> str:
    """The name of a part that another one refers to.

    >>> resolved("ppt/slides", "../media/dog.png"), resolved("OEBPS", "text/a%20b.xhtml#top")
    ('ppt/media/dog.png', 'OEBPS/text/a b.xhtml')
    """
    path = unquote(target.partition("#")[0])
    return path.lstrip("/") if path.startswith("/") else posixpath.normpath(posixpath.join(folder, path))


class Element:
    """An element of XML: its name and the names of its attributes are without namespaces."""

    __slots__ = ("attributes", "children", "name")

    def __init__(self, name: str, attributes: dict[str, str]) -> None:
        self.name = name
        self.attributes = attributes
        self.children: list[Element | str] = []

    def get(self, name: str) -> str:
        """An attribute, empty if it is missing."""
        return self.attributes.get(name, "")

    @property
    def elements(self) -> Iterator[Element]:
        """The elements in it."""
        return (child for child in self.children if isinstance(child, Element))

    def first(self, *path: str) -> Element | None:
        """The first element at a path."""
        here: Element | None = self
        for name in path:
            here = next((child for child in here.elements if child.name == name), None) if here else None
        return here

    def all(self, name: str) -> Iterator[Element]:
        """All elements of a name in it, at any depth, in order."""
        waiting = list(self.elements)[::-1]
        while waiting:
            element = waiting.pop()
            if element.name == name:
                yield element
            waiting.extend(list(element.elements)[::-1])

    def walk(self, enters: Callable[[Element], bool] = lambda _: True) -> Iterator[tuple[str, Element]]:
        """Its content in order: `start` and `end` of each element, and `text` with an element whose name it is.

        What is in an element that `enters` does not accept is left out.
        """
        waiting: list[tuple[str, Element]] = [("start", self)]
        while waiting:
            event, element = waiting.pop()
            if event == "start" and not enters(element):
                continue
            yield event, element
            if event == "start":
                waiting.append(("end", element))
                inner = (("text", Element(c, _NONE)) if isinstance(c, str) else ("start", c) for c in element.children)
                waiting.extend(list(inner)[::-1])

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(element.name for event, element in self.walk() if event == "text")


_NONE: dict[str, str] = {}  # what elements without attributes share


def parse_xml(data: bytes) -> Element:
    """The tree of an XML file. Declared entities, and elements in too many others, are refused.

    >>> parse_xml(b'<p>Dogs <b x="1">bark</b>.</p>').text
    'Dogs bark.'
    """
    parser = expat.ParserCreate(namespace_separator=" ")
    root = Element("", {})
    open_elements = [root]

    def start(name: str, attributes: dict[str, str]) -> None:
        if len(open_elements) > _MAX_DEPTH:
            raise Refusal("the XML in this file is nested too deeply")
        found = {_bare(key): value for key, value in attributes.items()} if attributes else _NONE
        element = Element(_bare(name), found)
        open_elements[-1].children.append(element)
        open_elements.append(element)

    def end(_: str) -> None:
        open_elements.pop()

    def text(data: str) -> None:
        open_elements[-1].children.append(data)

    def doctype(_name: str, _system: str | None, _public: str | None, has_declarations: int) -> None:
        if has_declarations:
            raise Refusal("the XML in this file has a document type with declarations, which are not read")

    def entity(*_: object) -> None:
        raise Refusal("the XML in this file declares entities, which are not read")

    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.StartDoctypeDeclHandler, parser.EntityDeclHandler = doctype, entity
    with suppress(AttributeError):  # Python 3.14
        parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    try:
        parser.Parse(data, True)
    except expat.ExpatError as e:
        raise Refusal(f"the file is damaged or not what its name says (XML: {e})") from None
    except (ValueError, LookupError) as e:  # an encoding that Python does not know
        raise Refusal(f"the XML in this file cannot be read ({e})") from None
    found = root.first(*[child.name for child in root.elements][:1])
    assert found is not None
    return found


def _bare(name: str) -> str:
    return name.rpartition(" ")[2]
