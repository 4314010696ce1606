"""Adapting a model to documents without labels: the training recipe that fits the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vizsla.errors import InputError, VizslaError
from vizsla.models import MODELS, ColBERT, DeepCT, LearnedSparse, Network
from vizsla.neural.checkpoints.checkpoint import Checkpoint
from vizsla.neural.query_tables import TermWeights
from vizsla.training.networks import DEFAULT_ENCODER, known_model
from vizsla.training.recipe import TrainingRecipe, load_training_recipe

_NAMES = {"minilm": DEFAULT_ENCODER}
_READ = 512  # at most so many tokens of a text are read
_COSINE_TEMPERATURE = 0.2  # scales margins of cosines to about those of a teacher, which are 1


def adaptation_recipe(
    model: str, *, generator: str = "", negatives: str = "", teacher: str = "", changes: Sequence[str] = ()
) -> TrainingRecipe:
    """The recipe that adapts a model with generated queries: `genq` for dense models, `genq-sparse` for others.

    `model`: minilm, bm26, the folder of a saved model, or an encoder by its folder or name. The adapted model tokenizes
    texts in the same way. `generator`: generates queries for documents that have none. `negatives`: a model whose top
    documents are hard negatives, one per query and step. `teacher`: a cross-encoder or a model to distill; it needs
    hard negatives, by default those of BM25. `changes` to settings are applied last.

    >>> recipe = adaptation_recipe("bm26", teacher="bm25 + 0.5 * bm25-wp")
    >>> recipe.name, recipe.kind, recipe.settings.loss.name, recipe.settings.data.negatives
    ('bm26-gpl', 'learned-sparse', 'margin-mse', 'bm25')
    """
    settings = _start(model)
    if generator:
        settings.append(f"data.generator={generator}")
    if negatives or teacher:
        settings += ["data.negatives_per_query=1", f"data.negatives={negatives or 'bm25'}"]
    if teacher:
        temperature = _COSINE_TEMPERATURE if "network.normalize=true" in settings else 1.0
        settings += [f"data.teacher={teacher}", "loss.name=margin-mse", f"loss.temperature={temperature}"]
    sparse = any(setting.startswith("network.head=") for setting in settings)
    recipe = load_training_recipe("genq-sparse" if sparse else "genq").with_changes([*settings, *changes])
    return replace(recipe, name=f"{Path(model).name or 'model'}-{'gpl' if teacher else 'genq'}")


def _start(model: str) -> list[str]:
    """The settings of a network that is initialised with this model and tokenizes texts in the same way."""
    base = _NAMES.get(model, model)
    known = known_model(base)
    if isinstance(known, LearnedSparse):
        if known.query_network is not None:
            raise InputError("only a learned sparse model with one network can be adapted", file=model)
        _check_prompts(model, known.query_prompt, known.document_prompt)
        length = known.length or known.network.length
        has_table = known.inference_free and isinstance(known.query_table, TermWeights)
        head = "splade-doc" if has_table else known.network.kind
        return [*_reading(base, length, length), f"network.head={head}"]
    if isinstance(known, DeepCT):
        raise VizslaError(f"{model} is a DeepCT, which learns from judged queries; train it with: vizsla train deepct")
    if isinstance(known, ColBERT):
        raise VizslaError(
            f"{model} is a ColBERT; train it with: vizsla train colbert --set data.source=generated "
            f"--set network.base_model={model}"
        )
    if known is not None:
        _check_prompts(model, known.query_prompt, known.document_prompt)
        length = known.length or known.network.length
        query_length = known.query_length or length
        pooling = known.network.pooling if isinstance(known.network, Network) else "mean"
        return [
            *_reading(base, query_length, length),
            *_pooled(pooling or "mean", known.normalize, known.query_network),
        ]
    if base == model and model.partition("(")[0].strip() in MODELS:
        raise VizslaError(f"{model} cannot be adapted; name minilm, bm26, the folder of a saved model, or an encoder")
    encoder, queries = Checkpoint.read(base)
    read_settings = encoder.settings
    if queries is not None or not encoder.plain:
        raise InputError("only a plain BERT encoder that reads queries and documents can be adapted", file=model)
    _check_prompts(model, read_settings.query_prompt, read_settings.document_prompt)
    place = str(encoder.place) if read_settings.base else base
    return [
        *_reading(place, encoder.length, encoder.length),
        *_pooled("+".join(read_settings.pooling), read_settings.normalize, None),
    ]


def _reading(base: str, query_length: int, length: int) -> list[str]:
    """The settings of a network's base model and its lengths."""
    lengths = (("query", query_length), ("document", length))
    return [f"network.base_model={base}", *(f"data.max_{side}_length={min(n, _READ)}" for side, n in lengths)]


def _pooled(pooling: str, normalize: bool, query_network: object) -> list[str]:
    """The settings of a dense network."""
    tied = query_network is None
    given = {"pooling": pooling, "normalize": str(normalize).lower(), "tied_encoders": str(tied).lower()}
    return [f"network.{name}={value}" for name, value in given.items()]


def _check_prompts(model: str, *prompts: str) -> None:
    if any(prompts):
        raise InputError("this model needs a prompt before texts, and such models cannot be trained yet", file=model)
