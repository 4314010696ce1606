"""The process that reads files for a `ConfinedReader`: a line of JSON asks for a file, messages of JSON answer."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from vizsla.datasets.confined import LENGTH, Limits
from vizsla.datasets.files import InputFile
from vizsla.datasets.packages import NoText, Refusal
from vizsla.datasets.source_format import SOURCES, DocumentFormat, extracted
from vizsla.errors import InputError, MissingPackageError, NoTextError, VizslaError
from vizsla.plain_data import parse_json

_WATCH = 0.05  # seconds between two looks at the memory, where the system does not bound it


def serve() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    warnings.simplefilter("ignore")
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    bound: int | None = None

    def send(message: dict[str, Any]) -> None:
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
        output.write(len(data).to_bytes(LENGTH, "little") + data)
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
