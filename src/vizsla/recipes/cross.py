"""Cross-encoders from judged queries: what they are trained from, with whose negatives, and how they are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.datasets import BeirDataset
from vizsla.encoders.checkpoint import find_checkpoint
from vizsla.errors import VizslaError
from vizsla.models import Reranker
from vizsla.models.model import field_text
from vizsla.recipes.material import FIELDS, judged_pairs, judgements_of, ranked_by, tokens_of
from vizsla.recipes.starting import known_model, starting_network
from vizsla.text import Analyzer

if TYPE_CHECKING:
    from vizsla.networks import Cross
    from vizsla.recipes.training import TrainingRecipe
    from vizsla.training import CrossDev, CrossMaterial, Outcome, Settings, Team


def cross_network(start: str, seed: int = 0) -> tuple[Cross, Analyzer]:
    """A cross-encoder to train and the word pieces it reads; the head is a checkpoint's where it has one."""
    from vizsla.networks import Cross
    from vizsla.networks.cross import head_arrays

    if known_model(start) is not None:
        encoder, analyzer, _ = starting_network(start, "cross", seed)
        return Cross(encoder), analyzer
    folder = find_checkpoint(start)
    encoder, analyzer, _ = starting_network(str(folder), "cross", seed)
    network = Cross(encoder)
    network.take_head(head_arrays(folder))
    return network, analyzer


def check_lengths(recipe: TrainingRecipe, network: Cross) -> None:
    """Refuse pairs that are longer than what the network has places for, or too short for a query."""
    config: Any = network.encoder.config
    most, query, length = config.max_position_embeddings, recipe.query_length, recipe.document_length
    if not query + 2 <= length <= most or query < 3:
        raise VizslaError(
            f"a query of {query} tokens in a pair of {length} does not fit; this encoder reads {most} at most, a query "
            "needs 3 and a document 2 more: set query_length and document_length"
        )


def cross_material(
    recipe: TrainingRecipe, analyzer: Analyzer, datasets: Sequence[BeirDataset], dev: Sequence[BeirDataset]
) -> CrossMaterial:
    """The judged queries of data sets with negatives, and dev queries with candidates, as arrays.

    Negatives and candidates are what the recipe's first stage ranks high: BM25 unless it names another.
    """
    from vizsla.training import CrossMaterial, MinedPairs

    for which, those in ((recipe.negatives, datasets), (recipe.candidates or recipe.negatives, dev)):
        if which and Path(which).is_file() and len(those) > 1:
            raise VizslaError(f"{which}: a run belongs to one data set, not to {len(those)}; name a model instead")
    pairs = [
        judged_pairs(dataset, analyzer, recipe.group, negatives=recipe.negatives, depth=recipe.depth)
        for dataset in datasets
    ]
    devs = [cross_dev(dataset, analyzer, recipe) for dataset in dev]
    return CrossMaterial(MinedPairs.joined(pairs), devs, analyzer.tokenizer.content)  # type: ignore[attr-defined]


def cross_dev(dataset: BeirDataset, analyzer: Analyzer, recipe: TrainingRecipe, split: str = "dev") -> CrossDev:
    """A data set's judged queries with the candidates of a first stage."""
    from vizsla.training import CrossDev, TokenCorpus

    qrels = dataset.qrels(split)
    queries, documents = dataset.queries_of(qrels), list(dataset.documents())
    found = ranked_by(recipe.candidates or recipe.negatives or "bm25", documents, queries, recipe.candidate_depth)
    places, encode = {d.id: i for i, d in enumerate(documents)}, tokens_of(analyzer)
    candidates = [np.array([places[d] for d in found[q] if d in places and d != q], np.int64) for q in queries]
    return CrossDev.of(
        dataset.name,
        TokenCorpus.of(encode(list(queries.values()))),
        TokenCorpus.of(encode([field_text(d.content, FIELDS) for d in documents])),
        TokenCorpus.of(candidates),
        judgements_of(documents, queries, qrels),
        query_length=recipe.query_length,
        length=recipe.document_length,
    )


def train_cross(
    recipe: TrainingRecipe,
    network: Cross,
    settings: Settings,
    folder: Path,
    *,
    team: Team,
    resume: bool = False,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[Reranker, Outcome]:
    """Train a cross-encoder on what was prepared in `training` inside the folder, and write it."""
    from vizsla.networks.layout import save_reranker
    from vizsla.training import CrossMaterial, CrossPairs, Trainer, answered_first

    place = folder / "training"
    material = CrossMaterial.open(place, recipe.group)
    pairs = CrossPairs(material.pairs, recipe.query_length, recipe.document_length)
    trainer = Trainer(
        network, pairs, settings, dev=material.dev, folder=place, team=team, report=report, objective=answered_first
    )
    outcome = trainer.run(resume=resume)
    if team.leads:
        lengths = {"query_length": recipe.query_length, "length": recipe.document_length}
        save_reranker(network.cpu().eval(), material.tokenizer, folder, name=recipe.name, **lengths)
    team.wait()
    return Reranker.open(folder), outcome
