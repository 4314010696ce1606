"""Settings as nested dataclasses: read from a file, changed by `section.key=value`, listed with their help.

A settings class has sections, which are dataclasses themselves, and keys, which are numbers, texts or true/false. A
section may be one of several classes that differ in the value of their key `source`.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field, fields, is_dataclass
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from vizsla.described import DescriptionError, check_type
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.numbers import short
from vizsla.spec import Option

T = TypeVar("T")
TAG = "source"
_TYPES = {bool: "bool", int: "int", float: "float", str: "str"}


def setting(default: Any, help: str, *, resumable: bool = False) -> Any:
    """A field of a settings class; `resumable`: a resumed run may change it and still be the same run."""
    return field(default=default, metadata={"help": help, "resumable": resumable})


class Key(NamedTuple):
    """A key of a settings class: its full name, as in `training.steps`, its value, its type and its help."""

    name: str
    value: Any
    type: type
    help: str
    resumable: bool


def keys_of(settings: Any, prefix: str = "") -> Iterator[Key]:
    """All keys of settings, those of sections included.

    >>> from vizsla.training.settings import GroupLoss
    >>> [(key.name, key.value, key.help) for key in keys_of(GroupLoss(), "loss.")][1]
    ('loss.temperature', 1.0, 'scores are divided by it')
    """
    hints = _hints(type(settings))
    for one in fields(settings):
        value, name = getattr(settings, one.name), f"{prefix}{one.name}"
        if is_dataclass(value):
            yield from keys_of(value, f"{name}.")
        else:
            metadata = one.metadata
            yield Key(name, value, hints[one.name], metadata.get("help", ""), metadata.get("resumable", False))


def read_settings(settings_class: type[T], data: object, what: str) -> T:
    """Settings from plain data; `what` says in messages whose settings they are.

    A key that the class does not have is refused with the right ones named, and so is a value of a wrong type.
    """
    return _read(settings_class, data, what, "")


def with_changes(settings: T, changes: Sequence[str], what: str) -> T:
    """The settings with some changed, each change given as `section.key=value`."""
    data: dict[str, Any] = asdict(settings)  # type: ignore[call-overload]
    for change in changes:
        name, equals, text = (part.strip() for part in change.partition("="))
        if not equals:
            raise VizslaError(f"{short(change)} is not a setting; expected section.key=value, as in training.steps=200")
        _change(type(settings), data, name, text, what)
    return read_settings(type(settings), data, what)


def _read(settings_class: type[T], data: object, what: str, prefix: str) -> T:
    if not isinstance(data, Mapping):
        raise DescriptionError(f"{prefix.rstrip('.') or what} is {short(repr(data))[1:-1]}, and not keys with values")
    hints = _hints(settings_class)
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in hints:
            raise _unknown(what, f"{prefix}{key}", _names(settings_class, data, prefix))
        name, hint = f"{prefix}{key}", hints[key]
        if hint in _TYPES:
            check_type(name, value, _TYPES[hint])
            values[key] = float(value) if hint is float else value
        else:
            values[key] = _read(_section_class(hint, value, name), value, what, f"{name}.")
    return settings_class(**values)


def _change(settings_class: type, data: dict[str, Any], name: str, text: str, what: str) -> None:
    """Set one key, given by its full name, in plain data."""
    current, place = settings_class, data
    *sections, key = name.split(".")
    for one in sections:
        hint = _hints(current).get(one)
        if hint is None or hint in _TYPES:
            raise _unknown(what, name, _names(settings_class, data))
        current, place = _section_class(hint, place[one], one), place[one]
    hint = _hints(current).get(key)
    if hint not in _TYPES:
        raise _unknown(what, name, _names(settings_class, data))
    option = Option(name, _TYPES[hint])
    try:
        value = option.read(text)
    except ValueError:
        raise VizslaError(f"{short(text)} is not {option.expected} for {name}") from None
    if key == TAG and place.get(TAG) != value:
        place.clear()  # another class, with keys of its own
    place[key] = value


def _unknown(what: str, name: str, known: list[str]) -> VizslaError:
    """The error for a key that does not exist; the same key in another section is the best guess."""
    section, _, last = name.rpartition(".")
    same = [one for one in known if one.rpartition(".")[2] == last]
    if same:
        return VizslaError(f"unknown setting of {what} {name!r}; did you mean {' or '.join(same)}?")
    in_section = [one for one in known if section and one.startswith(f"{section}.")]
    return UnknownNameError(f"setting of {what}", name, in_section or known)


def _hints(settings_class: type) -> dict[str, Any]:
    """The types of the fields of a settings class."""
    hints = get_type_hints(settings_class)
    return {one.name: hints[one.name] for one in fields(settings_class)}


def _section_class(hint: Any, data: object, name: str) -> type:
    """The class of a section; of several, the one whose `source` the data name."""
    if get_origin(hint) not in (Union, types.UnionType):
        made: type = hint
        return made
    classes: dict[str, type] = {str(_default(one, TAG)): one for one in get_args(hint)}
    chosen = data.get(TAG, next(iter(classes))) if isinstance(data, Mapping) else next(iter(classes))
    if chosen not in classes:
        raise UnknownNameError(f"{name}.{TAG}", str(chosen), list(classes))
    return classes[chosen]


def _default(settings_class: type, name: str) -> Any:
    return next(one.default for one in fields(settings_class) if one.name == name)


def _names(settings_class: type, data: Mapping[str, Any], prefix: str = "") -> list[str]:
    """All full key names of a class, with the section classes that the data choose."""
    names = []
    for key, hint in _hints(settings_class).items():
        if hint in _TYPES:
            names.append(f"{prefix}{key}")
        else:
            part = data.get(key) or {}
            names += _names(_section_class(hint, part, key), part, f"{prefix}{key}.")
    return names
