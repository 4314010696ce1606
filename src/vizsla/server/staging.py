"""Changes that wait on disk for a commit: documents to add and documents to delete, in the order they came.

Any worker may take them in, and any may commit them. A change is a file. It is written under a name of its own and
renamed when it is complete, so that a crash leaves no half of it. A commit notes in the index the names of the changes
that it holds, so that a change whose file is still there after a crash is not applied a second time.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import IO
from uuid import uuid4

from vizsla.index.storage.arrays import sync_folder
from vizsla.server.errors import RequestError
from vizsla.server.settings import Settings

ADD, DELETE = ".add.jsonl", ".delete.json"
_counter = count()


def state_folder(settings: Settings, name: str, folder: Path) -> Path:
    """The folder of what the server itself keeps about an index: beside the index, or where the settings say."""
    return Path(settings.state).absolute() / name if settings.state else folder.with_name(folder.name + ".serve")


class Staging:
    """The changes of one index that wait for a commit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @contextlib.contextmanager
    def incoming(self) -> Iterator[IO[bytes]]:
        """A new file to write a change to; it is removed at the end unless `keep` has renamed it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            file = tempfile.NamedTemporaryFile(dir=self.folder, prefix="incoming-", delete=False)  # noqa: SIM115
        except OSError as e:
            raise cannot_write(e) from e
        try:
            with file:
                yield file
        except OSError as e:
            raise cannot_write(e) from e
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(file.name)

    def keep(self, file: IO[bytes], suffix: str) -> Path:
        """Keep a complete change until the next commit, also after a crash."""
        file.flush()
        os.fsync(file.fileno())
        target = self.folder / f"{time.time_ns():020d}-{os.getpid()}-{next(_counter)}{suffix}"
        os.rename(file.name, target)
        sync_folder(self.folder)
        return target

    def keep_deletion(self, request: dict[str, object]) -> Path:
        """Keep a deletion until the next commit."""
        with self.incoming() as file:
            file.write(json.dumps(request).encode())
            return self.keep(file, DELETE)

    def changes(self) -> list[Path]:
        """The files of all changes that wait, in order."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if path.name.endswith((ADD, DELETE)))

    def discard(self, changes: list[Path]) -> None:
        """Remove changes that are committed, or not wanted; they do not come back after a crash."""
        for path in changes:
            path.unlink(missing_ok=True)
        if changes:
            sync_folder(self.folder)

    @property
    def note(self) -> str:
        """Under which name an index notes what it holds of these changes: another one for each folder of changes."""
        named = self.folder / "name"
        if not named.exists():
            with self.incoming() as file, contextlib.suppress(FileExistsError):
                file.write(f"staged {uuid4().hex}".encode())
                file.flush()
                os.fsync(file.fileno())
                os.link(file.name, named)
                sync_folder(self.folder)
        return named.read_text()


def cannot_write(error: OSError) -> RequestError:
    """The answer when the server's own disk refuses: nothing of the request was kept."""
    return RequestError(f"the server cannot store this ({error.strerror or error}); nothing was changed", 507)
