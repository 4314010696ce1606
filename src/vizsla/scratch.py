"""Arrays and texts that grow in a temporary file, so that an entry for each document of a corpus takes no memory.

The file has no name that outlives the process. It lies in the folder that the environment variable TMPDIR names, by
default /tmp; a corpus needs about as much room there as its texts have.
"""

from __future__ import annotations

import tempfile
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import IO, Any, overload

import numpy as np

_HELD = 1 << 24
"""Bytes that are held in memory; a longer array goes to a file."""
_BLOCK = 1 << 20
"""Numbers of an array that are converted at once."""
_TEXTS = 1024
"""Texts that are written and read at once."""


def temporary_file() -> IO[bytes]:
    """A file without a name, which is deleted when it is closed."""
    file: IO[bytes] = tempfile.TemporaryFile(prefix="vizsla-")  # noqa: SIM115 (its owner closes it)
    return file


class GrowingArray:
    """An array of numbers that is written block by block and read when it is complete.

    >>> numbers = GrowingArray(np.uint16)
    >>> numbers.append(np.array([5, 6]))
    >>> numbers.append(np.array([7]))
    >>> len(numbers), numbers.array().tolist(), numbers.array().dtype
    (3, [5, 6, 7], dtype('uint16'))
    """

    def __init__(self, dtype: Any) -> None:
        self.dtype = np.dtype(dtype)
        self._parts: list[np.ndarray] = []
        self._file: IO[bytes] | None = None
        self._count = self._held = 0

    @classmethod
    def of(cls, blocks: Iterable[np.ndarray], dtype: Any) -> np.ndarray:
        """All blocks as one array."""
        growing = cls(dtype)
        for block in blocks:
            growing.append(block)
        return growing.array()

    def __len__(self) -> int:
        return self._count

    def append(self, block: np.ndarray) -> None:
        """Add numbers at the end."""
        self._parts.append(block.astype(self.dtype))
        self._count += len(block)
        self._held += self._parts[-1].nbytes
        if self._held > _HELD:
            if self._file is None:
                self._file = temporary_file()
                weakref.finalize(self, self._file.close)
            for part in self._parts:
                self._file.write(part.tobytes())
            self._parts, self._held = [], 0

    def array(self) -> np.ndarray:
        """All numbers, mapped into memory if they are many; nothing can be added after that."""
        if self._file is None:
            return np.concatenate([np.zeros(0, self.dtype), *self._parts])
        for part in self._parts:
            self._file.write(part.tobytes())
        self._parts = []
        self._file.flush()
        return np.asarray(np.memmap(self._file, self.dtype, "r", shape=(self._count,)))


class StoredTexts(Sequence[str]):
    """Texts in a temporary file, read when they are looked at; memory holds where each begins.

    >>> texts = StoredTexts.of(["Dogs bark.", "", "Cats purr."])
    >>> len(texts), texts[2], texts[:2], list(texts)
    (3, 'Cats purr.', ['Dogs bark.', ''], ['Dogs bark.', '', 'Cats purr.'])
    """

    def __init__(self, file: IO[bytes], offsets: np.ndarray) -> None:
        self._file, self._offsets = file, offsets
        self._lock = threading.Lock()

    @classmethod
    def of(cls, texts: Iterable[str]) -> StoredTexts:
        """Write texts to a temporary file."""
        file, sizes, stream = temporary_file(), GrowingArray(np.int64), iter(texts)
        try:
            while block := [text.encode("utf-8", "surrogatepass") for text in islice(stream, _TEXTS)]:
                file.write(b"".join(block))
                sizes.append(np.fromiter(map(len, block), np.int64, len(block)))
            file.flush()
        except BaseException:
            file.close()
            raise
        stored = cls(file, offsets_of(sizes.array()))
        weakref.finalize(stored, file.close)
        return stored

    def __len__(self) -> int:
        return len(self._offsets) - 1

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        places = range(len(self))[number]
        if isinstance(places, int):
            return self._read(places, places + 1)[0]
        return self._read(places.start, places.stop) if places.step == 1 else [self[place] for place in places]

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _TEXTS):
            yield from self._read(first, min(first + _TEXTS, len(self)))

    def _read(self, first: int, last: int) -> list[str]:
        if first >= last:
            return []
        ends = (self._offsets[first : last + 1] - self._offsets[first]).tolist()
        with self._lock:
            self._file.seek(int(self._offsets[first]))
            data = self._file.read(ends[-1])
        return [str(data[a:z], "utf-8", "surrogatepass") for a, z in pairwise(ends)]


def offsets_of(sizes: np.ndarray) -> np.ndarray:
    """[n + 1] where each of n things of these sizes begins, and where the last one ends.

    >>> offsets_of(np.array([2, 0, 3])).tolist()
    [0, 2, 2, 5]
    """
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    return offsets


def blocks_of(array: np.ndarray) -> Iterator[np.ndarray]:
    """An array in parts that are small enough to be converted in memory.

    >>> [block.tolist() for block in blocks_of(np.arange(3))]
    [[0, 1, 2]]
    """
    return (array[first : first + _BLOCK] for first in range(0, len(array), _BLOCK))
