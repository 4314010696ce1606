"""Dense models that papers compare, by name: which encoders, and how their texts are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vizsla.errors import UnknownNameError
from vizsla.neural.text_encoder import Layer


@dataclass(frozen=True)
class Preset:
    """`documents` and `queries`: names on the model hub; one encoder for both where the second is empty, and folders
    have to be given where the first is. `pooling` and `normalize`: as the encoder's files say where they are None.
    `layers`: those of the encoder's own file, where no other file names any. `separator`: between title and text.
    """

    about: str
    documents: str = ""
    queries: str = ""
    pooling: tuple[str, ...] | None = None
    normalize: bool | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    separator: str = " "
    length: int = 0
    query_length: int = 0
    layers: tuple[Layer, ...] = ()
    special_tokens: bool = True
    pad_with_mask: bool = False
    skip_prompt_tokens: bool = False
    token_types: bool = False

    @property
    def two(self) -> bool:
        """Whether queries have an encoder of their own."""
        return bool(self.queries) or not self.documents

    @property
    def options(self) -> dict[str, Any]:
        """Those of a dense model."""
        told = {"normalize": self.normalize, "query_prompt": self.query_prompt}
        told |= {"document_prompt": self.document_prompt}
        plain = ("separator", "special_tokens", "pad_with_mask", "token_types")
        given = {name: value for name, value in told.items() if value is not None}
        return given | {name: getattr(self, name) for name in plain}


def _first(about: str, documents: str, queries: str = "", **options: Any) -> Preset:
    """The state of the first token, compared by inner product."""
    return Preset(about, documents, queries, ("cls",), False, **options)


def _tct(about: str, name: str) -> Preset:
    return Preset(
        about, name, pooling=("mean",), normalize=False, query_prompt="[CLS] [Q] ", document_prompt="[CLS] [D] ",
        length=512, query_length=36, special_tokens=False, pad_with_mask=True, skip_prompt_tokens=True,
    )  # fmt: skip


def _pair(about: str, name: str, which: tuple[str, str]) -> Preset:
    """Two encoders, documents read as title [SEP] text."""
    return _first(about, *(name.format(part) for part in which), separator=" [SEP] ", length=256)


_DPR = "facebook/dpr-{}_encoder-"
_SPAR = "facebook/spar-{}-lexmodel-"
_SIDES = ("context-encoder", "query-encoder")
_ANCE = (Layer("linear", name="embeddingHead"), Layer("norm", name="norm"))

PRESETS: dict[str, Preset] = {
    "dpr": _pair("DPR, trained on Natural Questions", _DPR + "single-nq-base", ("ctx", "question")),
    "dpr-multiset": _pair("DPR, trained on four data sets", _DPR + "multiset-base", ("ctx", "question")),
    "ance": _first("ANCE FirstP", "castorini/ance-msmarco-passage", layers=_ANCE, length=512, query_length=64),
    "tas-b": _first("TAS-B", "sentence-transformers/msmarco-distilbert-base-tas-b"),
    "contriever": Preset("Contriever, without labels", "facebook/contriever", "", ("mean",), False),
    "contriever-msmarco": Preset("Contriever, fine-tuned", "facebook/contriever-msmarco", "", ("mean",), False),
    "gtr": Preset("GTR on T5-base", "sentence-transformers/gtr-t5-base", "", ("mean",), True),
    "rocketqa": _first("RocketQA", "", separator=" [SEP] ", length=128, query_length=32, token_types=True),
    "tct-colbert": _tct("TCT-ColBERT", "castorini/tct_colbert-msmarco"),
    "tct-colbert-v2": _tct("TCT-ColBERT v2, hard negatives", "castorini/tct_colbert-v2-hnp-msmarco"),
    "e5": Preset("E5-base v2", "intfloat/e5-base-v2", "", ("mean",), True, "query: ", "passage: "),
    "bge": Preset(
        "BGE-base v1.5", "BAAI/bge-base-en-v1.5", "", ("cls",), True,
        "Represent this sentence for searching relevant passages: ", "",
    ),
    "spar-wiki": _pair("SPAR's model of BM25 on Wikipedia", _SPAR.format("wiki-bm25") + "{}", _SIDES),
    "spar-paq": _pair("SPAR's model of BM25 on PAQ", _SPAR.format("paq-bm25") + "{}", _SIDES),
    "spar-marco": _pair("SPAR's model of BM25 on MS MARCO", _SPAR.format("marco-bm25") + "{}", _SIDES),
}  # fmt: skip


def find_preset(name: str) -> Preset:
    """A preset by its name."""
    if name not in PRESETS:
        raise UnknownNameError("preset", name, tuple(PRESETS))
    return PRESETS[name]
