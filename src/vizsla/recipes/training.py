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
from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.models import Augmenter, Dense, Learned, Model
from vizsla.models.checkpoint import packaged
from vizsla.models.learned import SHIPPED
from vizsla.models.network import ABOUT
from vizsla.recipes.material import dev_set, judged_pairs, pack, place_network
from vizsla.text import Analyzer

if TYPE_CHECKING:
    from vizsla.training import Outcome, Settings, TokenCorpus

NETWORKS = ("unicoil", "splade", "augmenter", "dense")
_PLAN = "plan.json"
PAIRS = ("crops", "judged")
_SAMPLE = 40  # texts that 8-bit weights are fitted on
_ROOM = 1.1  # above the highest weight seen


@dataclass(frozen=True)
class TrainingRecipe:
    """How a model is trained.

    `start`: a network that comes with Vizsla, a model it saved, or an encoder of transformers' by folder or name.
    `pairs`: crops of documents, or judged queries of a data set with negatives mined by BM25, `group - 1` a query.
    `join`: so many neighbours with the same title are read as one document: passages are short for two crops.
    `masked`: the settings of a masked-language stage before, for a head that knows nothing yet; `calm`: how many terms
    of a text are active after it. `augment`: what an augmenter is, see `Augmentation`. `pooling` and `normalised`: how
    a dense model makes a vector of the states of a text.

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
    crops: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)

    def changed(self, changes: Sequence[str]) -> TrainingRecipe:
        """The recipe with some of its settings changed, each given as name=value."""
        from vizsla.training import Crops, Settings
        from vizsla.training.settings import read_setting

        made, own = Settings(**self.settings), dict(self.crops)
        new, others = self, []
        for change in changes:
            name, _, text = (part.strip() for part in change.partition("="))
            if name in ("start", "pooling"):
                new = replace(new, **{name: text})  # type: ignore[arg-type]
            elif name == "normalised":
                new = replace(new, normalised=read_setting(text, bool, name))
            elif name in ("join", "group", "calm"):
                new = replace(new, **{name: _whole(name, text)})  # type: ignore[arg-type]
            elif name.startswith("masked."):
                masked = Settings(**new.masked).changed(change.strip().removeprefix("masked."))
                new = replace(new, masked=masked.as_data())
            elif name.startswith("augment."):
                new = replace(new, augment={**new.augment, **_changed(name.removeprefix("augment."), text)})
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
        recipe = TrainingRecipe(**yaml.safe_load(text))
    except (yaml.YAMLError, TypeError) as e:
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
) -> tuple[Model | Augmenter, Outcome]:
    """Train on documents and save the model in a folder; checkpoints and the log go to `training` inside it.

    Documents are tokenised once: with `resume` what was packed then is read again, and `documents` is not.
    `datasets`: where judged pairs come from, their train splits, for recipes that want them.
    """
    from vizsla.networks import Pooled
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
    settings, crops = Settings(**recipe.settings), Crops(**recipe.crops)
    if recipe.network == "augmenter":
        return _train_augmenter(recipe, settings, folder, datasets, dev, resume, report)
    network, analyzer, fresh = starting_network(recipe.start, recipe.network, settings.seed)
    if recipe.network == "dense":
        network = Pooled(network.encoder, recipe.pooling, recipe.normalised)
    team = Team.assembled()
    if not resume and team.leads:
        _check_free(folder)
        pack(documents, analyzer, recipe.join).save(place / "corpus")
        _write_plan(place, recipe, dev, datasets)
    team.wait()
    corpus = TokenCorpus.open(place / "corpus")
    if fresh and recipe.masked and not resume:
        train_masked(network, corpus, Settings(**recipe.masked), team=team, report=report)
        _calm(network, corpus, recipe.calm)
    pairs: Pairs = CroppedPairs(corpus, crops)
    if recipe.pairs == "judged":
        if not datasets:
            raise VizslaError(f"{recipe.name} learns from judged queries; name a data set with --dataset")
        pairs = MinedPairs.joined([judged_pairs(dataset, analyzer, recipe.group) for dataset in datasets])
    trainer = Trainer(
        network, pairs, settings, dev=[dev_set(d, analyzer) for d in dev], folder=place, team=team, report=report
    )
    outcome = trainer.run(resume=resume)
    if team.leads:
        write_model(trainer.network, analyzer, corpus, folder, recipe.name)
    team.wait()
    return Model.load(folder), outcome


def _train_augmenter(
    recipe: TrainingRecipe, settings: Settings, folder: Path, datasets: Sequence[BeirDataset],
    dev: Sequence[BeirDataset], resume: bool, report: Callable[[dict[str, Any]], None] | None,
) -> tuple[Augmenter, Outcome]:  # fmt: skip
    from vizsla.recipes.augmentation import Augmentation, prepare, take_embeddings, train_augmenter
    from vizsla.training import Team

    if not datasets:
        raise VizslaError(f"{recipe.name} learns from judged queries; name a data set with --dataset")
    try:
        plan, team = Augmentation(**recipe.augment), Team.assembled()
    except TypeError as e:
        raise VizslaError(f"an augmenter does not take all that is asked for ({e})") from None
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


def _check_free(folder: Path) -> None:
    """Refuse to write over a model, or over a run that was stopped."""
    from vizsla.training.checkpoints import has_checkpoint

    if (folder / "model.json").exists() or (folder / "augmenter.json").exists():
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
        recipe = TrainingRecipe(**plan["recipe"])
        folders = plan["dev"], plan["datasets"]
    except FileNotFoundError:
        raise VizslaError(f"{output}: there is no run here to go on with") from None
    except (ValueError, TypeError, KeyError) as e:
        raise InputError(f"this is not the plan of a run ({e})", file=str(file)) from None
    opened = BeirDataset.open if recipe.network != "augmenter" else lambda d: BeirDataset(Path(d))  # which is prepared
    dev, datasets = ([opened(d) for d in those] for those in folders)
    return recipe, dev, datasets


def go_on_with(recipe: TrainingRecipe, changes: Sequence[str]) -> TrainingRecipe:
    """A recipe to go on with, some settings changed; what the run was prepared from is not free any more."""
    new = recipe.changed(changes)
    fixed = ("augment", "group", "start", "pooling", "normalised")
    if any(getattr(new, name) != getattr(recipe, name) for name in fixed):
        raise VizslaError("a run goes on with the start, the group, the pooling and the augmenter it began with")
    return new


def starting_network(start: str, kind: str = "unicoil", seed: int = 0) -> tuple[Any, Analyzer, bool]:
    """A network to train, the word pieces it reads, and whether its head knows nothing yet.

    Of an augmenter only the encoder: its head depends on the documents.
    """
    import torch

    from vizsla.networks import Pooled, Splade, TiedHead, UniCoil
    from vizsla.networks.inference import load
    from vizsla.networks.weights import read_weights

    torch.manual_seed(seed)
    known = _known_model(start)
    if known is None:
        encoder, analyzer = _fresh_encoder(str(packaged(start) or start))
    else:
        assert isinstance(known.analyzer, Analyzer)
        told = known.network
        network = load(read_weights(told.folder), told.kind, told.heads, told.pooling or "mean")
        if known.network.kind == kind:
            return network, known.analyzer, False
        encoder, analyzer = network.encoder, known.analyzer
    if kind == "augmenter":
        return encoder, analyzer, True
    if kind == "unicoil":
        return UniCoil(encoder), analyzer, True
    if kind == "dense":
        return Pooled(encoder), analyzer, False
    return Splade(encoder, TiedHead(encoder.embeddings.word_embeddings, encoder.hidden)), analyzer, True


def _known_model(start: str) -> Learned | Dense | None:
    """A model of Vizsla's own, by name or by folder."""
    if any((place / "augmenter.json").is_file() for place in (SHIPPED / start, Path(start))):
        raise VizslaError(f"{start} is an augmenter; training starts from an encoder, or from a model such as bm26")
    if (SHIPPED / start / ABOUT).is_file():
        return Learned.shipped(start)
    if (Path(start) / "model.json").is_file():
        learned = [p.component for p in Model.load(start).parts if isinstance(p.component, Learned | Dense)]
        if len(learned) != 1:
            raise InputError("this model has no network to start from, or several", file=start)
        return learned[0]
    return None


def _fresh_encoder(start: str) -> tuple[Any, Analyzer]:
    """An encoder of transformers' and its word pieces."""
    from vizsla.networks import encoder_of
    from vizsla.networks.inference import transformers

    analyzer = Analyzer.parse(f"wordpiece:{start}")
    try:
        encoder = transformers().AutoModel.from_pretrained(
            start, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        )
    except (OSError, ValueError) as e:
        raise InputError(f"there is no encoder to start from here ({str(e).splitlines()[0]})", file=start) from None
    if encoder.config.model_type != "bert" or encoder.config.hidden_act != "gelu":
        raise InputError(f"this is a {encoder.config.model_type}; only plain BERT encoders can be trained", file=start)
    numbers = analyzer.tokenizer.numbers  # type: ignore[attr-defined]
    if [numbers.get(name) for name in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")] != [0, 101, 102, 103]:
        raise InputError(
            "only encoders whose special tokens are numbered as in BERT's vocabulary can be trained", file=start
        )
    pieces = len(analyzer.tokenizer.vocabulary)  # type: ignore[attr-defined]
    if pieces > encoder.config.vocab_size:
        raise InputError(
            f"the encoder knows {encoder.config.vocab_size:,} word pieces and its tokenizer gives {pieces:,}",
            file=start,
        )
    return encoder_of(encoder), analyzer


def _calm(network: Any, corpus: TokenCorpus, terms: int) -> None:
    """Leave a head that has learnt to name words with few active terms, judged by the first documents."""
    from vizsla.networks import packed
    from vizsla.training.dev import framed

    device = next(network.parameters()).device
    network.calm(packed(*framed(corpus, range(min(len(corpus), 256)), device, longest=128), 1 << 14).chunks, terms)


def write_model(network: Any, analyzer: Analyzer, corpus: TokenCorpus, folder: Path, name: str) -> None:
    """A trained network as a model in a folder: in 8 bits to be searched with, and in floats as others open it."""
    import torch

    from vizsla.networks import Pooled, packed
    from vizsla.networks.layout import save_layout
    from vizsla.training.dev import framed

    network = network.cpu().eval()
    length = network.encoder.config.max_position_embeddings
    chosen = np.linspace(0, len(corpus) - 1, min(len(corpus), _SAMPLE)).astype(int)
    sample = [[101, *corpus[i][: length - 2].tolist(), 102] for i in chosen]
    if isinstance(network, Pooled):
        written = place_network(network, folder, most=1.0, length=length, sample=sample, pooling=network.pooling)
        Dense(written, analyzer, network.normalised, namespace=name, name=name).save(folder)
        save_layout(network, analyzer.tokenizer.content, folder)  # type: ignore[attr-defined]
        return
    with torch.inference_mode():
        batch = packed(*framed(corpus, chosen, "cpu", longest=length), 1 << 14)
        most = max(float(network(chunk).max()) for chunk in batch.chunks)
    if not most > 0:
        raise VizslaError("the network gives no weights any more; train with a lower rate, as in --set rate=1e-5")
    written = place_network(network, folder, most=_ROOM * most, length=length, sample=sample)
    Learned(written, analyzer, namespace=name, name=name).save(folder)
    save_layout(network, analyzer.tokenizer.content, folder)  # type: ignore[attr-defined]


def _whole(name: str, text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise VizslaError(f"{text!r} is no number for {name}; expected 1 or more")
    return int(text)


def _changed(name: str, text: str) -> dict[str, Any]:
    """One option of an augmenter, of the kind it has."""
    from vizsla.recipes.augmentation import Augmentation
    from vizsla.training.settings import read_setting

    known = {n: type(getattr(Augmentation(), n)) for n in Augmentation.__dataclass_fields__}
    if name not in known:
        raise UnknownNameError("option of an augmenter", name, tuple(known))
    return {name: read_setting(text, known[name], name)}


def _number(name: str, text: str) -> float | int:
    try:
        return int(text) if name in ("span", "least", "start", "end") else float(text)
    except ValueError:
        raise VizslaError(f"{text!r} is no number for {name}") from None
