"""Query augmentation by a network: terms it adds, and weights for the query's own (Chen and Wiseman, 2023)."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.lazy import cached_property
from vizsla.models.bm25 import BM25, BM25_OPTIONS, EXPANDERS, ExpandedBM25, QueryExpander
from vizsla.models.components import SearchContext
from vizsla.models.learned_sparse import SHIPPED
from vizsla.models.model import MODELS
from vizsla.models.statistics import Statistics
from vizsla.neural.checkpoints.packages import own_package
from vizsla.neural.device import device_of_opening, opening_on, place_of
from vizsla.neural.network import Network
from vizsla.plain_data import DescriptionError, check_type, fields_from_data, parse_json, parse_settings
from vizsla.spec import Option
from vizsla.text import Analyzer, WordPiece

ABOUT = "augmenter.json"
GENERAL = "general"
"""The name of Vizsla's own augmenter, in a checkout and in its own package."""
_PACKAGE = own_package("augmenter-general", "augmenter", "35 MB")


@dataclass(frozen=True)
class Augmenter(QueryExpander):
    """A network that reads word pieces of a query, and the terms it can add.

    `analyzer`: the analyzer of the terms, which must be that of the index. `pieces`: the analyzer of the network's word
    pieces. `most`: at most this many terms are added, the strongest that occur in some document; 0 for all. `variant`:
    the variant of BM25 it was trained with. `strength`: weights are interpolated between those of BM25 (0) and those of
    the network (1). `long_query`: for a query with more terms than this, `strength` is multiplied by the ratio of the
    two, since networks are trained on short questions; 0 for no limit.
    """

    network: Network
    terms: tuple[str, ...]
    analyzer: Analyzer
    pieces: Analyzer
    most: int = 0
    variant: str = "lucene"
    name: str = "augmenter"
    strength: float = 1.0
    long_query: int = 0

    kind: ClassVar[str] = "augmenter"

    def __post_init__(self) -> None:
        if self.network.kind != self.kind:
            raise VizslaError(f"{self.network.folder}: this is a network of the kind {self.network.kind}, no augmenter")
        if not 0 < self.strength <= 1 or self.long_query < 0:
            raise VizslaError(
                f"strength must be above 0 and at most 1, and long_query 0 or more, not {self.strength} and "
                f"{self.long_query}"
            )

    def problem(self, bm25: BM25) -> str | None:
        if bm25.analyzer == self.analyzer and bm25.variant == self.variant:
            return None
        if bm25.analyzer == self.analyzer:
            return f"was trained through the variant {self.variant}, and {bm25.name} has {bm25.variant}"
        return f"was trained for the analyzer {self.analyzer}, and {bm25.name} has {bm25.analyzer}"

    def query_terms(
        self, texts: Sequence[str], bm25: BM25, context: SearchContext | None = None
    ) -> list[dict[str, float]]:
        """The weighted terms of queries: w * (1 + a) for a query's own terms, 0 for dropped ones, a for added ones.

        These weights are then interpolated with those of BM25 according to `strength` and `long_query`.
        """
        statistics = context.statistics_of(bm25) if context is not None and self.most else None
        learned = [self._terms(own, weights, added, statistics) for own, weights, added in self._augmented(texts)]
        if self.strength == 1 and not self.long_query:
            return learned
        counts = replace(bm25, query_norm=0.0).query_terms(texts)
        return [self._moved(own, new) for own, new in zip(counts, learned, strict=True)]

    def _moved(self, own: Mapping[str, float], learned: Mapping[str, float]) -> dict[str, float]:
        """Weights interpolated between BM25's and the learned ones; terms with the weight 0 are left out."""
        share = self.strength
        if self.long_query and len(own) > self.long_query:
            share *= self.long_query / len(own)
        weights = {term: count + share * (learned.get(term, 0.0) - count) for term, count in own.items()}
        weights |= {term: share * weight for term, weight in learned.items() if term not in own}
        return {term: weight for term, weight in weights.items() if weight > 0}

    def _augmented(self, texts: Sequence[str]) -> list[tuple[Mapping[str, Sequence[int]], np.ndarray, np.ndarray]]:
        """For each query its own terms with the tokens that cover them, the tokens' weights, and the added terms."""
        read = [read_query(text, self.analyzer, self.pieces, self.network.length) for text in texts]
        rows = [[self.network.start, *ids, self.network.end] for ids, _ in read]
        offsets = np.cumsum([0, *map(len, rows)])
        ids = np.array([i for row in rows for i in row], np.int64)
        made = self.network.running.augmentations(ids, offsets)
        if any(len(added) != len(self.terms) for _, added in made):
            raise InputError(
                f"this augmenter names {len(self.terms):,} terms and its network has another number",
                file=str(self.network.folder),
            )
        return [(own, weights, added) for (_, own), (weights, added) in zip(read, made, strict=True)]

    def _terms(
        self,
        own: Mapping[str, Sequence[int]],
        weights: np.ndarray,
        added: np.ndarray,
        statistics: Statistics | None,
    ) -> dict[str, float]:
        if not own:  # no term to expand
            return {}
        terms = {}
        for term, places in own.items():
            # A word after the last token that is read keeps the weight it would have without a network.
            weight = max((float(weights[p]) for p in places), default=1.0)
            number = self._numbers.get(term)
            terms[term] = weight * (1.0 + (float(added[number]) if number is not None else 0.0))
        found = np.flatnonzero(added)
        found = found[np.argsort(-added[found], kind="stable")]
        new = [(self.terms[i], float(added[i])) for i in found.tolist() if self.terms[i] not in terms]
        if statistics is not None:
            there = statistics.document_frequencies([term for term, _ in new]) > 0
            new = [pair for pair, known in zip(new, there.tolist(), strict=True) if known]
        terms.update(new[: self.most or None])
        return terms

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {term: i for i, term in enumerate(self.terms)}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_numbers"}

    def vocabulary(self) -> Sequence[str]:
        return self.pieces.tokenizer.vocabulary if isinstance(self.pieces.tokenizer, WordPiece) else ()

    # In a folder

    def options(self, folder: Path) -> dict[str, Any]:
        """The augmenter as plain data; its files are written to the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        content = json.dumps(self.terms, ensure_ascii=False).encode("utf-8", "surrogatepass")
        file = folder / f"terms-{hashlib.sha256(content).hexdigest()[:12]}.json"
        with file.open("wb") as written:
            written.write(content)
            written.flush()
            os.fsync(written.fileno())
        return {
            "network": self.network.save(folder),
            "terms": file.name,
            "analyzer": self.analyzer.save(folder),
            "pieces": self.pieces.save(folder),
            "most": self.most,
            "variant": self.variant,
            "name": self.name,
            "strength": self.strength,
            "long_query": self.long_query,
        }

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Augmenter:
        values = fields_from_data(cls, options, network="str", terms="str", analyzer="str", pieces="str")
        file = folder / values["terms"]
        try:
            terms = parse_json(file.read_bytes().decode("utf-8", "surrogatepass"))
            check_type("the terms", terms, "tuple[str, ...]")
        except (OSError, ValueError, DescriptionError):
            raise InputError("the terms of this augmenter cannot be read", file=str(file)) from None
        read = {name: Analyzer.parse(values[name], folder) for name in ("analyzer", "pieces")}
        return cls(**{**values, **read, "network": Network.open(folder / values["network"]), "terms": tuple(terms)})

    def save(self, folder: str | Path) -> None:
        """Write the augmenter to a folder of its own."""
        path = Path(folder)
        about = self.options(path)
        (path / ABOUT).write_text(json.dumps(about, indent=2) + "\n")

    @classmethod
    def load(cls, which: str | Path) -> Augmenter:
        """The augmenter in a folder, or one that comes with the package, by its name."""
        path = _augmenter_folder(which)
        try:
            about = parse_settings((path / ABOUT).read_text("utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise InputError(
                f"there is no augmenter here (no {ABOUT}); general is Vizsla's own, and rm3 needs none",
                file=str(which),
            ) from None
        except ValueError as e:
            raise InputError(f"this does not describe an augmenter ({e})", file=str(path / ABOUT)) from None
        try:
            return cls.from_options(about, path)
        except DescriptionError as e:
            raise InputError(f"this does not describe an augmenter ({e})", file=str(path / ABOUT)) from None


def general_augmenter() -> Augmenter:
    """Vizsla's own augmenter, opened once for a device; if its weights or a runtime are missing, an error says what
    to install.

    A folder called `general` in the current folder is ignored.
    """
    place_of()
    return _general_augmenter(device_of_opening())


@cache
def _general_augmenter(device: str) -> Augmenter:
    with opening_on(device):
        return Augmenter.load(_general_folder())


def _augmenter_folder(which: str | Path) -> Path:
    """The folder of an augmenter; `general` means Vizsla's own, unless there is a folder of this name."""
    path = Path(which)
    return path if (path / ABOUT).is_file() or str(which) != GENERAL else _general_folder()


def _general_folder() -> Path:
    """The folder of Vizsla's own augmenter: in a checkout, or in a package of its own."""
    if (SHIPPED / GENERAL / ABOUT).is_file():
        return SHIPPED / GENERAL
    if (installed := _PACKAGE.path()) is not None:
        return installed
    raise VizslaError(
        f"the weights of the augmenter {GENERAL} are not installed; get them ({_PACKAGE.size}) with: "
        f"{_PACKAGE.install}, or expand queries with rm3, which needs none"
    )


_NETWORK = Option("network", "str", GENERAL, "the folder of an augmenter, or the name of one that comes with Vizsla")


@EXPANDERS.register("augmenter", help="Terms and weights from a network.", options=(_NETWORK,))
def open_augmenter(network: str = GENERAL) -> Augmenter:
    return Augmenter.load(network)


@MODELS.register(
    "bm25-augmented",
    help="BM25 with query augmentation by a network.",
    options=(_NETWORK, *BM25_OPTIONS),
    needs=("onnxruntime|torch",),
)
def bm25_augmented(network: str = GENERAL, **options: Any) -> ExpandedBM25:
    augmenter = Augmenter.load(network)
    bm25 = BM25(**{"analyzer": augmenter.analyzer, "variant": augmenter.variant, **options})
    return bm25.expand(augmenter).with_name("bm25-augmented")


def read_query(text: str, analyzer: Analyzer, pieces: Analyzer, longest: int) -> tuple[list[int], dict[str, list[int]]]:
    """The ids of a query's word pieces, and for each of its terms the positions of the tokens that cover it.

    A token covers the terms whose span of the text overlaps with its own; positions include the special token at the
    start.
    """
    numbers = pieces.tokenizer.numbers if isinstance(pieces.tokenizer, WordPiece) else {}
    tokens = pieces.tokens(text)[: longest - 2]
    ids = [numbers[t.term] for t in tokens]
    if analyzer == pieces:
        own: dict[str, list[int]] = {t.term: [] for t in analyzer.tokens(text)}
        for place, token in enumerate(tokens, 1):
            own[token.term].append(place)
        return ids, own
    own = {}
    for term in analyzer.tokens(text):
        speaking = [p for p, t in enumerate(tokens, 1) if t.start < term.end and term.start < t.end]
        own.setdefault(term.term, []).extend(speaking)
    return ids, own
