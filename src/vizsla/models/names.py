"""Models by name, and sums of them by expression: "bm25", "bm25(k1=1.2, b=0.75)", "bm25 + 0.5 * bm25-wp".

    expression = term { "+" term }
    term       = [ weight "*" ] name [ "(" [ option { "," option } ] ")" ]
    option     = key "=" value

A value is a text in which brackets are closed, as those of an expression are, which `spar` and `sketch` take.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from vizsla.encoders.checkpoint import PACKAGED
from vizsla.errors import UnknownNameError, VizslaError
from vizsla.models.augmenter import Augmenter
from vizsla.models.auto_weighted import AutoWeightedSum
from vizsla.models.bm25 import BM25
from vizsla.models.dense import Dense
from vizsla.models.embedding import DenseComponent
from vizsla.models.expansion import ExpandedBM25, QueryExpander
from vizsla.models.feedback import RM3
from vizsla.models.impacts import Impacts
from vizsla.models.learned_sparse import SHIPPED, LearnedSparse
from vizsla.models.model import Component, Model, Part, Sum
from vizsla.models.precomputed import PrecomputedVectors
from vizsla.models.presets import PRESETS, find_preset
from vizsla.models.sketch import Sketch
from vizsla.models.spar import Spar
from vizsla.networks.graph import Precision
from vizsla.numbers import number_text, short, whole_number
from vizsla.spec import split_options

BM51_WEIGHT = 0.85
"""Of BM26 in BM51 where there are too few documents to fit it: the mean of the sets it was measured on."""
_SIMILARITIES = ("cosine", "dot")
_PIECES = {"analyzer": "wordpiece", "namespace": "pieces"}


def _multifield(**options: Any) -> Model:
    """Title and text as fields of their own, each with its own statistics; both weigh 1."""
    parts = [BM25(**{"fields": (f,), "namespace": f, "name": f, **options}) for f in ("title", "text")]
    return Sum(parts[0].parts + parts[1].parts, "bm25-multifield")


def _prime(**options: Any) -> Model:
    """BM25 over words plus BM25 over word pieces: the BM25' of the BM26 paper."""
    both = BM25(**options), BM25(**{"name": "bm25-wp", **_PIECES, **options})
    return Sum(both[0].parts + both[1].parts, "bm25-prime")


def _saved(folder: str) -> Model:
    return Model.load(folder)


def _bm26e(network: str = "", **options: Any) -> Model:
    """A BM26e of one's own: none comes with the package."""
    return replace(_own_network("bm26e", network), **options)


def _bm51(weight: float | None = None, network: str = "", **options: Any) -> Model:
    """BM25 plus BM26: equally strong by a weight fitted to the documents, or by one that is given.

    `network`: the folder of a BM26 of one's own.
    """
    learned = _own_network("bm26", network) if network else LearnedSparse.shipped("bm26")
    return _with_bm25("bm51", learned, weight, options)


def _bm51e(weight: float | None = None, network: str = "", **options: Any) -> Model:
    """BM25 plus a BM26e of one's own."""
    return _with_bm25("bm51e", _own_network("bm51e", network), weight, options)


def _own_network(name: str, folder: str) -> LearnedSparse:
    if not folder:
        raise VizslaError(
            f"no BM26e comes with Vizsla; train one, as in: vizsla train bm26e --corpus FILE -o DIR, and name it: "
            f'"{name}(network=DIR)"'
        )
    learned = Model.load(folder)
    if not isinstance(learned, LearnedSparse):
        raise VizslaError(f"{folder}: there is no single network here, which {name} needs")
    return learned


def _with_bm25(name: str, learned: LearnedSparse, weight: float | None, options: dict[str, Any]) -> Model:
    if weight is not None and not 0 < weight < math.inf:
        raise VizslaError(f"the weight of {learned.name} in {name} must be a number above 0, not {number_text(weight)}")
    if "fields" in options:
        learned = replace(learned, fields=options["fields"])
    parts = Part(1.0, BM25(**options)), Part(BM51_WEIGHT if weight is None else weight, learned)
    return AutoWeightedSum(parts, name) if weight is None else Sum(parts, name)


def _bm51_paper(**options: Any) -> Model:
    """BM25 plus BM26 as the paper adds them: both in 8 bits, on either side, with weights of 1."""
    parts = Impacts(BM25(**options), name="bm25"), LearnedSparse.shipped("bm26", whole=True)
    return Sum(parts[0].parts + parts[1].parts, "bm51-paper")


def _prime_paper(**options: Any) -> Model:
    """BM25' as the paper adds it: words and word pieces, both in 8 bits."""
    pieces = Impacts(BM25(**{**_PIECES, **options}), namespace="pieces", name="bm25-wp")
    parts = Impacts(BM25(**options), name="bm25"), pieces
    return Sum(parts[0].parts + parts[1].parts, "bm25-prime-paper")


def _augmented(network: str = "general", **options: Any) -> Model:
    """BM25 asked in the words of an augmenter, over the terms it was trained for; without a name the one that comes."""
    augmenter = Augmenter.load(network)
    bm25 = BM25(**{"analyzer": augmenter.analyzer, "variant": augmenter.variant, **options})
    return replace(bm25.expand(augmenter), name="bm25-augmented")


def _rm3(documents: int = 10, terms: int = 10, original: float = 0.5, **options: Any) -> Model:
    """BM25 that looks twice."""
    return replace(BM25(**options).expand(RM3(documents, terms, original)), name="bm25-rm3")


def _minilm(precision: str = "int8", **options: Any) -> Model:
    """all-MiniLM-L6-v2, from the package of weights or the model hub."""
    return Dense.open(PACKAGED, _precision(precision), **{"name": "minilm", "namespace": "minilm", **options})


def _dense(
    checkpoint: str = "",
    precision: str = "int8",
    query_checkpoint: str = "",
    preset: str = "",
    similarity: str = "",
    **options: Any,
) -> Model:
    """Any encoder as transformers or sentence-transformers save it, read as its files or a preset say."""
    known = find_preset(preset) if preset else None
    documents = checkpoint or (known.documents if known else "")
    queries = query_checkpoint or (known.queries if known and not checkpoint else "")
    if known is not None and known.two and not (documents and queries):
        raise VizslaError(f"{preset} has two encoders; name both: {preset}(checkpoint=FOLDER, query_checkpoint=FOLDER)")
    if not documents:
        raise VizslaError("name an encoder, as in dense(checkpoint=FOLDER)")
    if similarity and similarity not in _SIMILARITIES:
        raise UnknownNameError("similarity", similarity, _SIMILARITIES)
    told: dict[str, Any] = {"name": preset, "namespace": preset} if preset else {}
    told |= {"normalised": similarity == "cosine"} if similarity else {}
    return Dense.open(documents, _precision(precision), queries=queries, preset=known, **{**told, **options})


def _spar(dense: str = "minilm", lexical: str = "", **options: Any) -> Model:
    """A dense model and one that imitates a lexical model, each by its name, its folder or an expression."""
    if not lexical:
        raise VizslaError(
            "name the model that imitates a lexical one, as in spar(dense=minilm, lexical=sketch, mu=0.025), or train "
            "one with: vizsla train lambda --corpus FILE -o DIR"
        )
    both = [parse_model(which) for which in (dense, lexical)]
    first, second = both
    if not isinstance(first, DenseComponent) or not isinstance(second, DenseComponent):
        other = dense if not isinstance(first, DenseComponent) else lexical
        raise VizslaError(f"{other} is no dense model, and SPAR is made of two; sketch makes one of bm25")
    return Spar(first, second, **options)


def _sketch(lexical: str = "bm25", **options: Any) -> Model:
    """A lexical model as a dense one, by directions thrown for its terms."""
    return Sketch(parse_model(lexical), **options)  # type: ignore[arg-type]  # it says what it cannot sketch


def _precision(text: str) -> Precision:
    for known in get_args(Precision):
        if text == known:
            return known  # type: ignore[no-any-return]
    raise UnknownNameError("precision", text, get_args(Precision))


MODELS: dict[str, Callable[..., Model]] = {
    "bm25": BM25,
    "bm25-multifield": _multifield,
    "bm25-wp": lambda **options: BM25(**{"name": "bm25-wp", **_PIECES, **options}),
    "bm25-prime": _prime,
    "bm25-augmented": _augmented,
    "bm25-rm3": _rm3,
    "bm26": lambda **options: LearnedSparse.shipped("bm26", **options),
    "bm26e": _bm26e,
    "bm51": _bm51,
    "bm51e": _bm51e,
    "bm51-paper": _bm51_paper,
    "bm25-prime-paper": _prime_paper,
    "minilm": _minilm,
    "dense": _dense,
    **{name: partial(_dense, preset=name) for name in PRESETS},
    "spar": _spar,
    "sketch": _sketch,
    "vectors": PrecomputedVectors,
}

_OPTIONS: dict[str, Callable[[str], Any]] = {
    "k1": float,
    "b": float,
    "delta": float,
    "variant": str,
    "lengths": str,
    "analyzer": str,
    "fields": lambda text: tuple(text.split("/")),
    "namespace": str,
    "quantiser": str,
    "length": whole_number,
    "weight": float,
    "network": str,
    "documents": whole_number,
    "terms": whole_number,
    "original": float,
    "checkpoint": str,
    "precision": str,
    "query_checkpoint": str,
    "preset": str,
    "similarity": str,
    "pooling": lambda text: tuple(text.split("/")),
    "query_length": whole_number,
    "dense": str,
    "lexical": str,
    "mu": float,
    "combine": str,
    "width": whole_number,
}
_BM25 = ("k1", "b", "delta", "variant", "lengths", "analyzer", "fields", "namespace")
_LEARNED = ("analyzer", "length", "fields", "namespace")
_DENSE = ("precision", "pooling", "length", "query_length", "fields", "namespace")
_ENCODERS = ("checkpoint", "query_checkpoint", "similarity", *_DENSE)
TAKEN: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("bm25", "bm25-multifield", "bm25-wp", "bm25-prime", "bm51-paper", "bm25-prime-paper"), _BM25),
    "bm25-augmented": ("network", *_BM25),
    "bm25-rm3": ("documents", "terms", "original", *_BM25),
    "bm26": _LEARNED,
    "bm26e": ("network", *_LEARNED),
    "bm51": ("weight", "network", *_BM25),
    "bm51e": ("weight", "network", *_BM25),
    "minilm": _DENSE,
    "dense": ("preset", *_ENCODERS),
    **dict.fromkeys(PRESETS, _ENCODERS),
    "spar": ("dense", "lexical", "mu", "combine", "namespace"),
    "sketch": ("lexical", "width", "namespace"),
    "vectors": ("quantiser", "fields", "namespace"),
}
"""The options each model takes, by its name; a saved model takes none."""
_RM3 = ("documents", "terms", "original")
_NAMED = ExpandedBM25 | BM25 | Dense | PrecomputedVectors | LearnedSparse | Sketch | Spar | Sum
_BLANKS, _BRACKET = re.compile(r"\s*"), re.compile(r"[()]")
_HEAD = re.compile(r"\s*(?:(?P<weight>[0-9.eE+-]+)\s*\*\s*)?(?P<name>[\w'./~-]*\w)\s*")
_DEEPEST = 50  # brackets in brackets
_MOST_PARTS = 10_000


class _Term(NamedTuple):
    """One term of an expression as it is written, and where it ends."""

    weight: str | None
    name: str
    options: str
    end: int


def parse_model(text: str) -> Model:
    """A model from a folder it was saved to, a name, or an expression of names.

    >>> parse_model("bm25(k1=1.2, b=0.75)").k1
    1.2
    >>> parse_model("bm25 + 0.5 * bm25(fields=title, namespace=title)").name
    'bm25 + 0.5 * bm25(fields=title, namespace=title)'
    """
    if text not in MODELS and _is_folder(text):
        return Model.load(text)
    models = [_model_of(term, text) for term in _terms(text)]
    return models[0] if len(models) == 1 else Sum(tuple(part for model in models for part in model.parts))


def parse_expander(text: str) -> QueryExpander:
    """What asks BM25 in other words: an augmenter by its folder or name, or RM3.

    >>> parse_expander("rm3(documents=5)").documents
    5
    """
    if re.match(r"\s*rm3\s*(\(|$)", text):
        term, *others = _terms(text)
        if not others:
            return RM3(**_parse_options(term, text, _RM3))
    return Augmenter.load(text)


def _is_folder(text: str) -> bool:
    try:
        return bool(text.strip()) and Path(text).is_dir()
    except (OSError, ValueError):  # too long for a path, or with a character that none has: an expression
        return False


def _terms(text: str) -> list[_Term]:
    """The terms of an expression, as they are written."""
    found: list[_Term] = []
    at = 0
    while True:
        term = _term_at(text, at)
        found.append(term)
        at = term.end
        if at == len(text):
            return found
        if text[at] != "+":
            raise VizslaError(f"{short(text)} is no model: expected + at character {at + 1}, not {text[at]!r}")
        if len(found) == _MOST_PARTS:
            raise VizslaError(f"{short(text)} has too many parts; a sum has {_MOST_PARTS:,} at most")
        at += 1


def _term_at(text: str, at: int) -> _Term:
    match = _HEAD.match(text, at)
    if match is None:
        raise VizslaError(
            f"{short(text)} is no model: expected a name at character {at + 1}, as in "
            '"bm25", "bm25(k1=1.2, b=0.75)" or "bm25 + 0.5 * bm25-wp"'
        )
    start = end = match.end()
    options = ""
    if text[start : start + 1] == "(":
        end = _closing(text, start)
        options = text[start + 1 : end - 1].strip()
        end = _BLANKS.match(text, end).end()  # type: ignore[union-attr]
    return _Term(match["weight"], match["name"], options, end)


def _closing(text: str, start: int) -> int:
    """Behind the bracket that closes the one at `start`."""
    depth = 0
    for bracket in _BRACKET.finditer(text, start):
        depth += 1 if bracket[0] == "(" else -1
        if depth == 0:
            return bracket.end()
        if depth > _DEEPEST:
            raise VizslaError(f"{short(text)} is no model: brackets go {_DEEPEST} deep at most")
    raise VizslaError(f"{short(text)} is no model: the bracket at character {start + 1} is never closed")


def _model_of(term: _Term, text: str) -> Model:
    name = term.name
    if name not in MODELS and not _is_folder(name):
        raise UnknownNameError("model", name, tuple(MODELS))
    make = MODELS[name] if name in MODELS else partial(_saved, name)
    model = make(**_parse_options(term, text, TAKEN.get(name, ())))
    if term.options and isinstance(model, _NAMED):
        model = replace(model, name=f"{name}({term.options})")
    if term.weight is None:
        return model
    try:
        weight = float(term.weight)
    except ValueError:
        weight = math.nan
    if math.isfinite(weight):
        return weight * model
    raise VizslaError(f"{short(term.weight)} in {short(text)} is no weight; expected a number")


def _parse_options(term: _Term, text: str, taken: Collection[str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in split_options(term.options, ","):
        key, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not value:
            raise VizslaError(f"{short(item)} in {short(text)} is no option; expected name=value")
        if key not in _OPTIONS:
            raise UnknownNameError("model option", key, tuple(_OPTIONS))
        if key not in taken:
            known = f"it takes {', '.join(taken)}" if taken else "it takes none"
            raise VizslaError(f"{term.name} does not take the option {key} in {short(text)}; {known}")
        if key in out:
            raise VizslaError(f"{key} is there twice in {short(text)}")
        try:
            out[key] = _OPTIONS[key](value)
        except ValueError:
            raise VizslaError(f"{short(value)} is no number for {key} in {short(text)}") from None
    return out


def expression(model: Model) -> str:
    """A model as an expression that `parse_model` reads back, what differs from the defaults spelt out.

    >>> expression(parse_model("bm25-wp(k1=1.2)") * 0.5 + parse_model("bm25"))
    '0.5 * bm25-wp(k1=1.2) + bm25'
    """
    text = " + ".join(
        ("" if weight == 1 else f"{number_text(weight)} * ") + _written_term(component)
        for weight, component in model.parts
    )
    try:
        same = _nameless(parse_model(text)) == _nameless(model)
    except VizslaError:
        same = False
    if not same:  # a path, a field or a namespace with a character that means something in an expression
        raise VizslaError(f"{model.name} cannot be written as an expression; save the model")
    return text


def _written_term(component: Component) -> str:
    """A component by its name, and the options in which it is not as the name says."""
    name = _short_name(component)
    plain = MODELS[name]() if name in MODELS else Model.load(name)
    learned = ("fields", "namespace", "length", "query_length")
    options_of = [o for o in _OPTIONS if o in learned] if isinstance(component, LearnedSparse | Dense) else _OPTIONS
    differing = [o for o in options_of if getattr(component, o, None) != getattr(plain, o, None)]
    options = ", ".join(f"{o}={_written(getattr(component, o))}" for o in differing)
    return name + (f"({options})" if options else "")


def _nameless(model: Model) -> list[Part]:
    """The parts of a model, whatever they are called."""
    return [Part(weight, replace(component, name="")) for weight, component in model.parts]  # type: ignore[type-var]


def _short_name(component: Component) -> str:
    if isinstance(component, ExpandedBM25 | Sketch | Spar):
        raise VizslaError(f"{component.name} cannot be written as an expression; save the model")
    if isinstance(component, Dense):
        return _dense_name(component)
    if isinstance(component, Impacts):
        raise VizslaError(
            f"{component.name} has frozen statistics and cannot be written as an expression; save the model"
        )
    if isinstance(component, LearnedSparse):
        folder = component.network.folder
        return folder.name if folder.parent == SHIPPED else str(folder.parent)
    return "bm25-wp" if str(getattr(component, "analyzer", "")).startswith("wordpiece") else component.kind


def _dense_name(component: Dense) -> str:
    """The name of a dense model, or the folder it was saved to."""
    name, folder = component.name.partition("(")[0], component.network.folder.parent
    known = MODELS[name]() if name in MODELS and name != "dense" else None
    if known is not None and known.parts[0].component.index_signature[:2] == component.index_signature[:2]:
        return name
    if (folder / "model.json").is_file():
        return str(folder)
    raise VizslaError(f"{component.name} cannot be written as an expression; save the model")


def _written(value: Any) -> str:
    if isinstance(value, tuple):
        return "/".join(value)
    return number_text(value) if isinstance(value, float) else str(value)
