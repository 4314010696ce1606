"""Source code, as it is; its language, which the name of the file tells, is a field."""

from __future__ import annotations

from collections.abc import Iterator

from vizsla.datasets.files import InputFile
from vizsla.datasets.source_format import SOURCES, DocumentFormat, Extracted, Limits, bare_name

LANGUAGES = {
    "assembly": ".s .asm",
    "c": ".c .h",
    "c#": ".cs",
    "c++": ".cc .cpp .cxx .hpp .hh .hxx",
    "clojure": ".clj .cljs",
    "d": ".d",
    "dart": ".dart",
    "elixir": ".ex .exs",
    "elm": ".elm",
    "erlang": ".erl .hrl",
    "f#": ".fs .fsx",
    "fortran": ".f .for .f90 .f95 .f03",
    "go": ".go",
    "groovy": ".groovy .gradle",
    "haskell": ".hs",
    "java": ".java",
    "javascript": ".js .mjs .cjs .jsx",
    "julia": ".jl",
    "kotlin": ".kt .kts",
    "lisp": ".lisp .el .scm .rkt",
    "lua": ".lua",
    "nim": ".nim",
    "objective-c": ".mm",
    "ocaml": ".ml .mli",
    "pascal": ".pas",
    "perl": ".pl .pm",
    "php": ".php",
    "powershell": ".ps1 .psm1",
    "protobuf": ".proto",
    "python": ".py .pyi",
    "r": ".r",
    "ruby": ".rb",
    "rust": ".rs",
    "scala": ".scala .sc",
    "shell": ".sh .bash .zsh .fish",
    "sql": ".sql",
    "swift": ".swift",
    "terraform": ".tf",
    "typescript": ".ts .tsx .mts .cts",
    "vala": ".vala",
    "verilog": ".v .sv",
    "vhdl": ".vhd .vhdl",
    "zig": ".zig",
}
"""The languages, with the endings of their files."""
_BY_ENDING = {ending: language for language, endings in LANGUAGES.items() for ending in endings.split()}


@SOURCES.register("code", help="Source code, as it is, with its language as a field.")
class Code(DocumentFormat):
    """Source code."""

    endings = tuple(_BY_ENDING)

    def read(self, file: InputFile, limits: Limits) -> Iterator[Extracted]:  # noqa: ARG002
        name = bare_name(file.path)
        language = _BY_ENDING.get(name[name.rfind(".") :], "")
        yield Extracted(file.read_text(), fields={"language": language} if language else {})
