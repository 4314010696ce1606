"""Registries: everything that has a name and options registers itself in its own file.

    MODELS = Registry[Model]("model", package="vizsla.models", example="bm25(k1=1.2, b=0.75)")

    @MODELS.register("bm25", help="BM25 over words.", options=options_of(BM25, k1="term frequency saturation"))
    class BM25: ...

A file of your own registers in the same way. Import it first, or name it in VIZSLA_PLUGINS.
"""

from __future__ import annotations

import inspect
import pkgutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Generic, NamedTuple, TypeVar, get_args

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.numbers import short, whole_number
from vizsla.spec.notation import Call, format_value, parse_call
from vizsla.spec.plugins import is_plugin, load_plugins, note_code

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


_READERS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "int": ("a whole number", whole_number),
    "float": ("a number", float),
    "bool": ("true or false", _boolean),
    "tuple[str, ...]": ("names separated by /", lambda text: tuple(text.split("/"))),
}


class Option(NamedTuple):
    """An option in brackets: its name, the type of its value as an annotation, its default, and one line of help."""

    name: str
    type: str = "str"
    default: object = None
    help: str = ""

    def read(self, text: str) -> Any:
        """The value a text stands for; ValueError if it is not of the option's type."""
        return _READERS.get(self.type.removesuffix(" | None"), ("", str))[1](text)

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        return _READERS.get(self.type.removesuffix(" | None"), ("a text", str))[0]


def options_of(make: Callable[..., Any], **help: str) -> tuple[Option, ...]:
    """The options of a dataclass or a function that are named here, with their help; types and defaults are its own.

    >>> def scaled(factor: float = 2.0, *, name: str = ""): ...
    >>> options_of(scaled, factor="every score is multiplied by it")
    (Option(name='factor', type='float', default=2.0, help='every score is multiplied by it'),)
    """
    if is_dataclass(make):
        known = {f.name: (_annotation(f.type), None if f.default is MISSING else f.default) for f in fields(make)}
    else:
        parameters = inspect.signature(make).parameters.values()
        known = {p.name: (_annotation(p.annotation), None if p.default is p.empty else p.default) for p in parameters}
    return tuple(Option(name, *known[name], text) for name, text in help.items())


def _annotation(annotation: object) -> str:
    """An annotation as it is written, with or without `from __future__ import annotations`."""
    return annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)


def with_defaults(options: Sequence[Option], **defaults: object) -> tuple[Option, ...]:
    """Options of which some have other defaults.

    >>> with_defaults((Option("b", "float", 0.4), Option("k1", "float", 0.9)), k1=1.2)[1].default
    1.2
    """
    return tuple(o._replace(default=defaults[o.name]) if o.name in defaults else o for o in options)


@dataclass(frozen=True)
class Entry(Generic[T]):
    """Something registered: its name, what makes it, one line of help, its options, and packages it needs."""

    name: str
    make: Callable[..., T]
    help: str
    options: tuple[Option, ...] = ()
    needs: tuple[str, ...] = ()
    """Packages to install; `onnxruntime|torch` where one of them is enough."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of `needs` that are not installed."""
        return tuple(need for need in self.needs if not any(map(find_spec, need.split("|"))))

    @property
    def module(self) -> str:
        """The module of what makes it, also if some of its arguments are given by `functools.partial`."""
        return str(getattr(self.make, "func", self.make).__module__)

    def read_options(self, call: Call) -> dict[str, Any]:
        """The values of a call's options; an unknown option or a wrong value is refused in one sentence."""
        known = {option.name: option for option in self.options}
        values = {}
        for key, text in call.without_unnamed().options.items():
            if key not in known:
                takes = f"it takes {', '.join(known)}" if known else "it takes no options"
                raise VizslaError(f"{self.name} does not take the option {key} in {short(call.text)}; {takes}")
            try:
                values[key] = known[key].read(text)
            except ValueError:
                raise VizslaError(
                    f"{short(text)} is not {known[key].expected} for {key} in {short(call.text)}"
                ) from None
        return values


class Registry(Generic[T]):
    """Things of one kind by name.

    `what` names the kind in messages. The modules of `package` register what comes with Vizsla; they are imported when
    a name is first looked up. A name that is still unknown loads plugins, see `load_plugins`.

    >>> greetings = Registry[str]("greeting", example="hello(name=Rex)")
    >>> @greetings.register("hello", help="Greets a dog.", options=(Option("name"),))
    ... def hello(name: str = "dog") -> str:
    ...     return f"Hello, {name}!"
    >>> greetings.parse("hello(name=Rex)"), greetings.names()
    ('Hello, Rex!', ['hello'])
    """

    def __init__(
        self, what: str, *, package: str = "", example: str = "", separator: str = "(", more: str = "",
        first: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """`more`: another package, in a higher layer, whose modules register in it, too.

        `first`: modules of `package` whose names are listed first; the others follow in the order of their modules.
        `separator`: `:` for things whose one option is written after a colon, as in `stop:german`."""
        self.what = what
        self.example = example
        self._separator = separator
        self._packages = [name for name in (package, more) if name]
        self._first = [f"{package}.{name}" for name in first]
        self._entries: dict[str, Entry[T]] = {}
        self._lock = threading.RLock()
        self._loaded = not package

    def register(
        self, name: str, *, help: str, options: Sequence[Option] = (), needs: Sequence[str] = ()
    ) -> Callable[[F], F]:
        """A decorator that registers a class or a function by a name."""

        def add(make: F) -> F:
            known = self._entries.get(name)
            if known is not None and known.make.__module__ != make.__module__:
                raise VizslaError(
                    f"two files register the {self.what} {name!r}: {known.make.__module__} and {make.__module__}; "
                    "rename one of them"
                )
            self._entries[name] = entry = Entry(name, make, help, tuple(options), tuple(needs))
            if is_plugin(entry.module):
                note_code(entry.module)
            return make

        return add

    def names(self) -> list[str]:
        """All names: those that come with Vizsla, in the order of their modules, then those of plugins."""
        self._load()
        load_plugins()
        return list(self._entries)

    def own_names(self) -> list[str]:
        """The names that come with Vizsla and those of plugins that are loaded already; no plugin is looked for."""
        self._load()
        return list(self._entries)

    def __contains__(self, name: object) -> bool:
        return self._find(name) is not None

    def __iter__(self) -> Iterator[Entry[T]]:
        return iter([self[name] for name in self.names()])

    def __getitem__(self, name: str) -> Entry[T]:
        """The entry with a name; an unknown name is an error that lists the known ones."""
        entry = self._find(name)
        if entry is None:
            raise UnknownNameError(self.what, name, tuple(self._entries))
        return entry

    def usage(self, name: str) -> str:
        """An example of the notation: a name with its first option."""
        entry = self[name]
        if not entry.options:
            return name
        first = entry.options[0]
        value = format_value(first.default) if first.default not in (None, "") else first.name.upper()
        return f"{name}:{value}" if self._separator == ":" else f"{name}({first.name}={value})"

    def make(self, call: Call) -> T:
        """What a call stands for."""
        entry = self[call.name]
        return entry.make(**entry.read_options(call))

    def parse(self, text: str) -> T:
        """What a text such as `name(option=value)` stands for."""
        return self.make(parse_call(text, self.what, self.example))

    def _find(self, name: object) -> Entry[T] | None:
        if name not in self._entries:
            self._load()
        if name not in self._entries:
            load_plugins()
        return self._entries.get(name) if isinstance(name, str) else None

    def _load(self) -> None:
        """Import the modules that register what comes with Vizsla."""
        if self._loaded:
            return
        with self._lock:
            if not self._loaded:
                packages = ((name, import_module(name).__path__) for name in self._packages)
                found = [f"{name}.{module.name}" for name, path in packages for module in pkgutil.iter_modules(path)]
                places = {module: place for place, module in enumerate(dict.fromkeys((*self._first, *found)))}
                for module in places:
                    import_module(module)
                order = sorted(self._entries.values(), key=lambda e: places.get(e.module, len(places)))
                self._entries = {entry.name: entry for entry in order}  # whichever modules were imported first
                self._loaded = True
