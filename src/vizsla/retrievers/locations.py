"""Retrievers by location: a folder, or whatever a registered scheme stands for.

A scheme of your own is one function in a file of your own; import the file, or name it in VIZSLA_PLUGINS:

    @LOCATIONS.register("memory", help="memory:NAME is a retriever of this process.")
    def open_memory(location: str) -> Retriever:
        return RETRIEVERS[location.removeprefix("memory:")]
"""

from __future__ import annotations

import os
import re
from os import PathLike, fspath
from urllib.parse import unquote

from vizsla.errors import UnknownNameError, VizslaError, kind_of
from vizsla.index import Index
from vizsla.runs import Retriever
from vizsla.spec import Registry

LOCATIONS = Registry[Retriever](
    "kind of location", package="vizsla.retrievers", more="vizsla.backends", example="file:my.index"
)
"""What opens a location, by its scheme: a function that takes the whole location and gives a `Retriever`."""
FOLDER = "file"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")  # a single letter is a drive of Windows


def open(location: str | PathLike[str]) -> Retriever:
    """The retriever at a location: a folder with an index, or an address whose scheme is registered in `LOCATIONS`.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp() + "/dogs.index"
    >>> with Index.create(folder) as index:
    ...     _ = index.add([{"id": "1", "text": "Dogs bark."}])
    ...     _ = index.commit()
    >>> with open(folder) as retriever:
    ...     retriever.search("dogs")[0].id
    '1'
    """
    if not isinstance(location, str):
        if not isinstance(location, PathLike):
            raise VizslaError(f"a location is a text or a path, not {kind_of(location)}")
        return Index.open(fspath(location))
    match = _SCHEME.match(location)
    scheme = match[1].lower() if match else FOLDER
    if scheme not in LOCATIONS and os.path.isdir(location):  # a folder with a colon in its name
        return Index.open(location)
    if scheme not in LOCATIONS:
        known = tuple(f"{name}:" for name in LOCATIONS.names())
        raise UnknownNameError(LOCATIONS.what, f"{scheme}:", known)
    return LOCATIONS[scheme].make(location)


@LOCATIONS.register(FOLDER, help="A folder with an index; `file:` may be left out.")
def open_folder(location: str) -> Retriever:
    """The index in a folder, which may be written as a path, as `file:path` or as `file:///path`."""
    path = _path_of(location)
    if not path:
        raise VizslaError(f"{location!r} names no folder; expected the folder of an index, as in my.index")
    return Index.open(path)


def folder_of(location: str | PathLike[str]) -> str | None:
    """The folder that a location names, whether it exists or not; None for an address with another scheme.

    >>> folder_of("my.index"), folder_of("file:my.index"), folder_of("http://localhost:8080/my")
    ('my.index', 'my.index', None)
    """
    if not isinstance(location, str):
        return fspath(location)
    match = _SCHEME.match(location)
    if match is None or match[1].lower() == FOLDER:
        return _path_of(location)
    return location if match[1].lower() not in LOCATIONS and os.path.isdir(location) else None


def _path_of(location: str) -> str:
    """The path in a location without a scheme or with `file:`."""
    path = re.sub(r"^file:", "", location, flags=re.IGNORECASE)
    if path != location and path.startswith("//"):
        path = unquote(re.sub(r"^//(localhost)?(?=/)", "", path))
    return path
