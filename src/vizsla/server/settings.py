"""The settings of a server. Flags override environment variables, which override a TOML file."""

from __future__ import annotations

import ipaddress
import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal

from vizsla.errors import InputError, VizslaError
from vizsla.plain_data import DescriptionError, from_data

PREFIX = "VIZSLA_SERVE_"
"""The prefix of environment variables, as in VIZSLA_SERVE_PORT."""
KEY_VARIABLES = ("VIZSLA_READ_KEY", "VIZSLA_WRITE_KEY", "VIZSLA_JUDGE_KEY", "VIZSLA_ADMIN_KEY")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED = {"indexes"}  # /v1/indexes lists them
_OTHERS_MAY_READ = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Limits:
    """The limits of one request. More is refused with 400, 413, 429 or 504, never silently truncated."""

    k: int = 1000
    offset: int = 10_000
    query_characters: int = 4096
    queries: int = 1000
    results: int = 100_000
    """Over all queries of a request that has several."""
    body_bytes: int = 4 << 20
    upload_bytes: int = 4 << 30
    documents: int = 1_000_000
    line_bytes: int = 16 << 20
    seconds: float = 30.0
    """The time to read a request and to answer it. An upload may take longer while bytes keep arriving."""
    in_flight: int = 256
    """Requests that one worker processes at a time, not counting those whose bodies have not arrived."""
    bodies: int = 512
    """Requests whose bodies one worker receives at a time; beyond that, the one that was idle longest is dropped."""

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not value > 0:
                raise VizslaError(f"the limit {name} must be more than 0, not {value:g}")


@dataclass(frozen=True)
class Quotas:
    """What requests may create: how many collections, and how large each may become. More is refused with 507."""

    collections: int = 100
    documents: int = 1_000_000
    bytes: int = 10 << 30

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 0:
                raise VizslaError(f"the quota {name} must be 0 or more, not {value}")


@dataclass(frozen=True)
class Keys:
    """The keys of a server. All of them may read; `judge` may also write judgements, and `write` change documents;
    `admin` may do everything, such as to create and delete collections.

    Without any, every client may read, and write if the server was started with --write; judgements are then accepted
    only from this machine.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    judge: tuple[str, ...] = ()
    admin: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Keys({', '.join(f'{len(keys)} to {kind}' for kind, keys in asdict(self).items())})"

    def __bool__(self) -> bool:
        return any(asdict(self).values())

    def __add__(self, other: Keys) -> Keys:
        return Keys(*(mine + theirs for mine, theirs in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True)
class Settings:
    """All settings of a server."""

    indexes: dict[str, str] = field(default_factory=dict)
    """Folders of indexes by the names they are served under."""
    host: str = "127.0.0.1"
    port: int = 8080
    workers: int = 1
    write: bool = False
    judging: bool = True
    mcp: bool = True
    collections: str = ""
    """The folder of the collections that requests may create and delete; empty: they may not."""
    collection_models: dict[str, str] = field(default_factory=dict)
    """The models by name that a new collection may have, the first by default; the expression may name files of this
    machine. Without any it is `bm25`."""
    state: str = ""
    """The folder of judgements and staged documents; empty: beside each index."""
    models: dict[str, str] = field(default_factory=dict)
    """Models by name that requests may ask for; the expression may name files of this machine."""
    expanders: dict[str, str] = field(default_factory=dict)
    """Query expanders by name that requests may ask for; the expression may name files of this machine."""
    rerankers: dict[str, str] = field(default_factory=dict)
    cors: tuple[str, ...] = ()
    """Origins whose pages may call the server, as in https://example.org; none by default."""
    hosts: tuple[str, ...] = ()
    """The host names of the server that the header Host may have; any by default, see `--allow-host`."""
    log_texts: bool = False
    """Whether the access log has queries and ids of documents."""
    access_log: bool = True
    log_format: Literal["text", "json"] = "text"
    limits: Limits = field(default_factory=Limits)
    quotas: Quotas = field(default_factory=Quotas)
    keys: Keys = field(default_factory=Keys)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise VizslaError(f"a port is a number from 0 to 65535, not {self.port}")
        if self.workers < 1:
            raise VizslaError(f"the number of workers must be 1 or more, not {self.workers}")
        for name in (*self.indexes, *self.models, *self.expanders, *self.rerankers, *self.collection_models):
            check_name(name)
        if self.log_format not in ("text", "json"):
            raise VizslaError(f"the format of the log is text or json, not {self.log_format!r}")
        for origin in self.cors:
            if not re.fullmatch(r"\*|https?://[^/\s]+", origin):
                raise VizslaError(f"an origin is written as in https://example.org, or is *, not {origin!r}")


def check_name(name: str) -> str:
    """Refuse a name that cannot be part of a URL."""
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise VizslaError(
            f"{name!r} cannot be the name of something that is served: use letters, digits, '.', '_' and '-', "
            "as in NAME=FOLDER"
        )
    return name


def index_names(arguments: list[str]) -> dict[str, str]:
    """Indexes by name, from arguments such as `wiki.index` or `wiki=/data/wiki.index`.

    >>> index_names(["data/wiki.index", "dogs=other.index"])
    {'wiki': 'data/wiki.index', 'dogs': 'other.index'}
    """
    found: dict[str, str] = {}
    for argument in arguments:
        name, equals, folder = argument.partition("=")
        if not equals or not _NAME.fullmatch(name) or os.path.isdir(argument):
            folder = argument
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(os.path.abspath(argument)).name.removesuffix(".index"))
        if not folder:
            raise VizslaError(f"{argument!r} names no folder; expected NAME=FOLDER")
        if check_name(name) in found:
            raise VizslaError(f"two indexes have the name {name!r}; name them, as in other={folder}")
        found[name] = folder
    return found


def read_settings(flags: Mapping[str, Any], file: str | None, environ: Mapping[str, str]) -> Settings:
    """The settings of a server. Flags override the environment, and the environment overrides the file.

    `flags`: fields of `Settings` by name, and `limits` as a mapping; None was not given. `keys` is the file of keys.
    """
    given = _of_file(file) if file else {}
    given = _merged(given, _of_environment(environ))
    given = _merged(given, {name: value for name, value in flags.items() if value not in (None, (), [], {})})
    tables = {name: given.pop(name, {}) for name in _TABLES}
    keys_file = given.pop("keys", None)
    try:
        settings: Settings = from_data(Settings, {name: _plain(value) for name, value in given.items()})
        settings = replace(settings, **{name: from_data(kind, tables[name]) for name, kind in _TABLES.items()})
    except DescriptionError as e:
        raise VizslaError(f"{e}; see 'vizsla serve --help'") from None
    own = Keys(*((_checked_key(environ[name], name),) if environ.get(name) else () for name in KEY_VARIABLES))
    return check_exposure(replace(settings, keys=own + (read_keys(keys_file) if keys_file else Keys())))


def check_exposure(settings: Settings) -> Settings:
    """Refuse a server that everyone could write to, and a writable server without a key to write with."""
    keys = settings.keys
    if settings.write and keys and not (keys.write or keys.admin):
        raise VizslaError("--write needs a key to write with; add a line 'write KEY' to the file of keys")
    if settings.collections and not settings.write:
        raise VizslaError("--collections lets requests create indexes and fill them, so it needs --write")
    if settings.collections and keys and not keys.admin:
        raise VizslaError("--collections needs a key to create them with; add a line 'admin KEY' to the file of keys")
    if settings.write and not keys and not is_loopback(settings.host):
        raise VizslaError(
            f"anybody who reaches {settings.host} could change the indexes; give --keys FILE with a line 'write KEY'"
        )
    return settings


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host.

    >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
    (True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


_TABLES: dict[str, type[Any]] = {"limits": Limits, "quotas": Quotas}
"""The settings that are tables of numbers."""


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = {name: {**below[name], **above[name]} for name in _TABLES if name in below and name in above}
    return {**below, **above, **both}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _of_file(file: str) -> dict[str, Any]:
    """The settings of a TOML file; paths in it are relative to its folder."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not text in UTF-8"
        raise InputError(f"cannot be read ({reason})", file=file) from None
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as e:
        raise InputError(f"this is not TOML ({e})", file=file) from None
    known = {f.name for f in fields(Settings)}
    for name in given:
        if name not in known:
            raise InputError(f"unknown setting {name!r}; known: {', '.join(sorted(known))}", file=file)
    folder = Path(file).parent
    for table in ("indexes", "rerankers", "models", "expanders", "collection_models"):
        values = given.get(table, {})
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise InputError(f"{table} must be a table of names and texts", file=file)
        if values and table in ("indexes", "rerankers"):
            given[table] = {name: str(folder / value) for name, value in values.items()}
    for name in ("state", "keys", "collections"):
        if isinstance(given.get(name), str) and given[name]:
            given[name] = str(folder / given[name])
    return given


def _of_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    """The settings of environment variables: VIZSLA_SERVE_PORT, VIZSLA_SERVE_LIMIT_K and so on."""
    given: dict[str, Any] = {}
    tables: dict[str, dict[str, Any]] = {name: {} for name in _TABLES}
    readers = {f"{PREFIX}{f.name.upper()}": (given, f.name, str(f.type)) for f in fields(Settings)}
    for table, numbers in _TABLES.items():
        start = f"{PREFIX}{table.removesuffix('s').upper()}_"
        readers |= {start + f.name.upper(): (tables[table], f.name, str(f.type)) for f in fields(numbers)}
    readers[f"{PREFIX}KEYS"] = (given, "keys", "str")
    for name, text in environ.items():
        if name.startswith(PREFIX) and name not in [f"{PREFIX}{table.upper()}" for table in _TABLES]:
            if name not in readers:
                raise VizslaError(f"unknown setting {name} in the environment; known: {', '.join(sorted(readers))}")
            target, key, kind = readers[name]
            target[key] = _of_text(name, text, kind)
    return {**given, **{name: values for name, values in tables.items() if values}}


def _of_text(name: str, text: str, kind: str) -> Any:
    """The value of an environment variable; lists and tables are separated by commas."""
    try:
        if kind == "bool":
            return {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}[text.lower()]
        if kind in ("int", "float"):
            return int(text) if kind == "int" else float(text)
    except (ValueError, KeyError):
        expected = {"bool": "true or false", "int": "a whole number", "float": "a number"}[kind]
        raise VizslaError(f"{name} is {text!r}, and not {expected}") from None
    items = [item.strip() for item in text.split(",") if item.strip()]
    if kind.startswith("dict"):
        return index_names(items) if name == f"{PREFIX}INDEXES" else named_values(items, name)
    return items if kind.startswith("tuple") else text


def named_values(items: list[str], what: str) -> dict[str, str]:
    """Values by name, from texts such as `tuned=bm25(k1=1.2)`; `what` is where they were given.

    >>> named_values(["tuned=bm25(k1=1.2)"], "--model")
    {'tuned': 'bm25(k1=1.2)'}
    """
    found = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not value.strip() or not _NAME.fullmatch(name.strip()):
            raise VizslaError(f"{what} is written as NAME=VALUE, not {item!r}")
        found[name.strip()] = value.strip()
    return found


def read_keys(file: str) -> Keys:
    """The keys in a file: a line `read KEY`, `judge KEY`, `write KEY` or `admin KEY` for each.

    Only its owner may read the file.
    """
    try:
        with open(file, encoding="utf-8") as opened:
            mode = os.fstat(opened.fileno()).st_mode
            lines = opened.read().splitlines()
    except (OSError, UnicodeDecodeError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not text in UTF-8"
        raise InputError(f"the file of keys cannot be read ({reason})", file=file) from None
    if os.name == "posix" and mode & _OTHERS_MAY_READ:
        raise InputError("other users can read this file of keys; protect it with: chmod 600", file=file)
    found: dict[str, list[str]] = {kind.name: [] for kind in fields(Keys)}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2 or words[0] not in found:
            raise InputError("expected 'read KEY', 'judge KEY', 'write KEY' or 'admin KEY'", file=file, line=number)
        found[words[0]].append(_checked_key(words[1], f"{file}:{number}"))
    if not any(found.values()):
        raise InputError(
            "there is no key in this file; expected lines 'read KEY', 'judge KEY', 'write KEY' or 'admin KEY'",
            file=file,
        )
    return Keys(**{kind: tuple(keys) for kind, keys in found.items()})


def _checked_key(key: str, place: str) -> str:
    if len(key) < 16 or not key.isascii() or not key.isprintable() or " " in key:
        raise VizslaError(f"{place}: a key has at least 16 characters of ASCII and no space")
    return key
