"""Changes of an index that requests ask for: staged on disk, then applied and committed under the writer's lock.

Changes that wait for a commit, documents to add and documents to delete, are files in the order they came. Any worker
may take them in, and any may commit them. A file is written under a name of its own and renamed when it is complete, so
that a crash leaves no half of it. A commit notes in the index the names of the changes that it holds, so that a change
whose file is still there after a crash is not applied a second time.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np

from vizsla.datasets.files import InputFile
from vizsla.datasets.formats.json import read_json_records
from vizsla.datasets.records import change_from
from vizsla.datasets.skipped import Skipped
from vizsla.errors import InputError, UnsupportedError, VizslaError
from vizsla.index import Index, Writer
from vizsla.index.storage.arrays import sync_folder
from vizsla.models import as_text, is_text
from vizsla.plain_data import parse_json
from vizsla.runs import Document
from vizsla.runs.documents import Origin
from vizsla.runs.filters import Filter
from vizsla.server.errors import RequestError
from vizsla.server.hosting import Hosted
from vizsla.server.quotas import check_documents
from vizsla.server.settings import Limits

ADD, UPDATE, DELETE = ".add.jsonl", ".update.jsonl", ".delete.json"
IDS = ".ids"
"""The file beside an `ADD` that finds its documents by id: a hash of eight bytes for each id, sorted."""
_counter = itertools.count()


class Staging:
    """The staged changes of one index, in a folder that `is_made` if it is not there."""

    def __init__(self, folder: Path, *, is_made: bool = True) -> None:
        self.folder = folder
        self._is_made = is_made

    @contextlib.contextmanager
    def incoming(self) -> Iterator[IO[bytes]]:
        """A new file to write a change to; it is removed at the end unless `keep` has renamed it."""
        try:
            if self._is_made:
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

    def keep_documents(self, file: IO[bytes], ids: Iterable[str]) -> None:
        """Keep a complete file of documents with these ids until the next commit, even after a crash."""
        target = self._target(ADD)
        with self.incoming() as hashes:
            hashes.write(np.sort(_hashes(ids)).tobytes())
            _move(hashes, _ids_file(target))  # before the documents, so that these never lack it
        _move(file, target)
        sync_folder(self.folder)

    def keep_update(self, file: IO[bytes]) -> None:
        """Keep a complete file of changes of documents until the next commit."""
        _move(file, self._target(UPDATE))
        sync_folder(self.folder)

    def keep_deletion(self, request: dict[str, object]) -> None:
        """Keep a deletion until the next commit."""
        with self.incoming() as file:
            file.write(json.dumps(request).encode())
            _move(file, self._target(DELETE))
            sync_folder(self.folder)

    def _target(self, suffix: str) -> Path:
        return self.folder / f"{time.time_ns():020d}-{os.getpid()}-{next(_counter)}{suffix}"

    def changes(self) -> list[Path]:
        """The files of all changes that wait, in order."""
        if not self.folder.is_dir():
            return []
        return sorted(path for path in self.folder.iterdir() if path.name.endswith((ADD, UPDATE, DELETE)))

    def discard(self, changes: list[Path]) -> None:
        """Remove changes that are committed or discarded, durably: they do not reappear after a crash."""
        for path in changes:
            path.unlink(missing_ok=True)
            _ids_file(path).unlink(missing_ok=True)
        if changes:
            sync_folder(self.folder)

    @property
    def note(self) -> str:
        """The name of the note in an index that records its committed changes, one for each folder of changes."""
        named = self.folder / "name"
        if not named.exists():
            with self.incoming() as file, contextlib.suppress(FileExistsError):
                file.write(f"staged {uuid4().hex}".encode())
                file.flush()
                os.fsync(file.fileno())
                os.link(file.name, named)
                sync_folder(self.folder)
        return named.read_text()


def _move(file: IO[bytes], target: Path) -> None:
    """Give a complete file its name."""
    file.flush()
    os.fsync(file.fileno())
    os.rename(file.name, target)


def _ids_file(change: Path) -> Path:
    return change.with_name(change.name.removesuffix(ADD) + IDS)


def _hashes(ids: Iterable[str]) -> np.ndarray:
    encoded = (doc_id.encode(errors="surrogatepass") for doc_id in ids)
    digests = b"".join(hashlib.blake2b(doc_id, digest_size=8).digest() for doc_id in encoded)
    return np.frombuffer(digests, np.uint64)


def cannot_write(error: OSError) -> RequestError:
    """The response to a failed write to the server's own disk: nothing was stored."""
    return RequestError(f"the server cannot store this ({error.strerror or error}); nothing was changed", 507)


if TYPE_CHECKING:
    from vizsla.backends.qdrant.writer import QdrantWriter

    AnyWriter = Writer | QdrantWriter

# Applying

BODY = "documents"
"""How messages name the body of a request."""


def documents_in(file: Path, limits: Limits, skipped: Skipped | None = None) -> Iterator[Document]:
    """The documents of a file of JSON; errors name the line. With `skipped`, what is wrong is noted there."""
    source = _source(file, limits, skipped)
    for line, record in _records(source, limits):
        try:
            document = Document.from_record(record, Origin(BODY, line))
        except InputError as e:
            source.leave_out(e)
            continue
        yield document


def changes_in(file: Path, limits: Limits) -> dict[str, dict[str, Any]]:
    """The changes of documents in a file of JSON, by id; of several changes of a field the last one counts."""
    changes: dict[str, dict[str, Any]] = {}
    for line, record in _records(_source(file, limits), limits):
        doc_id, fields = change_from(record, Origin(BODY, line))
        changes.setdefault(doc_id, {}).update(fields)
    return changes


def _source(file: Path, limits: Limits, skipped: Skipped | None = None) -> InputFile:
    return InputFile(file, BODY, limits.line_bytes, "the server's limit line_bytes allows larger ones", skipped)


def _records(source: InputFile, limits: Limits) -> Iterator[tuple[int, Any]]:
    """The lines and records of a body: a record a line, an array of records, or records over several lines."""
    for count, found in enumerate(read_json_records(source), 1):
        if count > limits.documents:
            raise RequestError(
                f"there are more than {limits.documents:,} documents; send them in several requests", 413
            )
        yield found


def stage_update(file: IO[bytes], hosted: Hosted, staging: Staging, limits: Limits) -> dict[str, Any]:
    """Keep changes of documents until the next commit; those that their committed documents refuse are refused.

    Gives how many there are, for how many documents there is one, and the ids for which there is none.
    """
    changes, model = changes_in(Path(file.name), limits), hosted.index.model
    for doc_id, document in hosted.index.get_many(changes).items():
        content = {**document.content, **changes[doc_id]}
        problem = model.problem({name: value for name, value in content.items() if value is not None})
        if problem is not None:
            raise RequestError(f"the change of the document {doc_id[:200]!r} is refused: the document {problem}")
    known = existing(hosted, staging, changes, limits)
    staging.keep_update(file)
    missing = [doc_id for doc_id in changes if doc_id not in known]
    return {"staged": len(changes), "updated": len(known), "missing": missing}


def check_updates(hosted: Hosted) -> None:
    """Refuse changes of documents where they cannot be made."""
    if not isinstance(hosted.index, Index):
        raise UnsupportedError("documents of a cluster cannot be changed in part; add them as a whole")
    if not hosted.index.info()["stored"]:
        raise UnsupportedError(
            f"the texts of {hosted.name} are not stored, so documents cannot be changed in part; add them as a whole"
        )


def stage_documents(
    file: IO[bytes], hosted: Hosted, staging: Staging, limits: Limits, *, skip_bad: bool = False
) -> dict[str, Any]:
    """Keep documents until the next commit; those that could not be added are refused, or left out with `skip_bad`.

    Gives how many there are, how many of them replace others, the ids of those without any text, and what was left out.
    """
    skipped = Skipped() if skip_bad else None
    if skipped is None:
        return _stage(file, hosted, staging, limits, documents_in(Path(file.name), limits))
    with staging.incoming() as good:
        for document in documents_in(Path(file.name), limits, skipped):
            problem = hosted.index.model.problem(document.with_fields(hosted.index.model.fields).content)
            if problem is not None:
                line = document.origin.line if document.origin else None
                skipped.add(InputError(f"the document {problem}", file=BODY, line=line))
                continue
            record = {**document.content, "_id": document.id}
            good.write(json.dumps(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        good.flush()
        answer = _stage(good, hosted, staging, limits, documents_in(Path(good.name), limits))
    return {**answer, "skipped": skipped.as_json()}


def _stage(
    file: IO[bytes], hosted: Hosted, staging: Staging, limits: Limits, documents: Iterator[Document]
) -> dict[str, Any]:
    """Keep a file of documents until the next commit."""
    model, seen, empty, repeated = hosted.index.model, set[str](), dict[str, None](), 0
    for document in documents:
        content = document.with_fields(model.fields).content
        problem = model.problem(content)
        place = f"{BODY}:{document.origin.line}" if document.origin else BODY
        if problem is not None:
            raise RequestError(f"{place}: the document {problem}")
        repeated += document.id in seen
        seen.add(document.id)
        empty.pop(document.id, None)  # the last document with an id is the one that stays
        if not any(_has_something(content.get(name)) for name in model.fields):
            empty[document.id] = None
    replaced = existing(hosted, staging, seen, limits)
    staging.keep_documents(file, seen)
    return {"staged": len(seen), "replaced": len(replaced), "repeated": repeated, "empty": list(empty)}


def _has_something(value: Any) -> bool:
    """Whether a field has a word, or a vector."""
    return bool(as_text(value).strip() if is_text(value) else value)


def commit(
    hosted: Hosted,
    staging: Staging,
    limits: Limits,
    upload: Path | None = None,
    deletion: dict[str, Any] | None = None,
    *,
    skip_bad: bool = False,
    updates: bool = False,
) -> dict[str, Any]:
    """Apply all staged changes, then an upload or a deletion of this request, and commit.

    `updates`: the upload has changes of documents.

    If a change cannot be applied, the index is not modified and staged changes stay staged.
    """
    totals: dict[str, Any] = {"added": 0, "replaced": 0, "repeated": 0, "deleted": 0, "empty": []}
    with hosted.index.writer(timeout=limits.seconds) as writer:
        hosted.open()  # the last commit, which may be that of another process
        before = len(hosted.index)
        staged = _not_committed(writer, staging)
        applied: list[str] = []

        def commit_applied() -> None:
            if applied:
                writer.set_note(staging.note, applied)
            writer.commit()

        for change in staged:
            if change.name.endswith(ADD):
                _add(writer, change, limits, totals)
            elif change.name.endswith(UPDATE):
                _update(writer, change, limits, totals)
            else:
                _delete(writer, hosted, parse_json(change.read_bytes()), totals, commit_applied)
            applied.append(change.name)
        if upload is not None and updates:
            _update(writer, upload, limits, totals)
        elif upload is not None:
            _add(writer, upload, limits, totals, skip_bad=skip_bad)
        if deletion is not None:
            _delete(writer, hosted, deletion, totals, commit_applied)
        if totals["added"]:
            check_documents(hosted, before + totals["added"] - totals["replaced"] - totals["deleted"])
        commit_applied()
        staging.discard(staged)  # before another worker can commit and apply them a second time
    return {"index": hosted.name, **totals, "generation": hosted.generation, "committed": True}


def _not_committed(writer: AnyWriter, staging: Staging) -> list[Path]:
    """The staged changes to apply; those that were committed before a crash of the server are removed."""
    changes = staging.changes()
    if not changes:
        return []
    committed = set(writer.notes().get(staging.note, ()))
    staging.discard([change for change in changes if change.name in committed])
    return [change for change in changes if change.name not in committed]


def compact(hosted: Hosted, limits: Limits) -> dict[str, Any]:
    """Rewrite the index as one segment."""
    with hosted.index.writer(timeout=limits.seconds) as writer:
        writer.compact()
    return {"index": hosted.name, "generation": hosted.generation}


def _add(writer: AnyWriter, file: Path, limits: Limits, totals: dict[str, Any], *, skip_bad: bool = False) -> None:
    skipped = Skipped() if skip_bad else None
    added = writer.add(documents_in(file, limits, skipped), skip_bad=skip_bad)
    if skipped is not None:
        skipped.merge(added.skipped)
        totals["skipped"] = skipped.as_json()
    totals["added"] += added.documents
    totals["replaced"] += added.replaced
    totals["repeated"] += added.repeated
    totals["empty"] += [document.id for document in added.empty]


def _update(writer: AnyWriter, file: Path, limits: Limits, totals: dict[str, Any]) -> None:
    assert isinstance(writer, Writer)  # others were refused before
    changes = changes_in(file, limits)
    updated = writer.update({"_id": doc_id, **fields} for doc_id, fields in changes.items())
    totals["updated"] = totals.get("updated", 0) + updated.documents
    totals["missing"] = [*totals.get("missing", ()), *updated.missing]


def existing(hosted: Hosted, staging: Staging, ids: Collection[str], limits: Limits) -> set[str]:
    """Those ids that have a document once all staged changes are applied.

    The newest change that names an id decides, and what no change names is looked up in the index. A staged deletion by
    filter is held against the few documents that it could delete.
    """
    undecided, found, filters = set(ids), set[str](), list[Filter]()

    def survives(document: Document) -> bool:
        return not any(condition.accepts(document.content) for condition in filters)

    for change in reversed(staging.changes()):
        if not undecided:
            return found
        with contextlib.suppress(FileNotFoundError):  # committed in the meantime, so the index has it
            if change.name.endswith(DELETE):
                deletion = parse_json(change.read_bytes())
                undecided.difference_update(deletion.get("ids", ()))
                filters += [Filter.parse(deletion["filter"])] if "filter" in deletion else []
            elif change.name.endswith(UPDATE):
                continue  # it changes documents, and not which there are
            elif here := _with_hash_in(_ids_file(change), undecided):
                undecided -= here
                if filters:
                    here = {d.id for d in documents_in(change, limits) if d.id in here and survives(d)}
                found |= here
    return found.union(d.id for d in hosted.index.get_many(undecided).values() if survives(d))


def _with_hash_in(file: Path, ids: set[str]) -> set[str]:
    """The ids whose hash is in a file of hashes."""
    hashes, wanted = np.fromfile(file, np.uint64), list(ids)
    if not len(hashes):
        return set()
    own = _hashes(wanted)
    places = np.minimum(np.searchsorted(hashes, own), len(hashes) - 1)
    return {wanted[i] for i in np.flatnonzero(hashes[places] == own).tolist()}


def _delete(
    writer: AnyWriter,
    hosted: Hosted,
    deletion: dict[str, Any],
    totals: dict[str, Any],
    commit_applied: Callable[[], None],
) -> None:
    ids = deletion.get("ids")
    if ids is None:
        if writer.has_changes:
            commit_applied()  # a filter only sees committed documents
        ids = hosted.index.matching_ids(deletion["filter"])
    totals["deleted"] += writer.delete(ids) if ids else 0


def check_deletion(
    hosted: Hosted, staging: Staging, limits: Limits, ids: list[str | int] | None, condition: Any
) -> tuple[dict[str, Any], int]:
    """What a request deletes, by ids or by a filter, as it is staged, and how many documents that are.

    Ids are looked up among staged and committed documents, a filter looks at committed ones.
    """
    if (ids is None) == (condition is None):
        raise RequestError("give either ids or a filter of the documents to delete")
    if ids is not None:
        wanted = [str(i) for i in ids]
        return {"ids": wanted}, len(existing(hosted, staging, wanted, limits))
    parsed = Filter.all_of(condition if isinstance(condition, list) else [condition])
    if parsed is None:
        raise RequestError("the filter is empty, so it would delete all documents")
    try:
        count = len(hosted.index.matching_ids(str(parsed)))
    except VizslaError as e:
        raise RequestError(hosted.sentence(e)) from None
    return {"filter": str(parsed)}, count
