"""Dense models in training: which encoders they have, and how they are written."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.models import Dense, Spar, parse_model
from vizsla.recipes.material import SAMPLE, place_network
from vizsla.recipes.starting import known_model, loaded, starting_network
from vizsla.text import Analyzer

if TYPE_CHECKING:
    from vizsla.networks import Beside, Pooled, Towers
    from vizsla.recipes.training import TrainingRecipe
    from vizsla.training import TokenCorpus


def dense_network(recipe: TrainingRecipe, seed: int = 0) -> tuple[Pooled | Towers | Beside, Analyzer]:
    """The network a recipe trains, and the word pieces it reads."""
    from vizsla.networks import Beside, Pooled, Towers

    if recipe.towers not in (1, 2):
        raise VizslaError(f"a dense model has 1 encoder or 2, not {recipe.towers}")
    if recipe.segments and recipe.towers == 2:
        raise VizslaError("segments tell queries from documents where one encoder reads both; set towers=1")
    start = known_model(recipe.start)
    encoder, analyzer, _ = starting_network(recipe.start, "dense", seed)
    encoder.token_types = recipe.segments
    documents = Pooled(encoder, recipe.pooling, recipe.normalised)
    own: Pooled | Towers = documents
    if recipe.towers == 2:
        other_tower = start.query_network if isinstance(start, Dense) else None
        queries = deepcopy(encoder) if other_tower is None else loaded(other_tower).encoder
        own = Towers(Pooled(queries, recipe.pooling, recipe.normalised), documents)
    if not recipe.beside:
        return own, analyzer
    other = _model_beside(recipe.beside)
    if other.analyzer != analyzer:
        raise InputError("this model reads other word pieces than the one in training", file=recipe.beside)
    if not recipe.beside_weight > 0:
        raise VizslaError(f"beside_weight must be more than 0, not {recipe.beside_weight:g}")
    return Beside(own, network_of(other), recipe.beside_weight), analyzer


def _model_beside(which: str) -> Dense:
    model = parse_model(which)
    if not isinstance(model, Dense):
        raise InputError("this is no dense model, which alone can stand beside the one in training", file=which)
    return model


def network_of(model: Dense) -> Pooled | Towers:
    """The network of a dense model, in torch."""
    from vizsla.networks import Pooled, Towers

    made = []
    for network in (model.query_network, model.network):
        if network is None:
            continue
        tower = loaded(network)
        assert isinstance(tower, Pooled)
        tower.normalize = model.normalize
        made.append(tower)
    return made[0] if len(made) == 1 else Towers(*made)


def write_dense(network: Any, analyzer: Analyzer, corpus: TokenCorpus, folder: Path, recipe: TrainingRecipe) -> None:
    """A trained network as a model in a folder: in 8 bits to be searched with, and in floats as others open it.

    What was trained beside another model is written as SPAR of both, the one that was taught being the second.
    """
    from vizsla.networks import Beside
    from vizsla.networks.layout import save_layout

    network = network.cpu().eval()
    own = network.own if isinstance(network, Beside) else network
    towers = _towers(own)
    lengths = recipe.query_length, recipe.document_length
    written = []
    for name, tower, length in zip(("query", "document")[-len(towers) :], towers, lengths[-len(towers) :], strict=True):
        chosen = np.linspace(0, len(corpus) - 1, min(len(corpus), SAMPLE)).astype(int)
        sample = [[101, *corpus[i][: length - 2].tolist(), 102] for i in chosen]
        config: Any = tower.encoder.config
        most = config.max_position_embeddings
        written.append(place_network(tower, folder, most=1.0, length=most, sample=sample, pooling=tower.pooling))
        place = folder if len(towers) == 1 else folder / name
        save_layout(tower, analyzer.tokenizer.content, place)  # type: ignore[attr-defined]
    model = Dense(
        written[-1],
        analyzer,
        towers[0].normalize,
        query_network=written[0] if len(written) == 2 else None,
        length=min(recipe.document_length, written[-1].length),
        query_length=min(recipe.query_length, written[0].length),
        namespace=recipe.name,
        name=recipe.name,
    )
    if isinstance(network, Beside):
        _together(model, network.weight.item(), recipe).save(folder)
    else:
        model.save(folder)


def _together(own: Dense, weight: float, recipe: TrainingRecipe) -> Spar:
    """A model and the one it was trained beside, which weighs so much, as one."""
    other = _model_beside(recipe.beside)
    if not weight > 0:
        raise VizslaError(f"{recipe.beside} has come to weigh {weight:g}, so it does not help; train without it")
    if recipe.pairs == "taught":
        return Spar(other, own, 1 / weight, namespace=recipe.name, name=recipe.name)
    return Spar(own, other, weight, namespace=recipe.name, name=recipe.name)


def _towers(network: Pooled | Towers) -> list[Pooled]:
    """The encoders as they are run: one with token types for queries and documents becomes two without."""
    from vizsla.networks import Towers

    if isinstance(network, Towers):
        return [network.queries, network.documents]
    if not getattr(network.encoder, "token_types", False):
        return [network]
    documents = deepcopy(network)
    embeddings: Any = documents.encoder.embeddings
    embeddings.token_type_embeddings.weight.data[0] = embeddings.token_type_embeddings.weight.data[1]
    return [network, documents]
