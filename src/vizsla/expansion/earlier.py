"""The queries of an earlier expansion, found again for documents that have not changed."""

from __future__ import annotations

import hashlib
from array import array
from pathlib import Path

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.expansion.records import read_line
from vizsla.expansion.settings import ExpansionSettings, settings_file


class EarlierQueries:
    """The documents of an expanded file by their content; 16 bytes of memory each.

    A last line that is not whole is left out.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        settings = ExpansionSettings.read(settings_file(path))
        if settings is None:
            raise InputError(
                f"{settings_file(path).name} is not beside this file, so nobody knows which generator wrote its "
                "queries; move both together",
                file=str(path),
            )
        self.settings = settings
        keys, offsets = array("Q"), array("q")
        whole, offset = hashlib.sha256(), 0
        self._file = path.open("rb")
        for number, data in enumerate(self._file, 1):
            line = read_line(data)
            if line is None and not data.endswith(b"\n"):
                break
            if line is None:
                raise InputError("vizsla queries generate does not write such a line", file=str(path), line=number)
            keys.append(_key(line.start))
            offsets.append(offset)
            whole.update(data)
            offset += len(data)
        self.digest = whole.hexdigest()
        """Of all whole lines."""
        all_keys = np.array(keys, np.uint64)
        order = np.argsort(all_keys, kind="stable")
        self._keys, self._offsets = all_keys[order], np.array(offsets, np.int64)[order]

    def check(self, settings: ExpansionSettings) -> None:
        """Refuse settings that would make other queries."""
        difference = self.settings.difference(settings, generation_only=True)
        if difference is not None:
            raise VizslaError(
                f"{self._path}: its queries were written with {difference[0]}, and now it is {difference[1]}; queries "
                "are taken over only where both are the same"
            )

    def find(self, start: bytes) -> list[str] | None:
        """The queries of a document, given its line up to them; None if the file does not have that document."""
        key = np.uint64(_key(start))
        first, last = (int(np.searchsorted(self._keys, key, side)) for side in ("left", "right"))
        for offset in self._offsets[first:last].tolist():
            self._file.seek(offset)
            line = read_line(self._file.readline())
            if line is not None and line.start == start:
                return line.queries
        return None

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _key(start: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(start, digest_size=8).digest(), "little")
