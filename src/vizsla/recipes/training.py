"""Training recipes: a network, where it starts, and how it is trained, as YAML; from documents to a saved model."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from vizsla.datasets import BeirDataset, Document
from vizsla.described import DescriptionError, check, made_from
from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.models import Augmenter, LearnedSparse, Model, Reranker, parse_model
from vizsla.recipes.cross import check_lengths, cross_material, cross_network, train_cross
from vizsla.recipes.dense import dense_network, write_dense
from vizsla.recipes.material import SAMPLE, dev_set, judged_pairs, pack, place_network
from vizsla.recipes.starting import starting_network
from vizsla.recipes.teaching import Teaching, taught_pairs
from vizsla.text import Analyzer

if TYPE_CHECKING:
    from vizsla.training import Outcome, Settings, TokenCorpus

NETWORKS = ("unicoil", "splade", "augmenter", "dense", "cross")
_PLAN = "plan.json"
PAIRS = ("crops", "judged", "taught")
FIXED = (
    "augment", "group", "start", "pooling", "normalised", "towers", "segments", "query_length", "document_length",
    "persistence", "teacher", "teaching", "beside", "beside_weight", "negatives", "candidates", "depth",
    "candidate_depth",
)  # fmt: skip
_PLAIN = (
    "start", "pooling", "teacher", "beside", "beside_weight", "normalised", "segments", "persistence", "negatives",
    "candidates",
)  # fmt: skip
_WHOLE = ("join", "group", "calm", "towers", "query_length", "document_length", "depth", "candidate_depth")
_ROOM = 1.1  # above the highest weight seen


@dataclass(frozen=True)
class TrainingRecipe:
    """How a model is trained.

    `start`: a network that comes with Vizsla, a model it saved, or an encoder of transformers' by folder or name.
    `pairs`: crops of documents; judged queries of a data set with negatives mined by BM25, `group - 1` a query; or
    sentences of documents, taught by another model (`teacher`, `teaching`, see `Teaching`), as Lambda of SPAR learns.
    `join`: so many neighbours with the same title are read as one document: passages are short for two crops.
    `masked`: the settings of a masked-language stage before, for a head that knows nothing yet; `calm`: how many terms
    of a text are active after it. `augment`: what an augmenter is, see `Augmentation`.

    Dense models: `pooling` and `normalised` say how a vector is made of the states of a text, `towers` whether queries
    have an encoder of their own, `segments` whether documents are of BERT's second segment. `query_length` and
    `document_length`: how many tokens are read, special ones included. `persistence`: see `MinedPairs`. `beside`: a
    dense model, by name or folder, whose vectors stand behind those in training and do not change; `beside_weight`:
    what they weigh at first.

    `negatives`: a TREC run or a model whose first `depth` documents the negatives of judged queries are thrown for
    from, BM25's or the data set's without it. Cross-encoders: `candidates` and `candidate_depth`, the same for what is
    ranked anew of dev sets, else of the negatives' first stage; `document_length` is that of query and document
    together.

    >>> load_training_recipe("bm26").start
    'bm26'
    """

    name: str
    title: str
    network: str
    start: str
    pairs: str = "crops"
    join: int = 1
    group: int = 8
    masked: dict[str, Any] = field(default_factory=dict)
    calm: int = 100
    augment: dict[str, Any] = field(default_factory=dict)
    pooling: str = "mean"
    normalised: bool = True
    towers: int = 1
    segments: bool = False
    query_length: int = 64
    document_length: int = 256
    persistence: float = 0.0
    teacher: str = "bm25"
    teaching: dict[str, Any] = field(default_factory=dict)
    beside: str = ""
    beside_weight: float = 1.0
    negatives: str = ""
    candidates: str = ""
    depth: int = 100
    candidate_depth: int = 100
    crops: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def reads_corpus(self) -> bool:
        """Whether documents are learnt from by themselves: by crops, or by masked words before judged queries."""
        return self.pairs == "crops" or (self.pairs == "judged" and bool(self.masked))

    def changed(self, changes: Sequence[str]) -> TrainingRecipe:
        """The recipe with some of its settings changed, each given as name=value."""
        from vizsla.training import Crops, Settings
        from vizsla.training.settings import read_setting

        made, own = made_from(Settings, self.settings), dict(self.crops)
        new, others = self, []
        for change in changes:
            name, _, text = (part.strip() for part in change.partition("="))
            if name in _PLAIN:
                kind = type(getattr(new, name))
                new = replace(new, **{name: read_setting(text, kind, name)})
            elif name in _WHOLE:
                new = replace(new, **{name: _whole(name, text)})  # type: ignore[arg-type]
            elif name.startswith("teaching."):
                new = replace(
                    new, teaching={**new.teaching, **_changed(name.removeprefix("teaching."), text, Teaching)}
                )
            elif name.startswith("masked."):
                masked = made_from(Settings, new.masked).changed(change.strip().removeprefix("masked."))
                new = replace(new, masked=masked.as_data())
            elif name.startswith("augment."):
                from vizsla.recipes.augmentation import Augmentation

                option = name.removeprefix("augment.")
                new = replace(new, augment={**new.augment, **_changed(option, text, Augmentation)})
            elif name in Crops.__dataclass_fields__ and text:
                own[name] = _number(name, text)
            else:
                others.append(change)
        return replace(new, crops=own, settings=made.changed(*others).as_data())


def training_recipes() -> list[str]:
    """The training recipes that come with Vizsla."""
    folder = resources.files("vizsla.recipes").joinpath("data/training")
    return sorted(f.name.removesuffix(".yaml") for f in folder.iterdir() if f.name.endswith(".yaml"))


def load_training_recipe(name: str) -> TrainingRecipe:
    """A training recipe by its name, or from a file of one's own."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise InputError("there is no such recipe file", file=name)
        text = path.read_text("utf-8", "replace")
    elif name in training_recipes():
        text = resources.files("vizsla.recipes").joinpath(f"data/training/{name}.yaml").read_text("utf-8")
    else:
        raise UnknownNameError("training recipe", name, training_recipes())
    try:
        recipe = made_from(TrainingRecipe, yaml.safe_load(text))
    except (yaml.YAMLError, RecursionError, DescriptionError) as e:
        problem = " ".join(str(e).split())
        raise InputError(
            f"this is no training recipe; expected name, title, network, start ({problem})", file=name
        ) from None
    if recipe.network not in NETWORKS:
        raise UnknownNameError("network", recipe.network, NETWORKS)
    if recipe.pairs not in PAIRS:
        raise UnknownNameError("kind of pairs", recipe.pairs, PAIRS)
    return recipe


def train(
    recipe: TrainingRecipe,
    documents: Iterable[Document],
    output: str | Path,
    *,
    datasets: Sequence[BeirDataset] = (),
    dev: Sequence[BeirDataset] = (),
    resume: bool = False,
    report: Callable[[dict[str, Any]], None] | None = None,
) -> tuple[Model | Augmenter | Reranker, Outcome]:
    """Train on documents and save the model in a folder; checkpoints and the log go to `training` inside it.

    Documents are tokenised once: with `resume` what was packed then is read again, and `documents` is not.
    `datasets`: where judged pairs come from, their train splits, for recipes that want them.
    """
    from vizsla.training import (
        CroppedPairs,
        Crops,
        MinedPairs,
        Pairs,
        Settings,
        Team,
        TokenCorpus,
        Trainer,
        train_masked,
    )

    folder = Path(output)
    place = folder / "training"
    settings, crops = made_from(Settings, recipe.settings), made_from(Crops, recipe.crops)
    _check_first_stages(recipe)
    if recipe.network in ("augmenter", "cross"):
        special = _train_augmenter if recipe.network == "augmenter" else _train_cross
        return special(recipe, settings, folder, datasets, dev, resume, report)
    if recipe.pairs == "judged":
        _check_datasets(recipe, datasets)
    network: Any
    if recipe.network == "dense":
        network, analyzer = dense_network(recipe, settings.seed)
        fresh = False
    else:
        network, analyzer, fresh = starting_network(recipe.start, recipe.network, settings.seed)
    team = Team.assembled()
    if not resume and team.leads:
        _check_free(folder)
        _prepare(recipe, documents, datasets, analyzer, place)
        _write_plan(place, recipe, dev, datasets)
    team.wait()
    corpus = TokenCorpus.open(place / "corpus" if recipe.reads_corpus else place / "pairs" / "documents")
    if fresh and recipe.masked and not resume:
        train_masked(network, corpus, made_from(Settings, recipe.masked), team=team, report=report)
        _calm(network, corpus, recipe.calm)
    pairs: Pairs = CroppedPairs(corpus, crops)
    if recipe.pairs != "crops":
        pairs = MinedPairs.open(
            place / "pairs", group=recipe.group, query_length=recipe.query_length,
            document_length=recipe.document_length, persistence=recipe.persistence or None,
        )  # fmt: skip
    trainer = Trainer(
        network, pairs, settings, dev=[dev_set(d, analyzer) for d in dev], folder=place, team=team, report=report
    )
    outcome = trainer.run(resume=resume)
    if team.leads:
        if recipe.network == "dense":
            write_dense(trainer.network, analyzer, corpus, folder, recipe)
        else:
            write_model(trainer.network, analyzer, corpus, folder, recipe.name)
    team.wait()
    return Model.load(folder), outcome


def _check_first_stages(recipe: TrainingRecipe) -> None:
    if recipe.negatives and (recipe.network == "augmenter" or recipe.pairs != "judged"):
        raise VizslaError(f"{recipe.name} does not learn from negatives of a first stage; leave --negatives out")
    if recipe.candidates and recipe.network != "cross":
        raise VizslaError(f"{recipe.name} ranks no candidates anew, as cross-encoders do; leave --candidates out")


def _prepare(
    recipe: TrainingRecipe, documents: Iterable[Document], datasets: Sequence[BeirDataset], analyzer: Analyzer,
    place: Path,
) -> None:  # fmt: skip
    """Tokenise all that is learnt from, once, into the folder of a run."""
    from vizsla.training import MinedPairs

    if recipe.pairs == "taught":
        teacher, how = parse_model(recipe.teacher), made_from(Teaching, recipe.teaching)
        taught_pairs(list(documents), teacher, analyzer, how).save(place / "pairs")
        return
    if recipe.pairs == "judged":
        judged = [
            judged_pairs(dataset, analyzer, recipe.group, negatives=recipe.negatives, depth=recipe.depth)
            for dataset in datasets
        ]
        MinedPairs.joined(judged).save(place / "pairs")
    if recipe.reads_corpus:
        pack(documents, analyzer, recipe.join).save(place / "corpus")


def _train_augmenter(
    recipe: TrainingRecipe, settings: Settings, folder: Path, datasets: Sequence[BeirDataset],
    dev: Sequence[BeirDataset], resume: bool, report: Callable[[dict[str, Any]], None] | None,
) -> tuple[Augmenter, Outcome]:  # fmt: skip
    from vizsla.recipes.augmentation import Augmentation, prepare, take_embeddings, train_augmenter
    from vizsla.training import Team

    _check_datasets(recipe, datasets)
    plan, team = made_from(Augmentation, recipe.augment), Team.assembled()
    if not resume and team.leads:  # what is wrong is refused now, not after everything has been read
        _check_free(folder)
        for split, those in (("train", datasets), ("dev", dev)):
            for dataset in those:
                dataset.qrels(split)
    encoder, pieces, _ = starting_network(recipe.start, recipe.network, settings.seed)
    if not resume and team.leads:
        if plan.embeddings:
            take_embeddings(encoder, plan.embeddings, pieces)
        prepare(plan, encoder, pieces, datasets, dev, recipe.group).save(folder / "training")
        _write_plan(folder / "training", recipe, dev, datasets)
    team.wait()
    return train_augmenter(plan, encoder, pieces, settings, folder, resume=resume, report=report, name=recipe.name)


def _train_cross(
    recipe: TrainingRecipe, settings: Settings, folder: Path, datasets: Sequence[BeirDataset],
    dev: Sequence[BeirDataset], resume: bool, report: Callable[[dict[str, Any]], None] | None,
) -> tuple[Reranker, Outcome]:  # fmt: skip
    from vizsla.training import Team

    _check_datasets(recipe, datasets)
    team = Team.assembled()
    network, analyzer = cross_network(recipe.start, settings.seed)
    check_lengths(recipe, network)
    if not resume and team.leads:
        _check_free(folder)
        cross_material(recipe, analyzer, datasets, dev).save(folder / "training")
        _write_plan(folder / "training", recipe, dev, datasets)
    team.wait()
    return train_cross(recipe, network, settings, folder, team=team, resume=resume, report=report)


def _check_datasets(recipe: TrainingRecipe, datasets: Sequence[BeirDataset]) -> None:
    if not datasets:
        raise VizslaError(f"{recipe.name} learns from judged queries; name a data set with --dataset")


def _check_free(folder: Path) -> None:
    """Refuse to write over a model, or over a run that was stopped."""
    from vizsla.training.checkpoints import has_checkpoint

    if any((folder / f"{kind}.json").exists() for kind in ("model", "augmenter", "reranker")):
        raise VizslaError(f"{folder}: there is a model here already; name another folder")
    if has_checkpoint(folder / "training"):
        raise VizslaError(f"{folder}: a run has been stopped here; go on with --resume, or name another folder")


def _write_plan(
    place: Path, recipe: TrainingRecipe, dev: Sequence[BeirDataset], datasets: Sequence[BeirDataset]
) -> None:
    """Keep what a run was started with, so that it can go on with it."""
    plan = {
        "recipe": asdict(recipe),
        "dev": [str(d.folder.resolve()) for d in dev],
        "datasets": [str(d.folder.resolve()) for d in datasets],
    }
    (place / _PLAN).write_text(json.dumps(plan, indent=2) + "\n")


def resumed(output: str | Path) -> tuple[TrainingRecipe, list[BeirDataset], list[BeirDataset]]:
    """The recipe, the dev sets and the data sets of a run that was stopped."""
    file = Path(output) / "training" / _PLAN
    try:
        plan = json.loads(file.read_text())
        check("the plan", plan, "dict")
        recipe = made_from(TrainingRecipe, plan.get("recipe"))
        folders = plan.get("dev"), plan.get("datasets")
        for those in folders:
            check("a list of data sets", those, "tuple[str, ...]")
    except FileNotFoundError:
        raise VizslaError(f"{output}: there is no run here to go on with") from None
    except (ValueError, RecursionError, DescriptionError) as e:
        raise InputError(f"this is not the plan of a run ({e})", file=str(file)) from None
    opened = BeirDataset.open if recipe.network != "augmenter" else lambda d: BeirDataset(Path(d))  # which is prepared
    dev, datasets = ([opened(d) for d in those] for those in folders)
    return recipe, dev, datasets


def go_on_with(recipe: TrainingRecipe, changes: Sequence[str]) -> TrainingRecipe:
    """A recipe to go on with, some settings changed; what the run was prepared from is not free any more."""
    new = recipe.changed(changes)
    other = next((name for name in FIXED if getattr(new, name) != getattr(recipe, name)), None)
    if other is not None:
        raise VizslaError(f"a run goes on with what it began with; {other} cannot be changed any more")
    return new


def _calm(network: Any, corpus: TokenCorpus, terms: int) -> None:
    """Leave a head that has learnt to name words with few active terms, judged by the first documents."""
    from vizsla.networks import packed
    from vizsla.training.dev import framed

    device = next(network.parameters()).device
    network.calm(packed(*framed(corpus, range(min(len(corpus), 256)), device, longest=128), 1 << 14).chunks, terms)


def write_model(network: Any, analyzer: Analyzer, corpus: TokenCorpus, folder: Path, name: str) -> None:
    """A trained network as a model in a folder: in 8 bits to be searched with, and in floats as others open it."""
    import torch

    from vizsla.networks import packed
    from vizsla.networks.layout import save_layout
    from vizsla.training.dev import framed

    network = network.cpu().eval()
    length = network.encoder.config.max_position_embeddings
    chosen = np.linspace(0, len(corpus) - 1, min(len(corpus), SAMPLE)).astype(int)
    sample = [[101, *corpus[i][: length - 2].tolist(), 102] for i in chosen]
    with torch.inference_mode():
        batch = packed(*framed(corpus, chosen, "cpu", longest=length), 1 << 14)
        most = max(float(network(chunk).max()) for chunk in batch.chunks)
    if not most > 0:
        raise VizslaError("the network gives no weights any more; train with a lower rate, as in --set rate=1e-5")
    written = place_network(network, folder, most=_ROOM * most, length=length, sample=sample)
    LearnedSparse(written, analyzer, namespace=name, name=name).save(folder)
    save_layout(network, analyzer.tokenizer.content, folder)  # type: ignore[attr-defined]


def _whole(name: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise VizslaError(f"{text!r} is no number for {name}; expected 1 or more")
    return int(text)


def _changed(name: str, text: str, options: type) -> dict[str, Any]:
    """One option of an augmenter or of teaching, of the kind it has."""
    from vizsla.training.settings import read_setting

    known = {n: type(getattr(options(), n)) for n in options.__dataclass_fields__}  # type: ignore[attr-defined]
    if name not in known:
        what = {"Augmentation": "an augmenter"}.get(options.__name__, options.__name__.lower())
        raise UnknownNameError(f"option of {what}", name, tuple(known))
    return {name: read_setting(text, known[name], name)}


def _number(name: str, text: str) -> float | int:
    try:
        return int(text) if name in ("span", "least", "start", "end") else float(text)
    except ValueError:
        raise VizslaError(f"{text!r} is no number for {name}") from None
