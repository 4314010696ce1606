"""Models as text: a name, a folder, or a weighted sum of them: "bm25 + 0.5 * bm25-wp(k1=1.2)"."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from vizsla.errors import VizslaError, kind_of
from vizsla.models.auto_weighted import AUTO, AutoWeightedSum, auto
from vizsla.models.model import MODELS, Component, Model, Part, Sum
from vizsla.neural.checkpoints.packages import HUB
from vizsla.neural.device import opening_on
from vizsla.numbers import number_text
from vizsla.spec import Call, format_call, is_plugin, parse_sum


def check_model(model: object) -> Model:
    """Refuse what is not a model."""
    if not isinstance(model, Model):
        raise VizslaError(f"a model is a Model or its name, as in 'bm25(k1=1.2)', not {kind_of(model)}")
    return model


def parse_model(text: str, *, device: str | None = None) -> Model:
    """A model from a folder, a name, or an expression of names. `hf:org/name` is one on the model hub.

    `device`: where its networks run, as in cpu or cuda:1; by default the process's, see `vizsla.use_device`.
    An index that is created with the model keeps the device as long as it is open.

    >>> parse_model("bm25(k1=1.2, b=0.75)").k1
    1.2
    >>> parse_model("bm25 + 0.5 * bm25(fields=title, namespace=title)").name
    'bm25 + 0.5 * bm25(fields=title, namespace=title)'
    """
    if not isinstance(text, str):
        raise VizslaError(f"a model is written as text, as in 'bm25(k1=1.2)', not as {kind_of(text)}")
    with opening_on(device):
        return _parse(text)


def _parse(text: str) -> Model:
    if text not in MODELS and _is_folder(text):
        return _open(text)
    models = []
    terms = parse_sum(text, MODELS.what, MODELS.example)
    for weight, call in terms:
        model = _model_of(call)
        models.append(model if weight is None else weight * model)
    parts = tuple(part for model in models for part in model.parts)
    others = [part.component for model in models[1:] for part in model.parts]
    is_fitted = models[0].needs_fit and all(component.reads_documents for component in others)
    if not is_fitted and any(call.name == AUTO for _, call in terms):
        raise VizslaError(f"auto fits the weights of all models in it, so put all of them in auto(...): {text!r}")
    if len(models) == 1:
        return models[0]
    return AutoWeightedSum(parts, text) if is_fitted else Sum(parts)


def _is_folder(text: str) -> bool:
    try:
        return bool(text.strip()) and Path(text).is_dir()
    except (OSError, ValueError):  # too long for a path, or with a NUL: an expression
        return False


def _open(folder: str) -> Model:
    from vizsla.models.saving import open_model  # a search that needs none does not wait for networks

    return open_model(folder)


def _model_of(call: Call) -> Model:
    if call.name.startswith(HUB) or (call.name not in MODELS and _is_folder(call.name)):
        if call.options or call.unnamed:
            raise VizslaError(f"{call.name} is a saved model and takes no options, as in {call.text!r}")
        return _open(call.name)
    if call.unnamed and call.name == AUTO and not call.options:
        return auto(*(_without_weight(text) for text in call.unnamed))
    model = MODELS.make(call)
    if not isinstance(model, Model):
        raise VizslaError(f"the file that registers the model {call.name!r} gives {kind_of(model)}, not a Model")
    if not call.written:
        return model
    return model.with_name(f"{call.name}({call.written})")


def _without_weight(text: str) -> Model:
    """A model inside auto, which must not have a weight."""
    weighted = [weight for weight, _ in parse_sum(text, MODELS.what, MODELS.example) if weight is not None]
    if weighted and not _is_folder(text):
        raise VizslaError(f"auto finds the weights itself, so {text!r} has none; write auto(bm25, minilm)")
    return parse_model(text)


def expression(model: Model) -> str:
    """A model as an expression that `parse_model` reads back; options that have their default are left out.

    >>> expression(parse_model("bm25-wp(k1=1.2)") * 0.5 + parse_model("bm25"))
    '0.5 * bm25-wp(k1=1.2) + bm25'
    """
    text = " + ".join(
        ("" if weight == 1 else f"{number_text(weight)} * ") + _call_of(component) for weight, component in model.parts
    )
    if not _stands_for(text, model):  # a path, field or namespace has a character with a meaning in expressions
        raise _not_an_expression(model)
    return text


def _not_an_expression(model: Model) -> VizslaError:
    return VizslaError(f"{model.name} cannot be written as an expression; save the model")


def _stands_for(text: str, model: Model) -> bool:
    """Whether a text reads back as a model, whatever the names of its parts."""
    try:
        return _unnamed(parse_model(text)) == _unnamed(model)
    except VizslaError:
        return False


def _call_of(component: Component) -> str:
    """A component by its name, and the options in which it differs from what the name alone means."""
    plugin = is_plugin(type(component).__module__)
    calls = chain(_registered_calls(component), _own_calls(component)) if plugin else _own_calls(component)
    text = next((text for text in calls if not plugin or _stands_for(text, component)), None)
    if text is None:
        raise _not_an_expression(component)
    return text


def _registered_calls(component: Component) -> Iterator[str]:
    """The possible expressions of a plugin's component: each name that its file registers, with its options."""
    entries = [entry for entry in MODELS if entry.module == type(component).__module__]
    for entry in sorted(entries, key=lambda entry: entry.make is not type(component)):
        try:
            default = entry.make()
        except (TypeError, VizslaError):  # there are options that must be given
            default = None
        values = {o.name: getattr(component, o.name, o.default) for o in entry.options}
        usual = {o.name: getattr(default, o.name, o.default) for o in entry.options}
        yield format_call(entry.name, {name: value for name, value in values.items() if value != usual[name]})


def _own_calls(component: Component) -> Iterator[str]:
    """The expressions of a component by its own name or folder, if it has one.

    A folder takes no options. If there are some, the folder becomes the option `network` of a model that has it.
    """
    name = component.expression_name
    if not name:
        return
    default = MODELS[name].make() if name in MODELS else Model.load(name)
    differing = [o for o in component.expression_options if getattr(component, o) != getattr(default, o, None)]
    options = {option: getattr(component, option) for option in differing}
    kind = component.kind
    if options and name not in MODELS and kind in MODELS and any(o.name == "network" for o in MODELS[kind].options):
        yield format_call(kind, {"network": name, **options})
    else:
        yield format_call(name, options)


def _unnamed(model: Model) -> list[Part]:
    """The parts of a model without their names."""
    return [Part(weight, component.with_name("")) for weight, component in model.parts]
