"""Prepare data sets: the files that their owners publish become folders in BEIR's layout.

A preparation is a function in a file of `vizsla.datasets.preparations`. It names the files that it reads, and writes
what it reads one by one:

    @preparation("pets", PublishedFile("pets.tsv", source="https://example.org/pets.tsv.gz", records=21_015_324))
    def prepare_pets(given: GivenFiles, to: DatasetWriter) -> None:
        for line, (number, text) in given.one("pets.tsv").rows("\\t"):
            to.document(number, text)

A file of your own that is named in VIZSLA_PLUGINS registers a preparation in the same way.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO, Any, NoReturn

from vizsla.datasets.fetch import download
from vizsla.datasets.files import COMPRESSIONS, InputFile, Progress, is_pipe, read_json_lines, read_lines
from vizsla.datasets.formats.csv import csv_rows
from vizsla.datasets.formats.json import read_json_records
from vizsla.datasets.registry import Download, dataset_entry, known_datasets
from vizsla.errors import InputError, VizslaError
from vizsla.spec import Registry

PREPARED = "prepared.json"
"""The file in a prepared folder that says what it was made from."""

MAX_RECORD = 1 << 28
"""The most bytes of a line or a record of a published file: DPR has training questions with hundreds of passages."""

_CHUNK = 1 << 20
_ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".tar.bz2")
_BAD_ARCHIVE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, RuntimeError, NotImplementedError)


@dataclass(frozen=True)
class PublishedFile:
    """A file that a preparation reads.

    >>> PublishedFile("queries.tsv").fits("downloads/queries.tsv.gz"), PublishedFile("P*.train.json").fits("x.json")
    (True, False)
    """

    name: str
    """Its published name, without an ending for compression; `*` stands for any characters."""
    source: str = ""
    """The address it can be downloaded from, perhaps in an archive; or in words where its owner gives it out."""
    records: int | None = None
    """The published number of lines, without a header, or of records; None if it is not known."""
    checksums: tuple[str, ...] = ()
    """Published checksums of the file at its source, as `md5:...` or `sha256:...`; one of them must agree.

    They are compared if the file is compressed as it is there."""
    required: bool = True
    fetched: bool = True
    """Whether it is downloaded if no files are given; not so one of several that exclude each other."""
    several: bool = False
    """There are several files of such names, as of EntityQuestions' relations."""

    def fits(self, path: str) -> bool:
        """Whether a file of this path is meant, compressed or not."""
        return fnmatch("/" + _plain_name(path), "*/" + _plain_name(self.name))

    @property
    def download(self) -> Download | None:
        """What is downloaded to have this file; None if it is given out in another way."""
        if "://" not in self.source:
            return None
        return Download(self.source, PurePosixPath(self.source.partition("?")[0]).name, None)


def _plain_name(name: str) -> str:
    for ending in COMPRESSIONS:
        name = name.removesuffix(ending)
    return name


@dataclass(frozen=True)
class Preparation:
    """How a data set is prepared: the files that are read, and the function that writes it."""

    name: str
    files: tuple[PublishedFile, ...]
    write: Callable[[GivenFiles, DatasetWriter], None]
    help: str
    results: Mapping[str, str] = field(default_factory=dict)
    """The sha256 of files in the folder by name, for data sets that must come out the same everywhere."""

    @property
    def downloads(self) -> tuple[Download, ...]:
        """What is downloaded if no files are given; empty if a required file cannot be downloaded."""
        if any(file.download is None for file in self.files if file.required):
            return ()
        found = [file.download for file in self.files if file.fetched]
        return tuple(dict.fromkeys(one for one in found if one is not None))


PREPARATIONS = Registry[Preparation]("data set to prepare", package="vizsla.datasets.preparations")
"""The data sets that can be prepared from their owners' files."""


def preparation(
    name: str, *files: PublishedFile, help: str, results: Mapping[str, str] | None = None
) -> Callable[[Callable[[GivenFiles, DatasetWriter], None]], Callable[[GivenFiles, DatasetWriter], None]]:
    """A decorator that registers how the data set of this name is prepared; `help`: what comes out, in one line."""

    def add(
        write: Callable[[GivenFiles, DatasetWriter], None],
    ) -> Callable[[GivenFiles, DatasetWriter], None]:
        found = Preparation(name, files, write, help, results or {})

        def make() -> Preparation:
            return found

        make.__module__ = write.__module__
        PREPARATIONS.register(name, help=help)(make)
        return write

    return add


def preparation_of(name: str) -> Preparation | None:
    """How a data set is prepared; None if it cannot be."""
    return PREPARATIONS[name].make() if name in PREPARATIONS else None


class GivenFile:
    """A published file as somebody has it. What is read from it is counted."""

    def __init__(self, published: PublishedFile, path: Path, name: str, progress: Progress = None) -> None:
        self.published = published
        self.file = InputFile(path, name, MAX_RECORD, "it cannot be a file of this data set")
        self.records = 0
        """How many lines or records were read so far."""
        self.complete = False
        """Whether all of it was read."""
        self._progress = progress

    @property
    def name(self) -> str:
        """The name of the file without its folder and without an ending for compression."""
        return _plain_name(Path(self.file.name).name)

    def lines(self, fallback: str | None = None) -> Iterator[tuple[int, str]]:
        """The lines with their numbers, without line ends; empty ones are skipped.

        `fallback`: the encoding of lines that are not UTF-8; without one they are refused.
        """
        read = read_lines(self.file, self._progress, fallback=fallback)
        lines = ((number, line.rstrip("\r\n")) for number, line in read)
        return self._counted((number, line) for number, line in lines if line)

    def columns(self, *names: str, header: Sequence[str] = ()) -> Iterator[tuple[int, list[str]]]:
        """The columns of tab-separated lines, in which quotes are plain characters.

        `names`: what the columns are, for messages; `header`: the first columns of a first line that is skipped.
        """
        return self._counted(self._columns(names, header))

    def _columns(self, names: Sequence[str], header: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
        for number, line in read_lines(self.file, self._progress):
            columns = line.rstrip("\r\n").split("\t")
            if number == 1 and header and columns[: len(header)] == list(header):
                continue
            if len(columns) != len(names):
                if not line.strip():
                    continue
                expected = f"expected {len(names)} columns separated by tabs ({', '.join(names)})"
                self.refuse(f"{expected}, not {len(columns)}", number)
            yield number, columns

    def rows(self, *names: str, header: Sequence[str] = (), delimiter: str = "\t") -> Iterator[tuple[int, list[str]]]:
        """The rows of a file with csv's quotes; options as for `columns`."""
        return self._counted(self._rows(names, header, delimiter))

    def _rows(self, names: Sequence[str], header: Sequence[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
        for number, row in csv_rows(self.file, delimiter, self._progress):
            if number == 1 and header and row[: len(header)] == list(header):
                continue
            if len(row) != len(names):
                self.refuse(f"expected {len(names)} columns ({', '.join(names)}), not {len(row)}", number)
            yield number, row

    def json_lines(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The JSON objects of a file with one in each line."""
        return self._counted(self._objects(read_json_lines(self.file, self._progress)))

    def json_records(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """The JSON objects of a file: one in each line, or the elements of one array, read one by one."""
        return self._counted(self._objects(read_json_records(self.file, self._progress)))

    def json_object(self) -> dict[str, Any]:
        """The one JSON object that the file consists of."""
        records = self.json_records()
        line, content = next(records, (1, None))
        if content is None:
            self.refuse("expected a JSON object, not an empty file", line)
        if next(records, None) is not None:
            self.refuse("expected a single JSON object", line)
        return content

    def _objects(self, values: Iterable[tuple[int, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
        for line, value in values:
            if not isinstance(value, dict):
                self.refuse("expected a JSON object", line)
            yield line, value

    def _counted(self, items: Iterable[Any]) -> Iterator[Any]:
        self.records, self.complete = 0, False
        for item in items:
            self.records += 1
            yield item
        self.complete = True

    def text(self, value: Any, what: str, line: int) -> str:
        """A value that must be a text; `what`: its name, for the message."""
        if not isinstance(value, str):
            self.refuse(f"expected a text {what!r}", line)
        return value

    def texts(self, value: Any, what: str, line: int) -> list[str]:
        """A value that must be a list of texts."""
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            self.refuse(f"expected a list of texts {what!r}", line)
        return value

    def objects(self, value: Any, what: str, line: int = 1) -> list[dict[str, Any]]:
        """A value that must be a list of JSON objects."""
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            self.refuse(f"expected a list {what!r} of objects", line)
        return value

    def refuse(self, message: str, line: int | None = None) -> NoReturn:
        """Raise the error for something wrong in this file."""
        raise self.file.refusal(message, line)


class GivenFiles:
    """The files that a preparation was given, by their published names."""

    def __init__(self, files: Iterable[GivenFile]) -> None:
        self.all = tuple(files)

    def one(self, name: str) -> GivenFile:
        """The file of a published name, which is required."""
        return next(file for file in self.all if file.published.name == name)

    def find(self, name: str) -> GivenFile | None:
        """The file of a published name; None if it was not given."""
        return next((file for file in self.all if file.published.name == name), None)

    def every(self, name: str) -> list[GivenFile]:
        """All files of a published name, in the order of their names."""
        return sorted((file for file in self.all if file.published.name == name), key=lambda file: file.file.name)


class DatasetWriter:
    """Writes a data set in BEIR's layout, one document, query or judgement at a time; counts what it wrote."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.documents = self.queries = 0
        self.judgements: dict[str, int] = {}
        self.named: dict[str, int] = {}
        """The queries with named positives and hard negatives, by split."""
        self.split_queries: dict[str, int] = {}
        """The queries by split, of those that were written with one."""
        self.remarks: list[str] = []
        """What the preparation has to say: what was left out, and why."""
        self._files: dict[str, IO[str]] = {}
        self._open = ExitStack()

    def document(self, id: str, text: str, title: str = "", **fields: Any) -> None:
        """Write a document. `fields`: more fields, such as a date."""
        self.documents += 1
        self._write("corpus.jsonl", {"_id": id, "title": title, "text": text, **fields})

    def query(
        self, id: str, text: str, *, answers: Sequence[str] | None = None, split: str | None = None, **metadata: Any
    ) -> None:
        """Write a query, with its answers, and the split it belongs to where no judgements say that."""
        facts: dict[str, Any] = {"answers": answers, "split": split, **metadata}
        if split is not None:
            self.split_queries[split] = self.split_queries.get(split, 0) + 1
        facts = {name: value for name, value in facts.items() if value is not None}
        self.queries += 1
        self._write("queries.jsonl", {"_id": id, "text": text, **({"metadata": facts} if facts else {})})

    def judgement(self, split: str, query: str, document: str, grade: int = 1) -> None:
        """Write a judgement to qrels/SPLIT.tsv."""
        if set("\t\r\n").intersection(query + document):
            raise VizslaError(
                f"the ids {query!r} and {document!r} are judged, and no id in qrels can hold a tab or a line break"
            )
        name = f"qrels/{split}.tsv"
        if name not in self._files:
            self._file(name).write("query-id\tcorpus-id\tscore\n")
        self.judgements[split] = self.judgements.get(split, 0) + 1
        self._file(name).write(f"{query}\t{document}\t{grade}\n")

    def training_documents(
        self, split: str, query: str, positives: Sequence[str], negatives: Sequence[str] | None
    ) -> None:
        """Write the positives and hard negatives of a query to SPLIT_hard_negatives.jsonl."""
        record: dict[str, Any] = {"query-id": query, "pos": list(positives)}
        if negatives is not None:
            record["neg"] = list(negatives)
        self.named[split] = self.named.get(split, 0) + 1
        self._write(f"{split}_hard_negatives.jsonl", record)

    @property
    def scratch(self) -> Path:
        """A folder for temporary files, which is removed at the end."""
        scratch = self.folder.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        return scratch

    def remark(self, text: str) -> None:
        """Note something that the user should know, in one sentence."""
        self.remarks.append(text)

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        self._file(name).write(json.dumps(record, ensure_ascii=False) + "\n")

    def _file(self, name: str) -> IO[str]:
        if name not in self._files:
            path = self.folder / name
            path.parent.mkdir(exist_ok=True)
            opened = path.open("w", encoding="utf-8", newline="\n", buffering=_CHUNK)
            self._files[name] = self._open.enter_context(opened)
        return self._files[name]

    def close(self) -> None:
        """Write everything to disk."""
        if self.documents or self.queries:
            self._file("queries.jsonl")  # what makes a folder a data set, even without queries
        self._open.close()


@contextmanager
def new_dataset(folder: str | Path) -> Iterator[DatasetWriter]:
    """A writer of a data set whose folder appears when the block ends, and not at all if the block fails.

    >>> target = Path(tempfile.mkdtemp(), "pets")
    >>> with new_dataset(target) as writer:
    ...     writer.document("1", "Dogs bark.")
    >>> sorted(file.name for file in target.iterdir())
    ['corpus.jsonl', 'queries.jsonl']
    """
    target = Path(folder)
    if target.exists() or target.is_symlink():
        raise InputError("this folder exists already; name another one", file=str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
        written = Path(temporary) / "data"
        written.mkdir()
        writer = DatasetWriter(written)
        try:
            yield writer
        finally:
            writer.close()
        _put_in_place(written, target, Path(temporary) / "before", overwrite=False)


@dataclass(frozen=True)
class Prepared:
    """What `prepare` made: the folder, what it holds, and how that compares with what is published."""

    name: str
    folder: Path
    documents: int
    queries: int
    judgements: Mapping[str, int]
    sources: Sequence[Mapping[str, Any]]
    """For each file that was read: its name, size, sha256, where it came from, and its number of records."""
    differences: Sequence[str]
    """Where files or counts differ from what is published."""
    remarks: Sequence[str]
    verified: bool
    """Whether a number or a checksum is published for each file, and all agree."""

    @property
    def state(self) -> str:
        """`verified` or `not verified`."""
        return "verified" if self.verified else "not verified"


def prepare(
    name: str,
    files: Sequence[str | Path],
    root: str | Path,
    *,
    overwrite: bool = False,
    progress: Callable[[str, int, int], None] = lambda _, __, ___: None,
) -> Prepared:
    """Make the folder `root`/`name` in BEIR's layout from published files, folders with them, or archives of them.

    Without files those that can be downloaded freely are downloaded. The folder appears only when it is complete.
    `progress` is called with what is being done, and the bytes that are done and that there are.
    """
    from vizsla import __version__

    wanted = preparation_of(name)
    if wanted is None:
        if dataset_entry(name).downloads:  # an unknown name is refused with the closest one
            raise VizslaError(f"{name} is published in BEIR's layout; get it with 'vizsla datasets fetch {name}'")
        known = ", ".join(PREPARATIONS.names())
        raise VizslaError(f"{name} is not prepared from files; those that are: {known}")
    target = Path(root) / name
    if target.exists() and not overwrite:
        raise InputError("this folder exists; --overwrite (in Python overwrite=True) replaces it", file=str(target))
    Path(root).mkdir(parents=True, exist_ok=True)
    downloads = Path(root) / ".downloads" / name
    paths = [Path(file) for file in files] or _downloaded(wanted, downloads, progress)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=root) as temporary:
        members, folder = Path(temporary) / "members", Path(temporary) / "data"
        members.mkdir()
        folder.mkdir()
        given = _given(wanted, paths, members)
        sources = [_source(one, progress) for one in given]
        _watch(given, progress)
        writer = DatasetWriter(folder)
        try:
            wanted.write(GivenFiles(given), writer)
        finally:
            writer.close()
        if not writer.documents and not writer.queries:
            raise InputError("nothing was found in these files: no document and no query", file=given[0].file.name)
        for one, source in zip(given, sources, strict=True):
            source["records"] = one.records
        differences = [*_file_differences(given, sources)]
        differences += [] if differences else _count_differences(name, writer)
        differences += _result_differences(wanted.results, folder)
        checked = bool(wanted.results) or all(one.published.records or one.published.checksums for one in given)
        prepared = Prepared(
            name, target, writer.documents, writer.queries, writer.judgements, sources, differences, writer.remarks,
            checked and not differences,
        )  # fmt: skip
        facts = {
            "name": name, "state": prepared.state, "documents": prepared.documents, "queries": prepared.queries,
            "judgements": dict(prepared.judgements), "training_queries": writer.named, "sources": sources,
            "differences": differences, "remarks": writer.remarks, "vizsla": __version__,
        }  # fmt: skip
        (folder / PREPARED).write_text(json.dumps(facts, ensure_ascii=False, indent=2) + "\n", "utf-8")
        _put_in_place(folder, target, Path(temporary) / "before", overwrite=overwrite)
    if not files:
        shutil.rmtree(downloads, ignore_errors=True)
    return prepared


def _put_in_place(folder: Path, target: Path, before: Path, *, overwrite: bool) -> None:
    if target.exists() and not overwrite:
        raise InputError("another process has made this folder meanwhile", file=str(target))
    if target.exists():
        target.rename(before)
    try:
        folder.rename(target)
    except OSError:
        with suppress(OSError):
            before.rename(target)
        raise


def _downloaded(wanted: Preparation, folder: Path, progress: Callable[[str, int, int], None]) -> list[Path]:
    if not wanted.downloads:
        missing = [file for file in wanted.files if file.required and file.download is None] or wanted.files
        listed = "; ".join(f"{file.name}: {file.source or 'ask its owner'}" for file in missing)
        raise VizslaError(f"{wanted.name} cannot be downloaded; give its files ({listed})")
    return [
        download(one, folder, lambda done, total, one=one: progress(f"Fetching {one.name}", done, total))  # type: ignore[misc]
        for one in wanted.downloads
    ]


def _given(wanted: Preparation, paths: Sequence[Path], members: Path) -> list[GivenFile]:
    """The files that a preparation reads, among those that were given."""
    found: dict[PublishedFile, dict[Path, tuple[Path, str]]] = {file: {} for file in wanted.files}
    for path in paths:
        if is_pipe(path):
            raise InputError("this is a pipe; the files of a data set are read from disk", file=str(path))
        if not path.exists():
            raise InputError("this file or folder does not exist", file=str(path))
        candidates = list(_candidates(path, wanted, members))
        for place, name in candidates:
            published = next((file for file in wanted.files if file.fits(Path(name).absolute().as_posix())), None)
            if published is not None:
                found[published].setdefault(place.resolve(), (place, name))
        names = [Path(name).absolute().as_posix() for _, name in candidates]
        if not any(file.fits(name) for name in names for file in wanted.files):
            known = ", ".join(file.name for file in wanted.files)
            message = f"this is no file of {wanted.name}" if path.is_file() else f"this holds no file of {wanted.name}"
            raise InputError(f"{message}; its files are called {known}", file=str(path))
    given = []
    for published, by_path in found.items():
        places = list(by_path.values())
        if len(places) > 1 and not published.several:
            first, second = (name for _, name in places[:2])
            raise VizslaError(f"both {first} and {second} may be {published.name} of {wanted.name}; give one of them")
        if not places and published.required:
            where = f"; get it from {published.source}" if published.source else ""
            raise VizslaError(f"{wanted.name} also needs {published.name}{where}")
        given += [GivenFile(published, place, name) for place, name in places]
    return sorted(given, key=lambda one: (wanted.files.index(one.published), one.file.name))


def _candidates(path: Path, wanted: Preparation, members: Path) -> Iterator[tuple[Path, str]]:
    """The files at a path: itself, those in a folder, or those members of an archive that are wanted."""
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            inner = file.relative_to(path).parts
            if file.is_file() and not any(part.startswith(".") for part in inner):
                yield from _candidates(file, wanted, members)
    elif any(file.fits(path.absolute().as_posix()) for file in wanted.files):
        yield path, str(path)
    elif path.name.endswith(_ARCHIVES):
        yield from _members(path, wanted, members)
    else:
        yield path, str(path)


def _members(path: Path, wanted: Preparation, folder: Path) -> Iterator[tuple[Path, str]]:
    """The members of an archive that a preparation reads, unpacked one by one into a folder."""
    number = len(list(folder.iterdir()))
    try:
        for name, stream in _opened_members(path):
            published = next((file for file in wanted.files if file.fits(name)), None)
            if published is None:
                continue
            compression = "".join(ending for ending in COMPRESSIONS if name.endswith(ending))
            target = folder / f"{number}{compression}"
            number += 1
            with target.open("wb") as file:
                shutil.copyfileobj(stream, file, _CHUNK)
            yield target, f"{path}/{name}"
    except _BAD_ARCHIVE as e:
        raise InputError(f"the archive is damaged, encrypted or of another kind ({e})", file=str(path)) from None


def _opened_members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path) as archive:
            for info in archive.infolist():
                if not info.is_dir():
                    with archive.open(info) as stream:
                        yield info.filename, stream
        return
    with tarfile.open(path, "r:*") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name, content


def _source(given: GivenFile, progress: Callable[[str, int, int], None]) -> dict[str, Any]:
    """What is noted about a file: its name, size and checksums."""
    size, done = given.file.path.stat().st_size, 0
    digests = {kind: hashlib.new(kind, usedforsecurity=False) for kind in _kinds(given.published)}
    try:
        with given.file.path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                for digest in digests.values():
                    digest.update(chunk)
                done += len(chunk)
                progress(f"Checking {given.name}", done, size)
    except OSError as e:
        raise given.file.refusal(f"this file cannot be read ({e.strerror})") from None
    checksums = {kind: digest.hexdigest() for kind, digest in digests.items()}
    return {"file": Path(given.file.name).name, "bytes": size, **checksums, "from": given.published.source}


def _kinds(published: PublishedFile) -> list[str]:
    return sorted({"sha256", *(checksum.partition(":")[0] for checksum in published.checksums)})


def _watch(given: Sequence[GivenFile], progress: Callable[[str, int, int], None]) -> None:
    """Let the reading of files be reported as bytes of all of them."""
    sizes = [one.file.path.stat().st_size for one in given]
    done = [0] * len(given)

    def moved(number: int, to: int) -> None:
        done[number] = to
        progress("Preparing", sum(done), sum(sizes))

    for number, one in enumerate(given):
        one._progress = lambda to, number=number: moved(number, to)


def _file_differences(given: Sequence[GivenFile], sources: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for published in dict.fromkeys(one.published for one in given):
        of_it = [(one, source) for one, source in zip(given, sources, strict=True) if one.published == published]
        total = sum(one.records for one, _ in of_it)
        if published.records is not None and all(one.complete for one, _ in of_it) and total != published.records:
            name = of_it[0][0].name if len(of_it) == 1 else f"{len(of_it)} files {published.name}"
            yield f"{name}: {total:,} records, and {published.records:,} are published"
        for one, source in of_it:
            if Path(published.source).suffix not in (one.file.path.suffix, ""):
                continue  # it was unpacked, or compressed in another way
            agree = {f"{kind}:{source[kind]}" for kind in _kinds(published)}.intersection(published.checksums)
            if published.checksums and not agree:
                yield f"the checksum of {one.name} is none of those published ({', '.join(published.checksums)})"


def _count_differences(name: str, writer: DatasetWriter) -> Iterator[str]:
    entry = known_datasets().get(name)
    if entry is None:
        return
    if entry.documents and writer.documents and entry.documents != writer.documents:
        yield f"there are {writer.documents:,} documents, and {entry.documents:,} are published"
    for split, count in writer.split_queries.items():
        published = entry.splits.get(split)
        if published and published != count:
            yield f"there are {count:,} queries of {split}, and {published:,} are published"


def _result_differences(results: Mapping[str, str], folder: Path) -> Iterator[str]:
    for name, expected in results.items():
        if not (folder / name).is_file():
            yield f"there is no {name}"
            continue
        digest = hashlib.sha256()
        with (folder / name).open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                digest.update(chunk)
        if digest.hexdigest() != expected:
            yield f"{name} is not the file that others have made (sha256 {digest.hexdigest()}, not {expected})"
