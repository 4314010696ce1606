"""The errors users meet. Each message is one sentence that says what is wrong and what was expected."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class VizslaError(Exception):
    """An error that the user can do something about; the message is one sentence. The command line exits with 2.

    >>> from vizsla import parse_model
    >>> try:
    ...     parse_model("bm225")
    ... except VizslaError as e:
    ...     print(e)
    unknown model 'bm225'; did you mean 'bm25'?
    """

    has_lines = False
    """Whether the message has further lines that show the place of the mistake."""


class VizslaWarning(UserWarning):
    """A remark about what was asked for, in one sentence; the command line prints it on standard error."""


class LanguageWarning(VizslaWarning):
    """Documents are in a language that the network of a model was not made for."""


class InputError(VizslaError):
    """A file, a line or a value that cannot be used; the message starts with the file and the line.

    >>> raise InputError("this is not JSON", file="corpus.jsonl", line=3)
    Traceback (most recent call last):
    ...
    vizsla.errors.InputError: corpus.jsonl:3: this is not JSON
    """

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None) -> None:
        self.problem, self.file, self.line = message, file, line
        place = file or ""
        if file and line is not None:
            place += f":{line}"
        super().__init__(f"{place}: {message}" if place else message)

    def __reduce__(self) -> tuple[Any, ...]:
        return _input_error, (type(self), self.problem, self.file, self.line)


def _input_error(kind: type[InputError], problem: str, file: str | None, line: int | None) -> InputError:
    """An error from another process."""
    return kind(problem, file=file, line=line)


class NoTextError(InputError):
    """A file that is what it says it is, but without text: encrypted, or pictures of pages."""


def kind_of(value: Any) -> str:
    """The type of a JSON value in words, for messages; texts and numbers with their value.

    >>> kind_of("seven dogs"), kind_of(""), kind_of([])
    ("the text 'seven dogs'", 'an empty text', 'a list')
    """
    if isinstance(value, str):
        return f"the text {_shortened(value)!r}" if value else "an empty text"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int) and abs(value) >= _LARGE:
        return "a number of very many digits"
    if isinstance(value, int | float):
        return f"the number {value}"
    kinds = {dict: "an object", list: "a list", type(None): "null"}
    return kinds.get(type(value), type(value).__name__)


_LARGE = 10**50


def _shortened(text: str, max_length: int = 40) -> str:
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def in_words(names: Iterable[object]) -> str:
    """Names for a sentence, quoted.

    >>> in_words(["dogs", "cats", "fish"]), in_words(["dogs"])
    ("'dogs', 'cats' and 'fish'", "'dogs'")
    """
    *first, last = map(repr, map(str, names))
    return f"{', '.join(first)} and {last}" if first else last


_LISTED = 900  # characters of known names that a message lists


class UnknownNameError(VizslaError):
    """An unknown name of a model, an analyzer, a measure or the like; the message suggests the closest known name.

    >>> raise UnknownNameError("measure", "ndgc", ["nDCG", "AP"])
    Traceback (most recent call last):
    ...
    vizsla.errors.UnknownNameError: unknown measure 'ndgc'; did you mean 'nDCG'?
    """

    def __init__(self, kind: str, name: str, known: list[str] | tuple[str, ...]) -> None:
        import textwrap
        from difflib import get_close_matches

        by_lower = {k.lower(): k for k in known}
        close = get_close_matches(name.lower(), by_lower, n=1)
        listed = textwrap.shorten(", ".join(known), _LISTED, placeholder=" ...")
        hint = f"did you mean {by_lower[close[0]]!r}?" if close else f"known: {listed}"
        super().__init__(f"unknown {kind} {name!r}; {hint}")


class MissingPackageError(VizslaError, ImportError):
    """A package that something optional needs is not installed; the message has the command that installs it."""


class UnsupportedError(VizslaError):
    """Something that a kind of collection cannot do, as a cluster that completes words; the message says what can."""


class CannotExplainError(UnsupportedError):
    """A retriever cannot explain its scores."""


class CollectionError(VizslaError):
    """An index on disk that cannot be used: it does not exist, has another format, is in use, or is damaged."""


class StoppedError(VizslaError):
    """A search that was stopped before its end: at its time limit, or because the client has gone."""


class UncommittedChangesWarning(VizslaWarning):
    """Changes to an index are lost because they were not committed."""
