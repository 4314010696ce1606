"""Reading files of foreign formats in another process, with limits of time and memory.

A library that parses PDF is large and written in C++: a file that was made to do harm, or is only damaged, may crash
it, keep it busy for ever or take all memory. Then the process is replaced, the file is refused in one sentence, and the
next one is read. The process writes no files, has one file at a time and answers in JSON, so it cannot make its parent
run code.

`ConfinedReader` is the side of the parent. `serve` is the side of the process: a line of JSON names a file, messages of
JSON are the answer.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from vizsla.datasets.files import InputFile
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, NoText, Refusal, extracted
from vizsla.errors import InputError, MissingPackageError, NoTextError, VizslaError
from vizsla.plain_data import parse_json

_START = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from vizsla.datasets.confined import serve; serve()"
_LENGTH = 8  # bytes before a message that hold its length
_MARGIN = 64_000_000  # bytes of a message besides the text: the outline, escapes
_POLL = 0.1
_STARTING = 60.0  # seconds that the process may take to start, beside the time for a document
_PATIENCE = 10  # times the seconds of a document that it may take if its process waits for a processor
_WATCH = 0.05  # seconds between two looks at the memory, where the system does not bound it


class ConfinedReader:
    """A process that reads files, one after the other; it is started when it is needed, and replaced when it fails.

    Use it as a context manager, or call `close`. One thread at a time may read.
    """

    def __init__(self) -> None:
        self._process: _Process | None = None

    def read(self, format: str, file: InputFile, limits: Limits) -> Iterator[Extracted]:
        """The text of a file; a file that cannot be read within the limits is refused in one sentence."""
        count = 0
        while True:
            process = self._process = self._process or _Process(limits)
            fresh, ended = process.files == 0, False
            try:
                for message in process.ask(format, file):
                    count += 1
                    yield _extracted(message, file)
                ended = True
                return
            except _Failed as e:
                # What it has read before may be the cause, so a process of its own decides.
                if fresh or e.is_late or count:
                    raise file.refusal(e.problem) from None
            except InputError:
                ended = process.is_idle
                raise
            finally:
                if not ended:
                    self.close()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def __enter__(self) -> ConfinedReader:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _extracted(message: dict[str, Any], file: InputFile) -> Extracted:
    try:
        return Extracted.from_message(message)
    except ValueError as e:
        raise file.refusal(f"its reader gave something else than a text ({e})") from None


class _Failed(Exception):
    """The process has ended, or does not answer; `is_late`: it took too long."""

    def __init__(self, problem: str, *, is_late: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_late = is_late


class _Clock:
    """Whether a process has taken more than so many seconds since now."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._seconds = seconds
        self._start = time.monotonic()
        self._waited = _waited(pid)

    def is_over(self) -> bool:
        passed = time.monotonic() - self._start
        if passed <= self._seconds or passed > _PATIENCE * self._seconds:
            return passed > self._seconds
        return passed - (_waited(self._pid) - self._waited) > self._seconds


def _waited(pid: int) -> float:
    """The seconds in which a process was ready to run and got no processor; 0 where the system does not tell."""
    try:
        with open(f"/proc/{pid}/schedstat") as times:
            return int(times.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class _Process:
    """A running process, and the alarm that kills it when it takes too long."""

    def __init__(self, limits: Limits) -> None:
        if not sys.executable:
            raise VizslaError("reading this kind of file needs a Python that can start itself; sys.executable is empty")
        command = [sys.executable, "-I", "-c", _START, json.dumps(sys.path)]
        try:
            self._popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as e:
            raise VizslaError(f"a process that reads files cannot be started ({e.strerror})") from None
        self._limits = limits
        self.files = 0
        """How many files it has read to the end."""
        self.is_idle = True
        """Whether it waits for a file."""
        self._clock: _Clock | None = None
        self._is_late = False
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while not self._ended.wait(_POLL):
            clock = self._clock
            if clock is not None and clock.is_over():
                self._is_late = True
                self._popen.kill()
                return

    def ask(self, format: str, file: InputFile) -> Iterator[dict[str, Any]]:
        """The documents of a file, as messages."""
        limits = self._limits
        request = {
            "format": format, "path": str(file.path), "name": file.name, "max_document": file.max_document,
            "remedy": file.remedy, "memory": limits.bytes, "seconds": limits.time, "pages": limits.pages,
            "ocr": limits.ocr,
        }  # fmt: skip
        assert self._popen.stdin is not None
        self.is_idle = False
        try:
            self._popen.stdin.write(json.dumps(request).encode() + b"\n")
            self._popen.stdin.flush()
        except OSError:
            raise self._failure() from None
        while True:
            message = self._message(2 * file.max_document + _MARGIN)
            if "document" in message:
                yield message["document"]
                continue
            self.is_idle = True
            self.files += 1
            if "refusal" in message:
                kinds = {"text": NoTextError, "package": MissingPackageError}
                kind = kinds.get(str(message.get("kind")), InputError)
                if kind is MissingPackageError:
                    raise MissingPackageError(str(message["refusal"]))
                raise kind(str(message["refusal"]), file=file.name, line=message.get("line"))
            return

    def _message(self, most: int) -> dict[str, Any]:
        self._clock = _Clock(self._popen.pid, self._limits.time + (0 if self.files else _STARTING))
        assert self._popen.stdout is not None
        head = self._popen.stdout.read(_LENGTH)
        length = int.from_bytes(head, "little")
        data = self._popen.stdout.read(length) if len(head) == _LENGTH and length <= most else b""
        self._clock = None
        if len(head) < _LENGTH or len(data) < length <= most:
            raise self._failure()
        try:
            if length > most:
                raise ValueError
            message = parse_json(data)
            if not isinstance(message, dict) or not message.keys() & {"document", "refusal", "end"}:
                raise ValueError
        except ValueError:
            raise _Failed("its reader gave an answer that cannot be read") from None
        return message

    def _failure(self) -> _Failed:
        """Why there is no answer."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(5)
        if self._is_late:
            return _Failed(f"reading this file takes more than {self._limits.time:g} seconds", is_late=True)
        code = self._popen.poll()
        if code is None:
            return _Failed("its reader has closed its output")
        how = f"exit code {code}"
        if code < 0:
            with suppress(ValueError):
                how = signal.Signals(-code).name
        return _Failed(f"this file made its reader crash ({how}); it is damaged, or takes too much memory")

    def end(self) -> None:
        """End the process, whatever it does."""
        self._ended.set()
        self._popen.kill()
        self._popen.wait()
        for stream in (self._popen.stdin, self._popen.stdout):
            assert stream is not None
            with suppress(OSError):
                stream.close()


def serve() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    warnings.simplefilter("ignore")
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    bound: int | None = None

    def send(message: dict[str, Any]) -> None:
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
        output.write(len(data).to_bytes(_LENGTH, "little") + data)
        output.flush()

    for line in sys.stdin.buffer:
        request = parse_json(line)
        format: Any = SOURCES[request["format"]].make()
        if bound is None:
            for name in SOURCES[request["format"]].needs:
                with suppress(ImportError):
                    import_module(name)
            bound = request["memory"]
            _bound_memory(bound)
        _bound_time(request["seconds"])
        send(_answer(format, request, send))


def _answer(format: DocumentFormat, request: dict[str, Any], send: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Send the documents of a file; gives the last message."""
    file = InputFile(Path(request["path"]), request["name"], request["max_document"], request["remedy"])
    limits = Limits(request["seconds"], request["memory"], request["pages"], request["ocr"])
    try:
        for one in extracted(format, file, limits):
            send({"document": one.as_message()})
    except Refusal as e:
        return {"refusal": str(e), "kind": "text" if isinstance(e, NoText) else "input"}
    except MissingPackageError as e:
        return {"refusal": str(e), "kind": "package"}
    except InputError as e:
        return {"refusal": e.problem, "line": e.line, "kind": "text" if isinstance(e, NoTextError) else "input"}
    except VizslaError as e:
        return {"refusal": str(e)}
    except MemoryError:
        return {"refusal": f"reading this file takes more than {request['memory'] >> 20:,} MB of memory"}
    except RecursionError:
        return {"refusal": "this file is nested too deeply"}
    except Exception as e:  # of a library, for a file that is damaged
        detail = " ".join(str(e).split())[:200] or type(e).__name__
        return {"refusal": f"the file is damaged or not what its name says ({detail})"}
    return {"end": True}


def _bound_memory(memory: int) -> None:
    """Let no allocation succeed beyond what this process takes now and so many bytes; write no files."""
    try:
        import resource
    except ImportError:  # Windows
        return
    own: IO[str]
    try:
        with open("/proc/self/statm") as own:
            used = int(own.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux: the system does not bound address space
        threading.Thread(target=_watch_memory, args=(memory,), daemon=True).start()
        used = 1 << 40
    for what, limit in ((resource.RLIMIT_AS, used + memory), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_CORE, 0)):
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (limit, limit))


def _watch_memory(memory: int) -> None:
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    while resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit < start + memory:
        time.sleep(_WATCH)
    os._exit(99)


def _bound_time(seconds: float) -> None:
    """End this process some time after its parent should have, in case the parent was killed."""
    try:
        import resource
    except ImportError:
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    cores = os.cpu_count() or 1
    soft = int(used.ru_utime + used.ru_stime + 2 * seconds * cores) + 60
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.getrlimit(resource.RLIMIT_CPU)[1]))
