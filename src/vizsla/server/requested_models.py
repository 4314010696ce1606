"""The models that a request may name. None of them can make the server read a file that its operator did not name."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from vizsla.errors import VizslaError, in_words
from vizsla.models import BM25, Model, QueryExpander, parse_expander, parse_model, with_expansion
from vizsla.models.augmenter import GENERAL, general_augmenter
from vizsla.models.bm25 import EXPANDERS
from vizsla.models.model import MODELS, Part, Sum
from vizsla.server.errors import RequestError
from vizsla.spec import Call, Entry, parse_call, parse_sum

MAX_MODELS = 64  # cached models: binding a model to an index takes longer than a search
MAX_WHOLE_NUMBER = 1000  # of an option, as in rm3(documents=1000)
MAX_PARTS = 16
_HARMLESS_TEXTS = {"variant", "lengths", "namespace"}
_NEVER_FROM_OUTSIDE = {"analyzer"}  # it may name a file; the index's own is used

Choice = tuple[str | None, tuple[float, ...] | None, str | None]


def is_open_to_requests(entry: Entry[Any]) -> bool:
    """Whether a registered model or query expander reads no files, whatever its options.

    >>> is_open_to_requests(MODELS["bm25"]), is_open_to_requests(MODELS["dense"])
    (True, False)
    """
    texts = {option.name for option in entry.options if "str" in option.type.split(" | ")}
    return not entry.needs and texts <= _HARMLESS_TEXTS | _NEVER_FROM_OUTSIDE


class RequestedModels:
    """The models that requests may name for one index: its own with other weights or parameters, its parts, and those
    that the operator has named.

    >>> models = RequestedModels(parse_model("bm25"), {})
    >>> models.model("bm25(k1=1.2)").k1
    1.2
    >>> models.model("dense(checkpoint=/etc)")
    Traceback (most recent call last):
    ...
    vizsla.server.errors.RequestError: a request cannot name the model dense; start the server with --model NAME=MODEL
    """

    def __init__(self, own: Model, named: Mapping[str, str], expanders: Mapping[str, str] | None = None) -> None:
        self.own = own
        self._named = dict(named)
        self._expanders = dict(expanders or {})
        self._known: dict[Choice, Model] = {}
        self._turn = threading.Lock()

    def model(
        self, text: str | None = None, weights: Sequence[float] | None = None, expand: str | None = None
    ) -> Model | None:
        """The model of a request; None is the index's own.

        `text`: a name or an expression. `weights`: of the parts of the index's own model. `expand`: a query expander.
        """
        if text is not None and weights is not None:
            raise RequestError("give either a model or the weights of the index's own model, not both")
        choice = (text, None if weights is None else tuple(weights), expand)
        if choice == (None, None, None) or (text == self.own.name and expand is None):
            return None
        with self._turn:
            model = self._known.get(choice)
            if model is None:
                model = self._made(*choice)
                if len(self._known) >= MAX_MODELS:
                    self._known.clear()
                self._known[choice] = model
            return model

    def choices(self) -> list[dict[str, str]]:
        """Models to offer, each with a line of help; the index's own is the first."""
        offered = {self.own.name: "The model of this index."}
        parts = self.own.parts
        if len(parts) > 1:
            searched = (part.component.name for part in parts if not part.component.reads_documents)
            offered |= {name: f"Only the part {name}." for name in searched}
        for part in parts:
            if isinstance(part.component, BM25) and part.component.name in MODELS:
                name = part.component.name
                offered.setdefault(f"{name}(k1=1.2, b=0.75)", "BM25 with the parameters of many other engines.")
        return [{"name": name, "help": text} for name, text in offered.items()] + [
            {"name": name, "help": model} for name, model in self._named.items()
        ]

    def expanders(self) -> list[str]:
        """The query expanders that a request may name; they need a BM25, and Vizsla's own one that fits it."""
        own = [part.component for part in self.own.parts if isinstance(part.component, BM25)]
        if not own:
            return []
        names = [*self._expanders, *(entry.name for entry in EXPANDERS if is_open_to_requests(entry))]
        with suppress(VizslaError):  # its weights or a runtime are not installed
            general = general_augmenter()
            if any(general.problem(bm25) is None for bm25 in own):
                names.append(GENERAL)
        return list(dict.fromkeys(names))

    def _made(self, text: str | None, weights: tuple[float, ...] | None, expand: str | None) -> Model:
        model = self.own
        if weights is not None:
            model = self._weighted(weights)
        elif text is not None and text != self.own.name:
            model = parse_model(self._named[text]) if text in self._named else self._parsed(text)
        if expand is None:
            return model
        return with_expansion(model, self._expander(expand))

    def _expander(self, text: str) -> QueryExpander:
        if text in self._expanders:
            return parse_expander(self._expanders[text])
        if text.strip() == GENERAL:
            return general_augmenter()
        call = parse_call(text, EXPANDERS.what, EXPANDERS.example)
        open_ones = [entry.name for entry in EXPANDERS if is_open_to_requests(entry)]
        if call.name not in open_ones:
            raise RequestError(
                f"a request cannot name the query expander {call.name[:80]!r}, only "
                f"{in_words([*self._expanders, *open_ones, GENERAL])}; start the server with --expander NAME=EXPANDER "
                "for synonyms from a file or an augmenter of your own"
            )
        self._check_options(EXPANDERS[call.name], call)
        return EXPANDERS.parse(text)

    def _weighted(self, weights: tuple[float, ...]) -> Model:
        parts = self.own.parts
        if len(weights) != len(parts):
            raise RequestError(f"the model {self.own.name} has {len(parts)} parts, so it takes as many weights")
        return Sum(tuple(Part(weight, part.component) for weight, part in zip(weights, parts, strict=True)))

    def _parsed(self, text: str) -> Model:
        written = parse_sum(text, MODELS.what, MODELS.example)
        if len(written) > MAX_PARTS:
            raise RequestError(f"a model of a request has at most {MAX_PARTS} parts")
        models = [(weight, self._component(call)) for weight, call in written]
        if len(models) == 1 and models[0][0] is None:
            return models[0][1]
        weighted = [model if weight is None else weight * model for weight, model in models]
        return Sum(tuple(part for model in weighted for part in model.parts))

    def _component(self, call: Call) -> Model:
        """The model of a call: a part of the index's own model, perhaps with other options, or a new one."""
        by_name = {part.component.namespace: part.component for part in self.own.parts}
        by_name |= {part.component.name: part.component for part in self.own.parts}
        written = f"{call.name}({call.written})" if call.written else call.name
        if written in by_name:
            return by_name[written]
        entry = MODELS[call.name]
        if not is_open_to_requests(entry):
            raise RequestError(
                f"a request cannot name the model {entry.name}; start the server with --model NAME=MODEL"
            )
        self._check_options(entry, call)
        own = [part.component for part in self.own.parts if isinstance(part.component, BM25)]
        like = [bm25 for bm25 in own if bm25.expression_name == call.name]
        if len(like) == 1:
            return replace(like[0], name=written, **entry.read_options(call))
        return MODELS.make(call).with_name(written)

    @staticmethod
    def _check_options(entry: Entry[Any], call: Call) -> None:
        for name, value in entry.read_options(call).items():
            if name in _NEVER_FROM_OUTSIDE:
                raise RequestError(f"a request cannot set the option {name}; the index's own is used")
            if type(value) is int and abs(value) > MAX_WHOLE_NUMBER:
                raise RequestError(f"{name} is {value}, and the server takes at most {MAX_WHOLE_NUMBER}")
