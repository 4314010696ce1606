"""Tokenizers: where an analyzer starts. Standard words, white space, or any tokenizer.json."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from vizsla.errors import InputError, MissingPackageError, UnknownNameError, VizslaError
from vizsla.lazy import cached_property
from vizsla.plain_data import parse_settings
from vizsla.spec import Option, Registry
from vizsla.text import words
from vizsla.text.filters import Token
from vizsla.text.scan import find_words
from vizsla.text.words import Segmenter

BERT_UNCASED = "bert-base-uncased"
_BERT_FILE = Path(__file__).parent / "data" / "bert-uncased.json"
_MAX_PIECES = 1 << 24


class Tokenizer:
    """Cuts a text into tokens. Equal tokenizers print the same."""

    segmenter: Segmenter | None
    """How to cut a text into pieces that can be worked on one by one; None where that cannot be done."""

    def tokens(self, text: str) -> list[Token]:
        raise NotImplementedError("abstract")

    def split(self, pieces: Sequence[str]) -> tuple[list[str], list[int]]:
        """The terms of pieces the segmenter cut, all in one list, and how many each piece has."""
        return list(pieces), [1] * len(pieces)

    def save(self, folder: Path) -> str:  # noqa: ARG002
        return str(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


TOKENIZERS = Registry[Tokenizer]("tokenizer", example="standard", separator=":")
"""Tokenizers by name. One with an option is made with the text behind the colon and the folder of saved files."""


class Words(Tokenizer):
    """The pieces of a segmenter as they are: Unicode words, or whatever stands between white space."""

    def __init__(self, name: str, segmenter: Segmenter) -> None:
        self._name = name
        self.segmenter: Segmenter = segmenter

    def __str__(self) -> str:
        return self._name

    def tokens(self, text: str) -> list[Token]:
        return [Token(text[a:b], a, b) for a, b in find_words(text, self.segmenter)]


class Trigrams(Words):
    """Unicode words; runs of scripts that put no space between words, such as Thai, as pieces of three characters.

    >>> [token.term for token in Trigrams("standard:trigrams", words.standard()).tokens("กินข้าว 2x")]
    ['กิน', 'ินข', 'นข้', 'ข้า', '้าว', '2x']
    """

    def tokens(self, text: str) -> list[Token]:
        runs = super().tokens(text)
        return [Token(term, run.start + i, run.start + i + len(term)) for run in runs for i, term in _pieces(run.term)]

    def split(self, pieces: Sequence[str]) -> tuple[list[str], list[int]]:
        cut = [[term for _, term in _pieces(piece)] for piece in pieces]
        return [term for terms in cut for term in terms], list(map(len, cut))


def _pieces(word: str) -> list[tuple[int, str]]:
    """Where the pieces of a word begin, and the pieces."""
    if len(word) < 4 or word.isascii() or not words.is_unspaced(word):
        return [(0, word)]
    return [(i, word[i : i + 3]) for i in range(len(word) - 2)]


class Identifiers(Words):
    """Names in source code, whole and in parts. The whole is the letters and digits, so that it does not depend on how
    the parts are joined.

    >>> [token.term for token in Identifiers("identifiers", words.identifiers()).tokens("fetchUserData(HTTP_2)")]
    ['fetchUserData', 'fetch', 'User', 'Data', 'HTTP2', 'HTTP', '2']
    """

    def tokens(self, text: str) -> list[Token]:
        names = super().tokens(text)
        return [Token(term, name.start + a, name.start + z) for name in names for term, a, z in _names(name.term)]

    def split(self, pieces: Sequence[str]) -> tuple[list[str], list[int]]:
        cut = [[term for term, _, _ in _names(piece)] for piece in pieces]
        return [term for terms in cut for term in terms], list(map(len, cut))


_LONGEST_NAME = 64
"""Longer words are data, such as base64, and are not cut."""
_KINDS = re.compile("U{2,}s(?![ls])|U+(?=U[ls])|U?[ls]+|U+|d+")


def _names(word: str) -> list[tuple[str, int, int]]:
    """A name without its joints, and its parts, if there are several, with their places.

    A part begins at a capital letter, and at digits that follow letters; the last capital of several begins a word
    (HTTPServer), unless a plural s ends it (URLs).
    """
    kinds = "".join(map(_kind, word))
    whole = [("".join(c for c, kind in zip(word, kinds, strict=True) if kind != "_"), 0, len(word))]
    if len(word) > _LONGEST_NAME or word[0].isdecimal():
        return whole
    parts = [(word[m.start() : m.end()], m.start(), m.end()) for m in _KINDS.finditer(kinds)]
    return whole + parts if len(parts) > 1 else whole


def _kind(character: str) -> str:
    if character.isupper():
        return "U"
    if character.isdecimal():
        return "d"
    if character == "s":
        return "s"
    return "_" if character == "-" or unicodedata.category(character) == "Pc" else "l"


def tokenizers_library() -> Any:
    """The package tokenizers; where it is not installed, an error that says how to install it."""
    try:
        return import_module("tokenizers")
    except ImportError:
        raise MissingPackageError(
            "word pieces need tokenizers, which is not installed; get it with: pip install 'vizsla[neural]'"
        ) from None


class WordPiece(Tokenizer):
    """The tokenizer in a tokenizer.json, special tokens left out.

    It is known by the hash of its file's content. BERT's kind (a lower-casing or cased BertNormalizer before a
    BertPreTokenizer) is applied word by word, which is many times faster and gives the same pieces. This is not
    possible with added tokens that cannot be recognised in single words, such as tokens of several words.
    """

    def __init__(self, content: bytes, origin: str) -> None:
        self.content = content
        self._origin = origin
        self.sha256 = hashlib.sha256(content).hexdigest()
        try:
            settings = parse_settings(content)
            self.is_bert = _is_bert(settings)
            openers = _openers(settings.get("added_tokens") or []) if self.is_bert else None
            self.segmenter = None if openers is None else words.bert_pieces(openers)
        except (ValueError, AttributeError, TypeError, KeyError):
            raise InputError("this is not a tokenizer.json", file=origin) from None

    def __str__(self) -> str:
        return f"wordpiece:{self.sha256[:12]}.json"

    def save(self, folder: Path) -> str:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{self.sha256[:12]}.json").open("wb") as file:
            file.write(self.content)
            file.flush()
            os.fsync(file.fileno())
        return str(self)

    @cached_property
    def _tokenizer(self) -> Any:
        library = tokenizers_library()
        try:
            tokenizer = library.Tokenizer.from_buffer(self.content)
        except Exception as e:  # the library raises plain Exception
            raise InputError(f"this is not a tokenizer.json ({e})", file=self._origin) from None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    def tokens(self, text: str) -> list[Token]:
        e = self._tokenizer.encode(_valid(text), add_special_tokens=False)
        # By their ids: the library would return an added token as it is spelled in the text.
        return [Token(self.vocabulary[i], a, b) for i, (a, b) in zip(e.ids, e.offsets, strict=True)]

    def split(self, pieces: Sequence[str]) -> tuple[list[str], list[int]]:
        encodings = self._tokenizer.encode_batch_fast([_valid(p) for p in pieces], add_special_tokens=False)
        vocabulary = self.vocabulary
        return [vocabulary[i] for e in encodings for i in e.ids], list(map(len, encodings))

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The numbers of the pieces of texts; for documents an analyzer's lexicon is many times faster."""
        return [e.ids for e in self._tokenizer.encode_batch_fast(list(map(_valid, texts)), add_special_tokens=False)]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each piece, special tokens included."""
        return dict(self._tokenizer.get_vocab(with_added_tokens=True))

    @cached_property
    def vocabulary(self) -> list[str]:
        """All pieces by their number."""
        size = max(self.numbers.values(), default=-1) + 1
        if size > _MAX_PIECES:
            raise InputError(f"this tokenizer has the token id {size - 1:,}, which is too high", file=self._origin)
        return [self._tokenizer.id_to_token(i) or f"[unused-{i}]" for i in range(size)]


def _valid(text: str) -> str:
    """The text with lone surrogates replaced, which the tokenizers library cannot take."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _is_bert(settings: dict[str, Any]) -> bool:
    parts = (settings.get("normalizer") or {}, settings.get("pre_tokenizer") or {})
    return [p.get("type") for p in parts] == ["BertNormalizer", "BertPreTokenizer"]


def _openers(added: Sequence[dict[str, Any]]) -> frozenset[str] | None:
    """First characters of added tokens that cutting at punctuation would break; None if single words do not suffice.

    A single word suffices for a token of ASCII letters and digits, and for one that begins with ASCII punctuation and
    contains no space, unless the token depends on its neighbours.
    """
    openers = {"["}
    for content, single in ((token["content"], token.get("single_word")) for token in added if token["content"]):
        plain = content.isascii() and content.isprintable() and " " not in content
        if not plain or single or (content[0].isalnum() and not content.isalnum()):
            return None
        if not content.isalnum():
            openers.add(content[0])
    return frozenset(openers)


def parse_tokenizer(text: str, folder: Path | None = None) -> Tokenizer:
    """A tokenizer from its text form: `standard`, `whitespace`, `wordpiece` or `wordpiece:FILE`.

    `folder`: where an analyzer was saved; the file is then one of this folder.
    """
    name, _, option = text.strip().partition(":")
    entry = TOKENIZERS[name]
    if entry.options:
        return entry.make(option, folder)
    if option:
        raise VizslaError(f"the tokenizer {name!r} takes no option, but got {option!r}")
    return entry.make()


_STANDARD = {"": words.standard, "persian": words.persian, "trigrams": words.standard}


@TOKENIZERS.register(
    "standard",
    help="Words as Unicode defines them.",
    options=(
        Option("variant", default="", help="persian: cut at a zero-width non-joiner; trigrams: cut Thai and the like"),
    ),
)
def standard(variant: str = "", folder: Path | None = None) -> Words:  # noqa: ARG001
    """Cuts a text into Unicode words."""
    if variant not in _STANDARD:
        raise UnknownNameError("variant of the tokenizer standard", variant, tuple(filter(None, _STANDARD)))
    name = f"standard:{variant}" if variant else "standard"
    return (Trigrams if variant == "trigrams" else Words)(name, _STANDARD[variant]())


@TOKENIZERS.register("identifiers", help="Names in source code, whole and in parts.")
def identifiers() -> Identifiers:
    """Cuts source code into names."""
    return Identifiers("identifiers", words.identifiers())


@TOKENIZERS.register(
    "whitespace",
    help="Whatever stands between white space.",
    options=(Option("variant", default="", help="lucene: as Java defines white space"),),
)
def whitespace(variant: str = "", folder: Path | None = None) -> Words:  # noqa: ARG001
    """Cuts a text at white space."""
    if variant not in ("", "lucene"):
        raise UnknownNameError("variant of the tokenizer whitespace", variant, ("lucene",))
    return Words("whitespace:lucene", words.java_whitespace()) if variant else Words("whitespace", words.whitespace())


@TOKENIZERS.register(
    "wordpiece",
    help="The pieces of a tokenizer.json; BERT's by default.",
    options=(Option("file", help="a tokenizer.json, its folder, or a name on the model hub"),),
)
def wordpiece(file: str = "", folder: Path | None = None) -> WordPiece:
    """The tokenizer in a file, in a folder of saved files, or by its name on the model hub."""
    name = file or BERT_UNCASED
    if folder is not None:
        return _saved_wordpiece(folder / name)
    path = Path(name)
    if path.is_dir():
        path = path / "tokenizer.json"
    if path.is_file():
        return WordPiece(path.read_bytes(), str(path))
    if name == BERT_UNCASED:
        return WordPiece(_BERT_FILE.read_bytes(), str(_BERT_FILE))
    if name.endswith(".json"):
        raise InputError("there is no such tokenizer file", file=name)
    return _from_hub(name)


def _saved_wordpiece(file: Path) -> WordPiece:
    """A tokenizer that was saved under its hash."""
    if not file.is_file():
        raise InputError("there is no such tokenizer file", file=str(file))
    tokenizer = WordPiece(file.read_bytes(), str(file))
    if str(tokenizer) != f"wordpiece:{file.name}":
        raise InputError("this is not the tokenizer that was saved here", file=str(file))
    return tokenizer


def _from_hub(name: str) -> WordPiece:
    """A tokenizer by its name on the model hub: from the local cache, or fetched where there is a network."""
    from huggingface_hub import hf_hub_download

    try:
        path = hf_hub_download(name, "tokenizer.json")
    except Exception:
        raise VizslaError(
            f"the tokenizer {name!r} is neither a file nor in the local hub cache, and could not be fetched; "
            "give a file as wordpiece:path/to/tokenizer.json"
        ) from None
    return WordPiece(Path(path).read_bytes(), name)
