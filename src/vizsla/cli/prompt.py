"""The interactive prompt of `vizsla search`, with a history that is saved."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vizsla.cli import console
from vizsla.errors import InputError, VizslaError

if TYPE_CHECKING:
    from vizsla.runs import Retriever

HELP = """Type a query, or
  :explain N   why result N has its score
  :show N      the whole document of result N
  :k N         show N results from now on
  :quit        leave (or press Ctrl-D)"""


def prompt(retriever: Retriever, k: int, filter: str | None = None) -> None:
    """Search for each line of the terminal or of standard input, until its end."""
    from vizsla.cli.show import count_documents

    interactive = sys.stdin.isatty()
    history = _load_history() if interactive else None
    if interactive:
        console.remark(f"{count_documents(retriever)}, {retriever.name}. Type a query, or :help")
    session = _Session(retriever, k, filter)
    try:
        while True:
            try:
                line = input("vizsla> " if interactive else "")
                line.encode()  # in some locales bytes that are not UTF-8 come in as surrogates
            except EOFError:
                break
            except UnicodeError:
                raise InputError("this is not UTF-8 text", file="standard input") from None
            except KeyboardInterrupt:
                print(file=sys.stderr)
                continue
            if line.strip() in (":q", ":quit", ":exit"):
                break
            session.answer(line.strip())
    finally:
        if history is not None:
            _save_history(history)


class _Session:
    """The state of the prompt: the number of results to show, the last query, and the ids of its results."""

    def __init__(self, retriever: Retriever, k: int, filter: str | None) -> None:
        self._retriever = retriever
        self._k = k
        self._filter = filter
        self._query = ""
        self._ids: list[str] = []

    def answer(self, line: str) -> None:
        """Search for a line, or run it if it is a command; an error is printed as one sentence."""
        from vizsla.cli.show import show_results

        try:
            if line.startswith(":"):
                self._command(line[1:].split())
            elif line:
                self._query, self._ids = line, show_results(self._retriever, line, self._k, self._filter)
        except VizslaError as e:
            console.remark(f"vizsla: {e}", lines=e.has_lines)

    def _command(self, words: list[str]) -> None:
        from vizsla.cli.show import show_explanation

        verb = words[0] if words else ""
        number = int(words[1]) if len(words) == 2 and words[1].isdigit() else 0
        if verb == "k" and number:
            self._k = number
            console.remark(f"{console.count(number, 'result')} from now on")
        elif verb in ("explain", "show") and number:
            if number > len(self._ids):
                raise VizslaError(f"result {number} does not exist; the last query has {len(self._ids)}")
            doc_id = self._ids[number - 1]
            if verb == "explain":
                show_explanation(self._retriever.explain(self._query, doc_id, self._filter), doc_id)
            else:
                document = self._retriever.get(doc_id)
                assert document is not None
                console.print_json({"id": document.id, **document.content})
        else:
            if verb not in ("", "help"):
                console.remark(f"':{console.safe(' '.join(words))}' is not a command.")
            console.remark(HELP, lines=True)


def _load_history() -> Path | None:
    """Turn on line editing with the saved history, if the system supports it, and return the history file."""
    try:
        import readline
    except ImportError:
        return None
    root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    file = Path(root) / "vizsla" / "history"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        readline.set_history_length(1000)
        if file.exists():
            readline.read_history_file(file)
    except OSError:
        return None
    return file


def _save_history(file: Path) -> None:
    import readline

    try:
        readline.write_history_file(file)
    except OSError:
        console.remark(f"vizsla: the history could not be written to {file}")
