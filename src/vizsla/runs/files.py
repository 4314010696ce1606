"""Lines of text files, plain or compressed, with numbers for whoever has to complain about one."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vizsla.errors import InputError

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that hold anything, with their numbers from 1."""
    try:
        with _OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8-sig") as file:
            yield from ((n, line) for n, line in enumerate(file, 1) if not line.isspace())
    except FileNotFoundError:
        raise InputError("there is no such file", file=str(path)) from None
    except IsADirectoryError:
        raise InputError("this is a folder, not a file", file=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("this is not a UTF-8 text file", file=str(path)) from None
    except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile) as e:
        raise InputError(f"this file cannot be decompressed ({e})", file=str(path)) from None


def no_blanks(*ids: str) -> None:
    """TREC's formats separate columns by blanks, so ids must have none."""
    for one in ids:
        if len(one.split()) != 1:
            raise InputError(f"TREC's format has no room for an id that is empty or has blanks in it ({one!r})")
