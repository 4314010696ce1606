"""Settings as nested dataclasses, read from a file or changed by section.key=value; those that every kind shares."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.neural.lazy_torch import torch
from vizsla.neural.torch_network import has_fast_bfloat16
from vizsla.numbers import short
from vizsla.plain_data import DescriptionError, check_type
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

    >>> [(key.name, key.value, key.help) for key in keys_of(TrainingSettings(), "training.")][2]
    ('training.batch_size', 16384, 'queries of a batch, over all processes')
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

    An unknown key is an error that names the valid ones; a value of the wrong type is an error as well.
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
        raise DescriptionError(f"{prefix.rstrip('.') or what} is {short(repr(data))[1:-1]}, not keys with values")
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


PRECISIONS = ("bfloat16", "float32")


@dataclass(frozen=True)
class TrainingSettings:
    """The training loop and its optimizer.

    >>> TrainingSettings(steps=10, warmup_steps=2, learning_rate=1.0).learning_rate_at(0)
    0.5
    """

    steps: int = setting(600, "optimizer steps", resumable=True)
    epochs: float = setting(0.0, "passes over the training queries, instead of steps; 0 counts steps")
    batch_size: int = setting(16_384, "queries of a batch, over all processes")
    accumulation: int = setting(
        1, "batches whose mean gradient makes a step; a query's in-batch negatives are those of its own batch"
    )
    tokens_per_chunk: int = setting(
        131_072, "tokens encoded at once; fewer need less memory and change nothing else", resumable=True
    )
    kept_chunks: int = setting(
        0, "chunks of a batch that keep their activations instead of being encoded twice: faster, more memory",
        resumable=True,
    )  # fmt: skip
    learning_rate: float = setting(1e-4, "highest learning rate, reached after warmup_steps; it then falls linearly")
    warmup_steps: int = setting(50, "steps over which the learning rate rises")
    warmup_share: float = setting(
        0.0, "share of all steps over which it rises, instead of warmup_steps; 0 counts steps"
    )
    decay_steps: int = setting(
        0, "step at which it would reach its lowest, if that is after the last step; 0 for the last step"
    )
    final_learning_rate_ratio: float = setting(0.02, "lowest learning rate at the end, relative to the highest")
    beta1: float = setting(0.9, "AdamW's decay of the mean of gradients")
    beta2: float = setting(0.98, "AdamW's decay of the mean of squared gradients")
    epsilon: float = setting(1e-8, "AdamW's epsilon, added to the root of that mean")
    weight_decay: float = setting(0.01, "AdamW's weight decay, of matrices only")
    max_grad_norm: float = setting(1.0, "gradients with a larger norm are clipped")
    dropout: float = setting(
        0.0, "dropout probability of hidden states and attention; 0 keeps what the network has: encoders have none"
    )
    precision: str = setting("bfloat16", "bfloat16 (only on devices that are fast with it) or float32")
    compile: bool = setting(False, "compile the encoder with torch.compile", resumable=True)
    seed: int = setting(0, "seed of batches, dropout and new parameters")
    eval_steps: int = setting(50, "steps between two evaluations on the dev sets", resumable=True)
    patience: int = setting(
        0, "stop after this many evaluations without a better one; 0 trains to the end", resumable=True
    )
    save_steps: int = setting(100, "steps between two checkpoints", resumable=True)

    def __post_init__(self) -> None:
        positive = (
            "steps", "batch_size", "accumulation", "tokens_per_chunk", "learning_rate", "epsilon", "max_grad_norm",
            "eval_steps", "save_steps",
        )  # fmt: skip
        require_positive(self, "training", *positive)
        require_one_of("precision", self.precision, PRECISIONS)
        require_at_least(self, "training", 0, "epochs", "warmup_steps", "warmup_share", "decay_steps", "weight_decay")
        for name in ("beta1", "beta2", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise VizslaError(f"training.{name} must be 0 or more and below 1, not {getattr(self, name):g}")
        if self.warmup_share > 1:
            raise VizslaError(f"training.warmup_share must be at most 1, not {self.warmup_share:g}")

    def in_steps(self, queries: int) -> TrainingSettings:
        """The same settings with epochs converted to steps, given the number of queries.

        >>> settings = TrainingSettings(epochs=1, warmup_share=0.1, batch_size=64).in_steps(6400)
        >>> settings.steps, settings.warmup_steps
        (100, 10)
        """
        a_step = self.batch_size * self.accumulation
        steps = max(round(self.epochs * (queries // a_step)), 1) if self.epochs else self.steps
        warmup = round(self.warmup_share * steps) if self.warmup_share else self.warmup_steps
        return replace(self, steps=steps, warmup_steps=warmup, epochs=0.0, warmup_share=0.0)

    def uses_bfloat16(self, device: torch.device) -> bool:
        """Whether products on this device are computed in 16 bits."""
        return self.precision == "bfloat16" and has_fast_bfloat16(device)

    def learning_rate_at(self, step: int) -> float:
        """The learning rate at a step."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        past = (step - self.warmup_steps) / max(max(self.steps, self.decay_steps) - self.warmup_steps, 1)
        return self.learning_rate * max(1 - past * (1 - self.final_learning_rate_ratio), self.final_learning_rate_ratio)


def require_positive(settings: Any, section: str, *names: str) -> None:
    """Refuse settings in which one of these is not above 0."""
    for name in names:
        if not getattr(settings, name) > 0:
            raise VizslaError(f"{section}.{name} must be more than 0, not {getattr(settings, name):g}")


def require_at_least(settings: Any, section: str, minimum: int, *names: str) -> None:
    """Refuse settings in which one of these is below a minimum."""
    for name in names:
        if not getattr(settings, name) >= minimum:
            raise VizslaError(f"{section}.{name} must be {minimum} or more, not {getattr(settings, name):g}")


def require_one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the known names."""
    if value not in known:
        raise UnknownNameError(what, value, known)
