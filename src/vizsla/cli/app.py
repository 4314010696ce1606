"""The application: how it starts and stops, and how errors reach the user."""

from __future__ import annotations

import os
import select
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import StringIO, TextIOWrapper
from types import FrameType
from typing import Annotated, Any, TextIO, cast

import typer

from vizsla import __version__
from vizsla.cli.commands import AllCommands, register
from vizsla.errors import VizslaError, VizslaWarning
from vizsla.harmless import harmless

WRONG_USE = 2
BUG = 70  # as in sysexits.h; 1 means that something was found
STOPPED_BY = 128  # plus the signal, as in a shell
_LONGEST_SENTENCE = 2000
_UsageError = cast("type[Exception]", typer.BadParameter.__bases__[0])  # click's, or typer's copy of it


class _Stopped(BaseException):
    """A signal asks to stop. It is not an Exception, so that no command catches it."""

    def __init__(self, signal_number: int) -> None:
        self.code = STOPPED_BY + signal_number


class _ReaderGone(BaseException):
    """The reader of our output has gone, as with | head."""


class _Commands(AllCommands):
    """All commands; interruptions that typer would handle in its own way are passed on to `run`."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise _Stopped(signal.SIGINT) from None
        except BrokenPipeError as e:
            if any(map(_has_no_reader, (sys.stdout, sys.stderr))):
                raise _ReaderGone from None
            raise VizslaError("a process that vizsla had started ended before its work was done") from e


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"vizsla {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    del version


def application(arguments: Sequence[str] = ()) -> typer.Typer:
    """The application with its commands; with arguments that begin with a command, it has this one alone."""
    app = typer.Typer(
        name="vizsla",
        cls=_Commands,
        help="Text retrieval with BM25 and neural models. Start with: vizsla demo\n\n"
        "vizsla COMMAND --help shows what a command takes, and what is in a group.",
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_options)
    register(app, arguments)
    return app


def run() -> int:
    """Run the command line; a user's mistake is one sentence and exit code 2, never a traceback."""
    with _streams(), _stopping(), _warnings():
        try:
            _check_arguments(sys.argv[1:])
            code = typer.main.get_command(application(sys.argv[1:])).main(prog_name="vizsla", standalone_mode=False)
            sys.stdout.flush()
            return code or 0
        except _UsageError as e:
            _show_usage(cast("typer.BadParameter", e))
        except VizslaError as e:
            _say(str(e), lines=e.has_lines)
        except _Stopped as e:
            sys.unraisablehook = lambda _: None  # half-constructed objects raise errors when they are deleted
            _say("interrupted; nothing that was committed is lost")
            return e.code
        except (_ReaderGone, BrokenPipeError):  # the latter from the last flush
            _discard_output()
            return 0
        except OSError as e:
            what = e.strerror or str(e) or type(e).__name__
            _say(f"{os.fsdecode(e.filename)}: {what}" if e.filename else f"cannot write the output ({what})")
            _discard_output()
        except MemoryError:
            _say("there is not enough memory for this")
        except Exception:
            _show_bug()
            return BUG
        return WRONG_USE


@contextmanager
def _streams() -> Iterator[None]:
    """Make standard output and error accept any character, and exist even if they were closed; undone at the end."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (open(os.devnull, "w") if s is None else s for s in before)  # noqa: SIM115 (until exit)
    changed = [(s, s.errors) for s in before if isinstance(s, TextIOWrapper)]
    for stream, _ in changed:  # a character that a terminal cannot show is escaped
        stream.reconfigure(errors="backslashreplace")
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream, errors in changed:
            with suppress(OSError, ValueError):  # the rest of a buffer cannot always be written
                stream.reconfigure(errors=errors)


@contextmanager
def _stopping() -> Iterator[None]:
    """On SIGTERM, or when the terminal closes, a command cleans up as after Ctrl-C."""
    process = os.getpid()

    def stop(number: int, frame: FrameType | None) -> None:
        del frame
        if os.getpid() != process:  # a process that was forked since then has nothing to clean up
            os._exit(STOPPED_BY + number)
        raise _Stopped(number)

    signals = [signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    if threading.current_thread() is not threading.main_thread():
        signals = []
    handled = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]  # not under nohup
    for number in handled:
        signal.signal(number, stop)
    hook = sys.unraisablehook
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _warnings() -> Iterator[None]:
    """Show warnings of Vizsla as sentences, without the line of code that says them."""
    with warnings.catch_warnings():
        warnings.simplefilter("default", VizslaWarning)
        show = warnings.showwarning

        def say(message: Warning | str, category: type[Warning], *place: Any, **rest: Any) -> None:
            if issubclass(category, VizslaWarning):
                _say(str(message))
            else:
                show(message, category, *place, **rest)

        warnings.showwarning = say
        yield


def _check_arguments(arguments: list[str]) -> None:
    """Refuse arguments that are not UTF-8 text: they could not be searched for, stored or shown."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            message = f"the argument {_cut(argument)!r} is not text in UTF-8; if it is a file's name, rename the file"
            raise VizslaError(message) from None


def _show_usage(error: typer.BadParameter) -> None:
    """Write what typer says about arguments it does not understand."""
    message = StringIO()
    error.show(cast(TextIO, message))
    _write(harmless(message.getvalue().rstrip(), lines=True))


def _show_bug() -> None:
    """Write an unexpected error with its traceback."""
    _write(harmless(traceback.format_exc().rstrip(), lines=True))
    _say("this is a bug in vizsla, not your mistake; please report it with the lines above")


def _say(sentence: str, *, lines: bool = False) -> None:
    _write(f"vizsla: {harmless(_cut(sentence), lines=lines)}")


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_SENTENCE else f"{text[:_LONGEST_SENTENCE]}…"


def _write(text: str) -> None:
    with suppress(OSError):  # standard error may be closed
        print(text, file=sys.stderr, flush=True)


def _has_no_reader(stream: TextIO) -> bool:
    """Whether a stream is a pipe that has lost its reader; always False on Windows."""
    if not hasattr(select, "poll"):
        return False
    with suppress(OSError, ValueError):
        watch = select.poll()
        watch.register(stream.fileno(), 0)
        return any(event & select.POLLERR for _, event in watch.poll(0))
    return False


def _discard_output() -> None:
    """Discard what is left in the output buffers."""
    with open(os.devnull, "w") as nowhere:
        for stream in (sys.stdout, sys.stderr):
            if _has_no_reader(stream) or stream is sys.stdout:
                with suppress(OSError, ValueError):
                    os.dup2(nowhere.fileno(), stream.fileno())
