"""From judged data sets to an augmenter: which terms it can add, what it is trained on, how it is saved."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.datasets import BeirDataset, Document
from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.models import BM25, Augmenter, LearnedSparse
from vizsla.models.augmenter import read_query
from vizsla.models.model import counted, field_text
from vizsla.recipes.material import judgements_of, place_network, told_apart
from vizsla.text import Analyzer

if TYPE_CHECKING:
    from vizsla.training import AskedDev, AskedPairs, Collection, Outcome, Own, Prepared, Settings, TokenCorpus

VOCABULARIES = ("words", "pieces")
HEADS = ("free", "tied", "narrow")
SCORINGS = ("bm25", "bag")
_SAMPLE = 40  # queries that 8-bit weights are fitted on
_NEVER = -1e4  # the bias of a term that no document has


@dataclass(frozen=True)
class Augmentation:
    """What an augmenter is, and what it is trained through.

    `vocabulary`: it adds words as the analyzer of BM25 makes them, or BERT's word pieces. `terms`: so many words, the
    most frequent that are not in more than `common` of the documents and in `rare` of them at least. `head`: a matrix
    of its own, the input embeddings (for pieces), or a narrow one of `rank` numbers a term. `weighs`: whether a
    query's own terms are weighed anew. `scoring`: through BM25, or through bags of words, to compare. `most`: so many
    terms are added at most; 0 for all.

    `trust`: how far from BM25's the weights of a query's own terms are when it is used, 1 for as far as was learnt;
    half way is safer for collections unlike those it was trained on. `embeddings`: a network that comes with Vizsla
    and whose word embeddings are taken and left as they are, so that the two can share them. `depth`: so many of the
    documents that look like answers are used, `queries`: so many queries of a data set; 0 for all.
    """

    vocabulary: str = "words"
    analyzer: str = "lucene-english"
    terms: int = 30_000
    rare: int = 2
    common: float = 0.2
    head: str = "free"
    rank: int = 128
    weighs: bool = True
    scoring: str = "bm25"
    most: int = 0
    trust: float = 1.0
    embeddings: str = ""
    depth: int = 0
    queries: int = 0

    def __post_init__(self) -> None:
        for value, known, what in (
            (self.vocabulary, VOCABULARIES, "vocabulary of an augmenter"),
            (self.head, HEADS, "head of an augmenter"),
            (self.scoring, SCORINGS, "scoring of an augmenter"),
        ):
            if value not in known:
                raise UnknownNameError(what, value, known)
        for name, least in (
            ("terms", 1),
            ("rare", 1),
            ("rank", 1),
            ("most", 0),
            ("common", 0),
            ("depth", 0),
            ("queries", 0),
        ):
            if not getattr(self, name) >= least:
                raise VizslaError(f"augment.{name} must be {least} or more, not {getattr(self, name)}")
        if not 0 <= self.trust <= 1:
            raise VizslaError(f"augment.trust must be between 0 and 1, not {self.trust:g}")
        if self.trust < 1 and not self.weighs:
            raise VizslaError(
                "augment.trust is about the weights of a query's own words, which augment.weighs=no leaves"
            )
        if self.head == "tied" and self.embeddings:
            raise VizslaError(
                "embeddings that are left as they are cannot be the head that learns; ask for head=narrow"
            )
        if self.head == "tied" and self.vocabulary != "pieces":
            raise VizslaError("only word pieces can be tied to the input embeddings; ask for head=free or head=narrow")

    @cached_property
    def bm25(self) -> BM25:
        """What the augmenter asks."""
        variant = "bag" if self.scoring == "bag" else "lucene"
        if self.vocabulary == "pieces":
            return BM25(analyzer="wordpiece", namespace="pieces", name="bm25-wp", variant=variant)
        return BM25(analyzer=self.analyzer, variant=variant)


@dataclass(frozen=True, eq=False)
class Read:
    """A data set as BM25 reads it, before it is known which terms can be added."""

    dataset: BeirDataset
    documents: list[Document]
    vectors: Any
    terms: list[str]
    frequencies: np.ndarray
    statistics: Any


def read_dataset(dataset: BeirDataset, bm25: BM25) -> Read:
    """Documents, their vectors, and how common each term is."""
    documents = list(dataset.documents())
    stored = bm25.reader().read([d.content for d in documents])
    statistics = counted(stored)
    vectors = bm25.weighed(stored, statistics)
    terms = [vectors.vocabulary[i][1] for i in range(len(vectors.vocabulary))]
    return Read(dataset, documents, vectors, terms, statistics.document_frequencies(terms), statistics)


def chosen_terms(read: Sequence[Read], plan: Augmentation, pieces: Analyzer) -> list[str]:
    """The terms that can be added."""
    if plan.vocabulary == "pieces":
        return list(pieces.tokenizer.vocabulary)  # type: ignore[attr-defined]
    total: dict[str, float] = defaultdict(float)
    for one in read:
        documents = one.statistics.documents
        for term, n in zip(one.terms, one.frequencies.tolist(), strict=True):
            if plan.rare <= n <= plan.common * documents and len(term) > 1 and not term.isdigit():
                total[term] += n / documents**0.5  # so that a large collection does not have all of them
    return sorted(total, key=lambda term: -total[term])[: plan.terms]


def surface_pieces(read: Sequence[Read], terms: Sequence[str], plan: Augmentation, pieces: Analyzer) -> list[list[int]]:
    """For each term the pieces of the word it most often stands for: a stem is no word that an encoder knows."""
    if plan.vocabulary == "pieces":
        return [[i] for i in range(len(terms))]
    wanted = set(terms)
    seen: dict[str, Counter[str]] = {}
    analyzer = plan.bm25.text_analyzer
    for one in read:
        step = max(1, len(one.documents) // 20_000)
        for document in one.documents[::step]:
            text = field_text(document.content, plan.bm25.fields)
            for token in analyzer.tokens(text):
                if token.term in wanted:
                    seen.setdefault(token.term, Counter())[text[token.start : token.end].lower()] += 1
    words = [seen[t].most_common(1)[0][0] if t in seen else t for t in terms]
    return [ids or [100] for ids in pieces.tokenizer.ids(words)]  # type: ignore[attr-defined]


def collection_of(read: Read, bm25: BM25, columns: Mapping[str, int]) -> Collection:
    """A data set's documents over the terms that matter: those that can be added, and those of queries."""
    from vizsla.training import Collection
    from vizsla.training.dev import Rows

    places = np.array([columns.get(term, -1) for term in read.terms], np.int64)
    kept = places[read.vectors.indices] >= 0
    pointers = np.concatenate([[0], np.cumsum(kept)])[read.vectors.pointers]
    terms = places[read.vectors.indices][kept].astype(np.int32)
    rows = Rows(pointers, terms, read.vectors.values[kept].astype(np.float32))
    factors, shares = (np.zeros(len(columns), np.float32) for _ in range(2))
    there = (places >= 0) & (read.frequencies > 0)
    factors[places[there]] = bm25.term_factors(read.frequencies[there], read.statistics.documents)
    shares[places[there]] = read.frequencies[there] / read.statistics.documents
    return Collection(rows, factors, shares)


def some_of(texts: dict[str, str], most: int) -> dict[str, str]:
    """So many of the queries at random, in their order; 0 for all."""
    if not 0 < most < len(texts):
        return texts
    chosen = np.sort(np.random.default_rng(0).permutation(len(texts))[:most])
    names = list(texts)
    return {names[i]: texts[names[i]] for i in chosen}


class Material:
    """What one data set gives to train on and to judge by; terms of queries get columns behind those that are added."""

    def __init__(self, read: Read, terms: Sequence[str], plan: Augmentation, pieces: Analyzer, splits: Sequence[str]):
        self.read, self.plan, self.pieces = read, plan, pieces
        self.columns = {term: i for i, term in enumerate(terms)}
        self.asked: dict[str, tuple[dict[str, str], TokenCorpus, Own]] = {}
        for split in splits:
            texts = read.dataset.queries_of(read.dataset.qrels(split))
            self.asked[split] = self._queries(some_of(texts, plan.queries) if split == "train" else texts)
        self.collection = collection_of(read, plan.bm25, self.columns)

    def _queries(self, texts: dict[str, str]) -> tuple[dict[str, str], TokenCorpus, Own]:
        from vizsla.training import Own, TokenCorpus
        from vizsla.training.augmentation import LONGEST, UNREAD

        ids, pairs = [], []
        for text in texts.values():
            tokens, own = read_query(text, self.plan.bm25.text_analyzer, self.pieces, LONGEST)
            ids.append(np.array(tokens, np.int64))
            known = [(self.columns.setdefault(term, len(self.columns)), places) for term, places in own.items()]
            pairs.append([(place, column) for column, places in known for place in places or [UNREAD]])
        return texts, TokenCorpus.of(ids), Own.of(pairs)

    def pairs(self, split: str, group: int) -> AskedPairs:
        """Judged queries and, for each, documents that look as if they answered it; others are left out."""
        from vizsla.training import AskedPairs, TokenCorpus

        texts, queries, own = self.asked[split]
        bm25 = replace(self.plan.bm25, variant="lucene")
        right, wrong = told_apart(self.read.documents, texts, self.read.dataset, split, bm25)
        wrong = TokenCorpus.of([wrong[i][: self.plan.depth or None] for i in range(len(wrong))])
        sides = right, wrong
        used, places = np.unique(np.concatenate([side.ids for side in sides]), return_inverse=True)
        numbers = np.split(places, [len(sides[0].ids)])
        right, wrong = (TokenCorpus(n, side.offsets) for n, side in zip(numbers, sides, strict=True))
        return AskedPairs(self.collection.only(used), queries, own, right, wrong, group)

    def dev(self, split: str = "dev") -> AskedDev:
        from vizsla.training import AskedDev

        texts, queries, own = self.asked[split]
        judgements = judgements_of(self.read.documents, texts, self.read.dataset.qrels(split))
        return AskedDev(self.read.dataset.name, self.collection, queries, own, judgements, self.plan.most)


def prepare(
    plan: Augmentation,
    encoder: Any,
    pieces: Analyzer,
    datasets: Sequence[BeirDataset],
    dev: Sequence[BeirDataset],
    group: int,
) -> Prepared:
    """What an augmenter is trained from: the train splits of data sets, and the dev splits of others or of the same."""
    from vizsla.training import Prepared, TokenCorpus

    places = {d.folder.resolve(): d for d in [*datasets, *dev]}
    read = {path: read_dataset(d, plan.bm25) for path, d in places.items()}
    learnt, judged = ([d.folder.resolve() for d in those] for those in (datasets, dev))
    terms = chosen_terms([read[path] for path in learnt], plan, pieces)
    rows, hidden = encoder.embeddings.word_embeddings.weight.shape
    if not terms:
        raise VizslaError(
            f"no word is in {plan.rare} documents or more and in at most {plan.common:g} of all, so none can be added; "
            "try --set augment.common=1.0"
        )
    if plan.head == "tied" and len(terms) != rows:
        raise VizslaError(f"the encoder has {rows:,} embeddings for {len(terms):,} word pieces; ask for head=free")
    if plan.head == "narrow" and plan.rank > min(hidden, len(terms)):
        raise VizslaError(f"augment.rank can be {min(hidden, len(terms))} at most here, not {plan.rank}")
    materials = {}
    for path, one in read.items():
        splits = [split for split, those in (("train", learnt), ("dev", judged)) if path in those]
        materials[path] = Material(one, terms, plan, pieces, splits)
    words = None
    if plan.head != "tied":
        words = TokenCorpus.pack(surface_pieces([read[path] for path in learnt], terms, plan, pieces))
    pairs = [materials[path].pairs("train", group) for path in learnt]
    for path, asked in zip(learnt, pairs, strict=True):
        if not len(asked.usable):
            raise VizslaError(f"{path}: no train query has an answer among the documents")
    return Prepared(terms, words, pairs, [materials[path].dev() for path in judged])


def train_augmenter(
    plan: Augmentation,
    encoder: Any,
    pieces: Analyzer,
    settings: Settings,
    folder: Path,
    *,
    name: str,
    resume: bool = False,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[Augmenter, Outcome]:
    """Train an augmenter from what was prepared in `training` in its folder."""
    from vizsla.training import MixedPairs, Prepared, Team, Trainer, asked_well

    team, place = Team.assembled(), folder / "training"
    prepared = Prepared.open(place)
    if plan.embeddings:
        take_embeddings(encoder, plan.embeddings, pieces)
    network = prepared.network(encoder, plan.rank if plan.head == "narrow" else 0, plan.weighs, plan.trust)
    pairs = MixedPairs(prepared.pairs)
    trainer = Trainer(
        network, pairs, settings, dev=prepared.dev, folder=place, team=team, report=report, objective=asked_well
    )
    outcome = trainer.run(resume=resume)
    if team.leads:
        write_augmenter(trainer.network, prepared, plan, pieces, folder, name)
    team.wait()
    return Augmenter.load(folder), outcome


def take_embeddings(encoder: Any, which: str, pieces: Analyzer) -> None:
    """Give an encoder the word embeddings of a network that comes with the package, and leave them as they are."""
    import torch

    from vizsla.networks.weights import read_weights

    try:
        model = LearnedSparse.shipped(which)
    except InputError:
        raise VizslaError(f"no network called {which!r} comes with Vizsla, whose embeddings could be taken") from None
    table = encoder.embeddings.word_embeddings.weight
    taken = read_weights(model.network.folder)["embeddings.word_embeddings.weight"]
    same = list(model.pieces.vocabulary) == list(pieces.tokenizer.vocabulary)  # type: ignore[attr-defined]
    if taken.shape != tuple(table.shape) or not same:
        raise VizslaError(f"the word embeddings of {which} do not fit this encoder")
    with torch.no_grad():
        table.copy_(torch.from_numpy(taken))
    table.requires_grad_(False)


def write_augmenter(
    network: Any, prepared: Prepared, plan: Augmentation, pieces: Analyzer, folder: Path, name: str
) -> None:
    """A trained network as an augmenter in a folder, in 8 bits."""
    import torch

    from vizsla.training.augmentation import LONGEST

    network, queries = network.cpu().eval(), prepared.pairs[0].queries
    network.settle()
    chosen = np.linspace(0, len(queries) - 1, min(len(queries), _SAMPLE)).astype(int)
    nowhere = np.all([pairs.collection.shares[: len(prepared.terms)] == 0 for pairs in prepared.pairs], axis=0)
    with torch.no_grad():  # never learnt, so never added
        network.add.out.bias[torch.from_numpy(nowhere)] = _NEVER
    sample = [[101, *queries[i][: LONGEST - 2].tolist(), 102] for i in chosen]
    written = place_network(network, folder, most=1.0, length=LONGEST, sample=sample)
    analyzer = plan.bm25.text_analyzer
    terms, variant = tuple(prepared.terms), plan.bm25.variant
    Augmenter(written, terms, analyzer, pieces, plan.most, variant, name).save(folder)
