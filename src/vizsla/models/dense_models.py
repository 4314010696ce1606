"""Dense models by name: the packaged MiniLM, any checkpoint, and the presets of papers."""

from __future__ import annotations

from functools import partial
from typing import Any, get_args

from vizsla.errors import UnknownNameError, VizslaError
from vizsla.models.dense import Dense
from vizsla.models.presets import PRESETS, find_preset
from vizsla.models.registry import MODELS
from vizsla.neural.checkpoints.packages import PACKAGED
from vizsla.neural.onnx_graph import Precision
from vizsla.spec import Option, with_defaults

_SIMILARITIES = ("cosine", "dot")
_NEEDS = ("onnxruntime|torch",)
_OPTIONS = (
    Option("precision", "str", "int8", f"of the network's weights: {', '.join(get_args(Precision))}"),
    Option("pooling", "tuple[str, ...]", None, "how token states become a vector, as in mean or cls"),
    Option("length", "int", 0, "how many tokens of a document are read; 0 for as many as the encoder can"),
    Option("query_length", "int", 0, "how many tokens of a query are read; 0 for as many as of a document"),
    Option("fields", "tuple[str, ...]", ("title", "text"), "the fields it reads, separated by /"),
    Option("namespace", "str", "dense", "keeps its vectors apart from those of other parts of a sum"),
)
_CHECKPOINTS = (
    Option("checkpoint", "str", "", "a folder or a name on the model hub"),
    Option("query_checkpoint", "str", "", "another encoder for queries"),
    Option("similarity", "str", "", f"one of {', '.join(_SIMILARITIES)}; by default what the checkpoint says"),
)


@MODELS.register(
    "minilm",
    help="all-MiniLM-L6-v2, a small sentence encoder.",
    options=with_defaults(_OPTIONS, namespace="minilm"),
    needs=_NEEDS,
)
def minilm(precision: str = "int8", **options: Any) -> Dense:
    return Dense.open(PACKAGED, _precision(precision), **{"name": "minilm", "namespace": "minilm", **options})


@MODELS.register(
    "dense",
    help="Any encoder as transformers or sentence-transformers save it.",
    options=(Option("preset", "str", "", "read texts as this preset does"), *_CHECKPOINTS, *_OPTIONS),
    needs=_NEEDS,
)
def dense(
    checkpoint: str = "",
    precision: str = "int8",
    query_checkpoint: str = "",
    preset: str = "",
    similarity: str = "",
    **options: Any,
) -> Dense:
    known = find_preset(preset) if preset else None
    documents = checkpoint or (known.documents if known else "")
    queries = query_checkpoint or (known.queries if known and not checkpoint else "")
    if known is not None and known.two and not (documents and queries):
        raise VizslaError(f"{preset} has two encoders; name both: {preset}(checkpoint=FOLDER, query_checkpoint=FOLDER)")
    if not documents:
        raise VizslaError("name an encoder, as in dense(checkpoint=FOLDER)")
    if similarity and similarity not in _SIMILARITIES:
        raise UnknownNameError("similarity", similarity, _SIMILARITIES)
    given: dict[str, Any] = {"name": preset, "namespace": preset} if preset else {}
    given |= {"normalize": similarity == "cosine"} if similarity else {}
    return Dense.open(documents, _precision(precision), queries=queries, preset=known, **{**given, **options})


for _name, _preset in PRESETS.items():
    _register = MODELS.register(
        _name,
        help=f"{_preset.about}.",
        options=with_defaults((*_CHECKPOINTS, *_OPTIONS), namespace=_name),
        needs=_NEEDS,
    )
    _register(partial(dense, preset=_name))


def _precision(text: str) -> Precision:
    for known in get_args(Precision):
        if text == known:
            return known  # type: ignore[no-any-return]
    raise UnknownNameError("precision", text, get_args(Precision))
