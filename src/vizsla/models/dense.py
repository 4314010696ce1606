"""Dense models: a text becomes one vector, and what is near the query's is found; those of papers by name."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, get_args

import numpy as np

from vizsla.errors import UnknownNameError, VizslaError, VizslaWarning
from vizsla.models.components import DenseComponent
from vizsla.models.fields import Fields, as_text
from vizsla.models.learned_sparse import checked_precision
from vizsla.models.model import MODELS
from vizsla.neural.checkpoints.checkpoint import Checkpoint
from vizsla.neural.checkpoints.onnx_encoder import BY_NETWORK, OnnxEncoder
from vizsla.neural.checkpoints.packages import BGE_SMALL, GTE_SMALL, HUB, PACKAGED
from vizsla.neural.checkpoints.published import Published, find_published, published
from vizsla.neural.checkpoints.tokenizers import alike
from vizsla.neural.checkpoints.transformer import Layer, TokenizerOptions, Transformer, known
from vizsla.neural.network import Network, reads_of
from vizsla.neural.onnx_graph import Precision
from vizsla.plain_data import fields_from_data
from vizsla.spec import Option, with_defaults
from vizsla.text import Analyzer, WordPiece


@dataclass(frozen=True)
class Preset:
    """`documents` and `queries`: names on the model hub. Without `queries` one encoder is used for both; without
    `documents` the user has to give folders. `pooling` and `normalize`: None means what the encoder's files say.
    `layers`: layers in the encoder's own weight file that no other file lists. `separator`: between title and text.
    `document_token_type`: BERT's token type of all tokens of a document; queries have 0.
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
    document_token_type: int = 0
    two_encoders: bool = False

    @property
    def two(self) -> bool:
        """Whether queries have an encoder of their own."""
        return bool(self.queries) or self.two_encoders

    @property
    def options(self) -> dict[str, Any]:
        """Those of a dense model."""
        chosen = {"normalize": self.normalize, "query_prompt": self.query_prompt}
        chosen |= {"document_prompt": self.document_prompt}
        plain = ("separator", "special_tokens", "pad_with_mask", "token_types")
        given = {name: value for name, value in chosen.items() if value is not None}
        return given | {name: getattr(self, name) for name in plain}


def _read_preset(entry: Published) -> Preset:
    """How a published checkpoint reads texts."""
    settings = dict(entry.settings)
    settings["layers"] = tuple(Layer(**layer) for layer in settings.get("layers", ()))
    if "pooling" in settings:
        settings["pooling"] = tuple(settings["pooling"])
    return Preset(entry.about, entry.documents, entry.queries, two_encoders=entry.two_encoders, **settings)


PRESETS: dict[str, Preset] = {name: _read_preset(entry) for name, entry in published().items() if entry.kind == "dense"}


def find_preset(name: str) -> Preset:
    """A preset by its name."""
    if name not in PRESETS:
        raise UnknownNameError("preset", name, tuple(PRESETS))
    return PRESETS[name]


Tower = Network | Transformer
"""An encoder: a network that reads the model's word pieces, or a transformer with its own tokenizer."""


@dataclass(frozen=True)
class Dense(DenseComponent):
    """Texts as vectors of an encoder; scores are inner products, or cosines with `normalize`.

    `analyzer`: the word pieces of a network without a tokenizer of its own, otherwise None. `query_network`: another
    encoder for queries, if there are two towers. `length` and `query_length`: how many tokens are read; a `length` of 0
    means as many as the network can, a `query_length` of 0 the same as `length`. Prompts are put before texts, the
    `separator` between fields. `special_tokens`, `pad_with_mask` (queries only) and `token_types`: see
    `TokenizerOptions`.

    `Dense.open(folder)` reads an encoder as transformers or sentence-transformers save it. What can be set:

    >>> [option.name for option in MODELS["dense"].options if "checkpoint" in option.name]
    ['checkpoint', 'query_checkpoint']
    """

    network: Tower
    analyzer: Analyzer | str | None = "wordpiece"
    normalize: bool = True
    query_network: Tower | None = None
    query_prompt: str = ""
    document_prompt: str = ""
    length: int = 0
    query_length: int = 0
    fields: tuple[str, ...] = ("title", "text")
    namespace: str = "dense"
    name: str = "dense"
    separator: str = "\n"
    special_tokens: bool = True
    pad_with_mask: bool = False
    token_types: bool = False

    kind: ClassVar[str] = "dense"
    expression_options: ClassVar[tuple[str, ...]] = ("length", "query_length", "fields", "namespace")

    def __post_init__(self) -> None:
        towers = [n for n in (self.network, self.query_network) if n is not None]
        pieced = any(isinstance(network, Network) for network in towers)
        if pieced and isinstance(self.analyzer, str):
            object.__setattr__(self, "analyzer", Analyzer.parse(self.analyzer))
        elif not pieced:
            object.__setattr__(self, "analyzer", None)
        if pieced and not isinstance(self.pieces, WordPiece):
            raise VizslaError(f"a network reads word pieces, and {self.analyzer} gives none")
        if pieced and (self.pad_with_mask or self.token_types or not self.special_tokens):
            raise VizslaError("a network written by Vizsla can only read texts between [CLS] and [SEP]")
        for network in towers:
            if network.kind != "dense":
                raise VizslaError(
                    f"{network.folder}: this is a network of the kind {network.kind}, which makes no vectors"
                )
        if len({network.width for network in towers}) > 1:
            raise VizslaError("the two encoders have vectors of different sizes, which cannot be multiplied")
        for network, length in ((self.network, self.length), (towers[-1], self.query_length)):
            if not 0 <= length <= network.length or 0 < length < 3:
                raise VizslaError(f"this network reads 3 to {network.length} tokens of a text, not {length}")

    @classmethod
    def open(
        cls,
        which: str | Path = PACKAGED,
        precision: Precision = "int8",
        *,
        queries: str | Path = "",
        preset: Preset | None = None,
        pooling: Sequence[str] = (),
        **options: Any,
    ) -> Dense:
        """A third-party encoder, from a folder or by its name; `queries`: another one for queries.

        Plain BERT becomes a network that runs without torch; any other encoder is run by torch and transformers.
        """
        sides = list(Checkpoint.read(which))
        if queries:
            own, other = Checkpoint.read(queries)
            sides[1] = other or own
        if preset is not None and preset.two and sides[1] is None:
            name = options.get("name", "dense")
            raise VizslaError(f"{name} has two encoders; name both: {name}(checkpoint=FOLDER, query_checkpoint=FOLDER)")
        if preset is not None and preset.document_token_type:
            sides[1] = sides[1] or sides[0]
        towers = [_asked(side, preset, pooling) for side in sides if side is not None]
        if preset is not None and preset.document_token_type:
            towers[0] = towers[0].changed(token_type=preset.document_token_type)
        chosen = {**_checkpoint_options(towers), **(preset.options if preset is not None else {})}
        if preset is not None:
            chosen |= {"length": min(preset.length, towers[0].length)}
            chosen |= {"query_length": min(preset.query_length, towers[-1].length)}
        chosen |= options
        usual = chosen.get("special_tokens", True) and not chosen.get("pad_with_mask") and not chosen.get("token_types")
        plain = usual and all(tower.plain for tower in towers) and alike([tower.pieces for tower in towers])
        networks = [tower.network(precision) if plain else tower.transformer(precision) for tower in towers]
        for tower, network in zip(towers, networks, strict=True):
            _warn_of_assumptions(tower, network)
        chosen |= {"network": networks[0], "query_network": networks[1] if len(networks) > 1 else None}
        usually = {"separator": "\n" if plain else " ", "analyzer": towers[0].analyzer if plain else None}
        return cls(**{**usually, **chosen})

    @property
    def batch_size(self) -> int:
        return 2000 if self.network.runs_fast else 100

    @property
    def dimensions(self) -> int:
        return self.network.width

    @property
    def index_signature(self) -> tuple[Any, ...]:
        read = self.document_prompt, self.length, self.special_tokens, self.token_types, self.separator, self.fields
        return self.kind, self.network, self.analyzer, self.normalize, *read

    @property
    def expression_name(self) -> str:
        """The name of a registered model with the same encoder, or the folder the model was saved to."""
        name, folder = self.name.partition("(")[0], self.network.folder.parent
        if name in PRESETS and PRESETS[name].documents and "checkpoint=" not in self.name:
            return name
        known = MODELS[name].make() if name in MODELS and name not in ("dense", *PRESETS) else None
        if isinstance(known, Dense) and known.network == self.network:
            return name
        if (folder / "model.json").is_file():
            return str(folder)
        return super().expression_name

    @property
    def pieces(self) -> Any:
        return self.analyzer.tokenizer if isinstance(self.analyzer, Analyzer) else None

    def vocabulary(self) -> Iterable[str]:
        if isinstance(self.pieces, WordPiece):
            return self.pieces.vocabulary
        assert isinstance(self.network, Transformer)
        return self.network.vocabulary

    def text_of(self, document: Fields) -> str:
        """The text that is read of a document; with token types an empty first field still gets its separator."""
        if isinstance(document, str):
            document = {"text": document}
        values = [as_text(document.get(f)) for f in self.fields]
        if not any(value.strip() for value in values):
            return ""
        return self.separator.join(value for value in values if value or self.token_types)

    def document_embeddings(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        return self.dense_documents([self.text_of(d) for d in documents])

    def dense_documents(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """[texts, dimensions] and [texts] whether a text has a known token; the vector of one without is 0."""
        length = self.length or self.network.length
        return self._encoded(
            texts,
            self.network,
            TokenizerOptions(self.document_prompt, length, self.special_tokens, token_types=self.token_types),
        )

    def query_embeddings(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        network = self.query_network or self.network
        length = self.query_length or min(self.length or network.length, network.length)
        return self._encoded(
            texts, network, TokenizerOptions(self.query_prompt, length, self.special_tokens, self.pad_with_mask)
        )

    def _encoded(
        self, texts: Sequence[str], network: Tower, options: TokenizerOptions
    ) -> tuple[np.ndarray, np.ndarray]:
        reader = _Pieced(network, self.pieces) if isinstance(network, Network) else network
        made, there = reader.encode(texts, options)
        vectors = np.zeros((len(texts), self.dimensions), np.float32)
        if len(made):
            if not np.isfinite(made).all():
                raise VizslaError(f"the encoder of {self.name!r} gives values that are not finite")
            if self.normalize:
                made = made / np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12)
            vectors[there] = made
        return vectors, there

    def options(self, folder: Path) -> dict[str, Any]:
        queries = None if self.query_network is None else self.query_network.save(folder)
        return vars(self) | {
            "analyzer": self.analyzer.save(folder) if isinstance(self.analyzer, Analyzer) else None,
            "network": self.network.save(folder),
            "query_network": queries,
        }

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Dense:
        chosen = fields_from_data(cls, options, network="str", query_network="str | None", analyzer="str | None")
        queries, pieces = chosen["query_network"], chosen["analyzer"]
        read = {
            "network": _opened(folder / chosen["network"]),
            "query_network": None if queries is None else _opened(folder / queries),
            "analyzer": None if pieces is None else Analyzer.parse(pieces, folder),
        }
        return cls(**{**chosen, **read})


class _Pieced:
    """A network written by Vizsla, together with the tokenizer for its texts."""

    def __init__(self, network: Network, pieces: WordPiece) -> None:
        self._network, self._pieces = network, pieces

    def encode(self, texts: Sequence[str], options: TokenizerOptions) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of those texts that have a known token, and [texts] which these are."""
        there = known(texts, self._pieces.ids, self._pieces.numbers.get("[UNK]"))
        if not there.any():
            return np.zeros((0, 0), np.float32), there
        ids = self._pieces.ids([options.prompt + text for text, can in zip(texts, there.tolist(), strict=True) if can])
        rows = [[self._network.start, *row[: options.length - 2], self._network.end] for row in ids]
        offsets = np.cumsum([0, *map(len, rows)])
        return self._network.running.embeddings(np.array([i for row in rows for i in row], np.int64), offsets), there


def _opened(folder: Path) -> Tower:
    """The encoder saved in a folder: a transformer with its tokenizer, or a network written by Vizsla."""
    reads = reads_of(folder)
    if reads == OnnxEncoder.reads:
        return OnnxEncoder.open(folder)
    return Transformer.open(folder) if reads == Transformer.reads else Network.open(folder)


def _asked(checkpoint: Checkpoint, preset: Preset | None, pooling: Sequence[str]) -> Checkpoint:
    """An encoder whose settings are overridden by a preset, and then by the user."""
    changes: dict[str, Any] = {"pooling": tuple(pooling)} if pooling else {}
    if preset is not None:
        asked: dict[str, Any] = {"pooling": preset.pooling, "skip_prompt_tokens": preset.skip_prompt_tokens or None}
        if not checkpoint.settings.layers:
            asked["layers"] = preset.layers
        changes = {name: value for name, value in asked.items() if value is not None} | changes
    return checkpoint.changed(**changes)


def _warn_of_assumptions(tower: Checkpoint, network: Tower) -> None:
    """Say in one sentence how an exported encoder is read whose files leave it open."""
    if tower.assumes_pooling and BY_NETWORK not in network.pooling:
        warnings.warn(
            f"{tower.folder}: no file says how states of tokens become a vector, so it is their mean, compared by "
            "cosine; name another way as in dense(checkpoint=FOLDER, pooling=cls, similarity=dot)",
            VizslaWarning,
            stacklevel=3,
        )


def _checkpoint_options(towers: Sequence[Checkpoint]) -> dict[str, Any]:
    """The model options that follow from the encoders' files."""
    documents, queries = towers[0].settings, towers[-1].settings
    return {
        "normalize": documents.normalize,
        "query_prompt": queries.query_prompt,
        "document_prompt": documents.document_prompt,
    }


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
    Option("checkpoint", "str", "", "a folder, an ONNX file or a name on the model hub"),
    Option("query_checkpoint", "str", "", "another encoder for queries"),
    Option("similarity", "str", "", f"one of {', '.join(_SIMILARITIES)}; by default what the checkpoint says"),
)


@dataclass(frozen=True)
class Packaged:
    """A sentence encoder that a package brings, with the settings that its files leave open."""

    which: str
    about: str
    pooling: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


_BGE = {"normalize": True, "query_prompt": "Represent this sentence for searching relevant passages: "}
PACKAGED_ENCODERS = {
    "minilm": Packaged(PACKAGED, "all-MiniLM-L6-v2, a small sentence encoder"),
    "bge-small": Packaged(BGE_SMALL, "bge-small-en, a sentence encoder twice as deep as minilm", ("cls",), _BGE),
    "gte-small": Packaged(
        GTE_SMALL, "gte-small, a sentence encoder twice as deep as minilm", ("mean",), {"normalize": True}
    ),
}
"""Encoders by the name of their model; `vizsla models` says how to get the weights."""


def packaged_encoder(name: str, precision: str = "int8", pooling: Sequence[str] = (), **options: Any) -> Dense:
    """The model with an encoder of `PACKAGED_ENCODERS`."""
    known = PACKAGED_ENCODERS[name]
    chosen = {"name": name, "namespace": name, **known.options, **options}
    return Dense.open(known.which, checked_precision(precision), pooling=pooling or known.pooling, **chosen)


@MODELS.register(
    "dense",
    help="Any encoder: a folder of transformers or sentence-transformers, or exported to ONNX.",
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
    entry = None if preset else find_published(checkpoint, "dense")
    preset = entry.name if entry is not None else preset
    known = find_preset(preset) if preset else None
    if known is not None and (not checkpoint or checkpoint.removeprefix(HUB) in (known.documents, known.queries)):
        hub = HUB if checkpoint.startswith(HUB) else ""
        checkpoint, query_checkpoint = (
            hub + known.documents,
            query_checkpoint or (hub + known.queries if known.queries else ""),
        )
    if not checkpoint:
        name, more = preset or "dense", ", query_checkpoint=FOLDER" if known is not None and known.two else ""
        raise VizslaError(f"name an encoder, as in {name}(checkpoint=FOLDER{more})")
    if similarity and similarity not in _SIMILARITIES:
        raise UnknownNameError("similarity", similarity, _SIMILARITIES)
    given: dict[str, Any] = {"name": preset, "namespace": preset} if preset and entry is None else {}
    given |= {"normalize": similarity == "cosine"} if similarity else {}
    return Dense.open(
        checkpoint, checked_precision(precision), queries=query_checkpoint, preset=known, **{**given, **options}
    )


for _name, _preset in PRESETS.items():
    _register = MODELS.register(
        _name,
        help=f"{_preset.about}.",
        options=with_defaults((*_CHECKPOINTS, *_OPTIONS), namespace=_name),
        needs=_NEEDS,
    )
    _register(partial(dense, preset=_name))

for _name, _packaged in PACKAGED_ENCODERS.items():
    _register = MODELS.register(
        _name, help=f"{_packaged.about}.", options=with_defaults(_OPTIONS, namespace=_name), needs=_NEEDS
    )
    _register(partial(packaged_encoder, _name))
