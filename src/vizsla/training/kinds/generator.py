"""Generators: doc2query and docT5query write queries for passages, GAR answers and SEAL n-grams for questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vizsla.datasets import BeirDataset, Document
from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.evaluation.answers import has_answer
from vizsla.expansion.output import queries_of
from vizsla.lazy import cached_property
from vizsla.models import field_text
from vizsla.models.components import batches_of
from vizsla.models.generator import TextGenerator, generator_folder, open_generator
from vizsla.neural.checkpoints.bart import bart_checkpoint, is_plain_bart, read_quantised, start_arrays, write_quantised
from vizsla.neural.checkpoints.generator import NGRAMS, TASKS, GeneratorCheckpoint
from vizsla.neural.chunks import packed
from vizsla.neural.lazy_torch import no_grad, torch
from vizsla.neural.torch_generator import TARGET, Generator, new_model, open_model
from vizsla.neural.weights import has_weights, read_checkpoint
from vizsla.scratch import GrowingArray
from vizsla.text import Analyzer
from vizsla.text.sentences import sentences_of
from vizsla.training.kind import TRAINED_KINDS, TrainedKind, TrainingData, TrainingInputs
from vizsla.training.loop.objectives import Objective, Step
from vizsla.training.networks import SAMPLE, Base
from vizsla.training.settings import TrainingSettings, require_at_least, require_one_of, setting
from vizsla.training.sources.dev_set import Assemble, Encode, numbered_folders
from vizsla.training.sources.pairs import TrainingBatch, epoch_order
from vizsla.training.sources.token_corpus import FIELDS, GrowingCorpus, TokenCorpus

if TYPE_CHECKING:
    from torch import Tensor


GAR_TASKS = ("answer", "sentence", "title")


@dataclass(frozen=True)
class GeneratorNetwork:
    """The network of a generator."""

    base_model: str = setting("google-t5/t5-base", "seq2seq or causal checkpoint of transformers (folder or name)")
    decoder_layers: int = setting(0, "layers of a new decoder for a base_model that is a BERT; 0 for other base models")

    def __post_init__(self) -> None:
        require_at_least(self, "network", 0, "decoder_layers")


@dataclass(frozen=True)
class GeneratorData:
    """What is read and what is written."""

    task: str = setting(
        "query", "what is written: query for a passage; answer, sentence, title or ngrams for a question"
    )
    max_input_length: int = setting(512, "tokens of an input that are read")
    max_target_length: int = setting(64, "tokens of a text to write")
    ngrams: int = setting(10, "ngrams: how many of the relevant passages, and titles, a question learns at most")
    ngram_length: int = setting(10, "ngrams: tokens of an n-gram")

    def __post_init__(self) -> None:
        require_one_of("task", self.task, tuple(TASKS))
        require_at_least(self, "data", 1, "ngrams", "ngram_length")
        require_at_least(self, "data", 2, "max_input_length", "max_target_length")


@dataclass(frozen=True)
class GeneratorSettings:
    """The settings of a generator."""

    network: GeneratorNetwork = field(default_factory=GeneratorNetwork)
    data: GeneratorData = field(default_factory=GeneratorData)
    training: TrainingSettings = field(default_factory=TrainingSettings)


_INPUTS, _TARGETS, _ROWS, _NAME = "inputs", "targets", "rows.npy", "name.txt"


@dataclass(frozen=True, eq=False)
class GenerationPairs:
    """Texts to write, each with the number of its input. An epoch goes through all of them in a random order."""

    inputs: TokenCorpus
    targets: TokenCorpus
    rows: np.ndarray
    """[targets] which input each target belongs to."""
    name: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def first(self, count: int | None) -> GenerationPairs:
        """The first pairs, or all of them."""
        rows = self.rows[:count]
        inputs = self.inputs.chosen(np.arange(int(rows.max(initial=-1)) + 1))
        return GenerationPairs(inputs, self.targets.chosen(np.arange(len(rows))), rows, self.name)

    def batch(self, size: int, seed: int, step: int, device: torch.device) -> TrainingBatch:
        """`size` inputs, each followed by its target."""
        if size > len(self):
            raise VizslaError(
                f"a batch of {size:,} needs as many pairs, and there are {len(self):,}; use a smaller batch, as in "
                "--set training.batch_size=16"
            )
        epoch, place = divmod(step, len(self) // size)
        order = epoch_order(len(self), seed, epoch)
        return TrainingBatch([self.texts(order[place * size : (place + 1) * size], device)])

    def texts(self, chosen: np.ndarray, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets in one row each, targets marked; and the mask."""
        rows = [
            np.concatenate([self.inputs[self.rows[i]].astype(np.int64), self.targets[i].astype(np.int64) + TARGET])
            for i in chosen
        ]
        lengths = torch.tensor([len(row) for row in rows])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        flat = torch.from_numpy(np.concatenate(rows))
        return flat.new_zeros(mask.shape).masked_scatter_(mask, flat).to(device), mask.to(device)

    def save(self, folder: str | Path) -> None:
        """Write all arrays into a folder."""
        path = Path(folder)
        self.inputs.save(path / _INPUTS)
        self.targets.save(path / _TARGETS)
        np.save(path / _ROWS, self.rows, allow_pickle=False)
        (path / _NAME).write_text(self.name, "utf-8")

    @classmethod
    def open(cls, folder: str | Path) -> GenerationPairs:
        """Saved pairs, mapped into memory."""
        path = Path(folder)
        rows = np.load(path / _ROWS, allow_pickle=False)
        name = (path / _NAME).read_text("utf-8")
        return cls(TokenCorpus.open(path / _INPUTS), TokenCorpus.open(path / _TARGETS), rows, name)


_TEXTS = 5000  # pairs that are tokenized at once


def generation_pairs(
    texts: Iterable[tuple[str, str]], checkpoint: GeneratorCheckpoint, target_length: int, name: str = ""
) -> GenerationPairs:
    """Pairs as token ids; inputs that follow one another and are equal are kept once."""
    rows, inputs, targets = GrowingArray(np.int64), GrowingCorpus(np.uint32), GrowingCorpus(np.uint32)
    last: str | None = None
    for block in batches_of(texts, _TEXTS):
        new = np.array([source != before for before, source in pairwise([last, *(source for source, _ in block)])])
        rows.append(len(inputs) + np.cumsum(new) - 1)
        inputs.append_rows(
            checkpoint.inputs([source for (source, _), is_new in zip(block, new, strict=True) if is_new])
        )
        targets.append_rows(checkpoint.targets([target for _, target in block], target_length))
        last = block[-1][0]
    if not len(targets):
        raise VizslaError(f"{name}: there is no pair of an input and a text to write")
    return GenerationPairs(inputs.corpus().narrow(), targets.corpus().narrow(), rows.array(), name)


def concatenated(several: list[GenerationPairs]) -> GenerationPairs:
    """Pairs of several data sets as pairs of one."""
    before = np.cumsum([0, *(len(pairs.inputs) for pairs in several)])
    return GenerationPairs(
        TokenCorpus.concatenate([pairs.inputs for pairs in several]),
        TokenCorpus.concatenate([pairs.targets for pairs in several]),
        np.concatenate([pairs.rows + first for pairs, first in zip(several, before[:-1], strict=True)]),
    )


TextPairs = Callable[[BeirDataset, str], Iterator[tuple[str, str]]]
"""The inputs and targets of a split of a data set."""


def passages_and_queries(dataset: BeirDataset, split: str) -> Iterator[tuple[str, str]]:
    """Each passage that answers a judged query, with the query; the pairs of a passage follow one another."""
    qrels = dataset.qrels(split)
    queries = dataset.queries_of(qrels)
    answered: dict[str, list[str]] = {}
    for query in queries:
        for name, grade in qrels.judgements[query].items():
            if grade > 0:
                answered.setdefault(name, []).append(query)
    for document in dataset.documents():
        text = field_text(document.content, FIELDS)
        for query in answered.get(document.id, ()) if text.strip() else ():
            if queries[query].strip():
                yield text, queries[query]


def documents_and_queries(documents: Iterable[Document]) -> Iterator[tuple[str, str]]:
    """Each document with each of the queries that were generated for it."""
    for document in documents:
        text = field_text(document.content, FIELDS)
        for query in queries_of(document) if text.strip() else ():
            if query.strip():
                yield text, query


SEPARATOR = " *** "
"""The separator of titles, as in the texts that GAR's authors generated."""


def gar_pairs(dataset: BeirDataset, split: str, task: str) -> Iterator[tuple[str, str]]:
    """The questions of a split, each with the target of a generator for a task.

    `answer`: the first answer of the question (`metadata.answers`). `sentence`: the first sentence of a relevant
    passage that contains an answer. `title`: the titles of all relevant passages. Questions without one are left out.
    """
    if task not in GAR_TASKS:
        raise UnknownNameError("task of GAR", task, GAR_TASKS)
    qrels, answers = dataset.qrels(split), dataset.answers()
    questions = dataset.queries_of(qrels)
    if task != "title" and not any(answers.get(question) for question in questions):
        raise InputError(f"no question of {split} has answers (metadata.answers)", file=str(dataset.folder))
    if task == "answer":
        outputs = {question: _first_answer(answers.get(question, ())) for question in questions}
    else:
        outputs = _from_passages(dataset, task, split, questions, answers)
    for question, text in questions.items():
        if outputs.get(question):
            yield text, outputs[question]


def _first_answer(answers: Sequence[str]) -> str:
    return next((answer.strip() for answer in answers if answer.strip()), "")


def _from_passages(
    dataset: BeirDataset, task: str, split: str, questions: Mapping[str, str], answers: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """The target that each question's relevant passages yield."""
    return {
        question: SEPARATOR.join(titles_of(found)) if task == "title" else _sentence(found, answers.get(question, ()))
        for question, found in relevant_passages(dataset, split, questions).items()
    }


def _sentence(passages: Sequence[Document], answers: Sequence[str]) -> str:
    """The first sentence with an answer; nothing if none has one."""
    texts = (field_text(passage.content, ("text",)) for passage in passages)
    sentences = (sentence for text in texts for sentence in sentences_of(text))
    return next((" ".join(s.split()) for s in sentences if has_answer(s, answers)), "")


def relevant_passages(dataset: BeirDataset, split: str, questions: Iterable[str]) -> dict[str, list[Document]]:
    """The relevant passages of each question, those of the judgements first, then those of the hard negatives' file."""
    judged, named = dataset.qrels(split).judgements, dataset.hard_negatives(split)
    relevant = {}
    for question in questions:
        also = named[question].positives if question in named else ()
        relevant[question] = list(dict.fromkeys([*(d for d, grade in judged[question].items() if grade > 0), *also]))
    wanted = {passage for passages in relevant.values() for passage in passages}
    known = {document.id: document for document in dataset.documents() if document.id in wanted}
    return {question: [known[name] for name in names if name in known] for question, names in relevant.items()}


def titles_of(passages: Sequence[Document]) -> list[str]:
    """The titles of some passages, each once."""
    titles = (field_text(passage.content, ("title",)).strip() for passage in passages)
    return list(dict.fromkeys(title for title in titles if title))


_SHARED = Analyzer.parse("lucene-english")
"""Finds the words that a question shares with a passage; it drops stop words."""


def ngram_pairs(
    dataset: BeirDataset, split: str, checkpoint: GeneratorCheckpoint, *, ngrams: int, length: int, title_length: int,
    seed: int = 0,
) -> GenerationPairs:  # fmt: skip
    """The questions of a split, each with up to `ngrams` n-grams of its relevant passages and as many of their titles.

    An n-gram has `length` tokens and no end, since a search may go on after it; a title ends. N-grams are drawn, and
    one that has more of the question's words is drawn more often. Questions without either are left out.
    """
    rng, questions = np.random.default_rng(seed), dataset.queries_of(dataset.qrels(split))
    inputs, targets, rows = GrowingCorpus(np.uint32), GrowingCorpus(np.uint32), []
    for question, passages in relevant_passages(dataset, split, questions).items():
        text = questions[question]
        titles = checkpoint.targets(titles_of(passages)[:ngrams], title_length)
        drawn = drawn_ngrams(text, _passage_texts(passages), checkpoint, ngrams, length, rng)
        for some, are_titles in ((drawn, False), (titles, True)):
            if some and text.strip():
                rows += [len(inputs)] * len(some)
                inputs.append_rows(checkpoint.inputs([text], titles=are_titles))
                targets.append_rows(some)
    if not rows:
        raise VizslaError(f"{dataset.name}: no question of {split} has a relevant passage with a text or a title")
    return GenerationPairs(inputs.corpus().narrow(), targets.corpus().narrow(), np.array(rows, np.int64), dataset.name)


def _passage_texts(passages: Sequence[Document]) -> list[str]:
    texts = (field_text(passage.content, ("text",)).strip() for passage in passages)
    return [text for text in texts if text]


def drawn_ngrams(
    question: str, texts: Sequence[str], checkpoint: GeneratorCheckpoint, count: int, length: int,
    rng: np.random.Generator,
) -> list[np.ndarray]:  # fmt: skip
    """Up to `count` n-grams of some texts; each word that one shares with a question makes it e times as likely."""
    asked = set(_SHARED(question))
    ngrams: list[np.ndarray] = []
    shared: list[int] = []
    for text, (tokens, places) in zip(texts, checkpoint.placed_tokens(texts), strict=True):
        begins = np.zeros(len(text) + 2, np.int64)  # how many shared words begin before each character
        begins[1 + np.array([word.start for word in _SHARED.tokens(text) if word.term in asked], np.int64)] = 1
        begins = np.cumsum(begins)
        for first in range(max(len(tokens) - length + 1, min(len(tokens), 1))):
            ngrams.append(np.array(tokens[first : first + length], np.int64))
            shared.append(int(begins[places[first : first + length][-1][1]] - begins[places[first][0]]))
    keys = np.array(shared, np.float64) + rng.gumbel(size=len(shared))  # the highest are a weighted draw
    return [ngrams[i] for i in np.argsort(-keys, kind="stable")[:count].tolist()]


TEXT_PAIRS: dict[str, TextPairs] = {
    "query": passages_and_queries,
    **{task: partial(gar_pairs, task=task) for task in GAR_TASKS},
}
"""Where the pairs of each task come from."""
_TOKENS = 32_768  # of a dev set, read at once


@dataclass(frozen=True, eq=False)
class GenerationDev:
    """Pairs whose likelihood is measured during training."""

    pairs: GenerationPairs

    @property
    def name(self) -> str:
        """The data set's name."""
        return self.pairs.name

    @no_grad
    def figures(self, encode: Encode, assemble: Assemble, device: torch.device) -> dict[str, float]:
        """The probability of a token of the targets, as the geometric mean over all of them."""
        batch = packed(*self.pairs.texts(np.arange(len(self.pairs)), device), _TOKENS)
        loss, tokens, _ = assemble([encode(chunk) for chunk in batch.chunks], batch).sum(0).tolist()
        return {f"{self.name} likelihood": float(np.exp(-loss / tokens))}


@dataclass(frozen=True)
class LikelihoodObjective:
    """A generator must write each token of a text, given the tokens before it: cross-entropy over all tokens."""

    def __call__(self, step: Step, metrics: dict[str, Tensor]) -> Tensor:
        """The loss of a step; logs the share of target tokens that the network ranks first."""
        loss, tokens, right = step.vectors(0).sum(0)
        metrics["accuracy"] = (right / tokens).detach()
        mean: Tensor = loss / tokens.detach()
        return mean


_PAIRS = "pairs"
_DEV_PAIRS = 2000  # pairs of a data set on which the likelihood is measured


@TRAINED_KINDS.register(
    "generator",
    help="Writes queries for passages, or answers or n-grams for questions.",
    needs=("torch", "transformers", "onnx"),
)
class GeneratorKind(TrainedKind[GeneratorSettings]):
    """Trains a seq2seq or causal model to generate; the loss is over the target text only."""

    settings_class = GeneratorSettings

    @property
    def reads_corpus(self) -> bool:
        """A generator of queries also learns from documents with a field of generated queries."""
        return self.settings.data.task == "query"

    def check_inputs(self, inputs: TrainingInputs) -> None:
        """Refuse inputs without queries to learn from."""
        if self.reads_corpus:
            self.check_queries(inputs)
        else:
            super().check_inputs(inputs)

    @cached_property
    def checkpoint(self) -> GeneratorCheckpoint:
        """The checkpoint that training starts from, for the task of the settings."""
        data, network = self.settings.data, self.settings.network
        if network.decoder_layers:
            base = bart_checkpoint(network.base_model, network.decoder_layers)
            self._check_lengths(base)
        else:
            base = GeneratorCheckpoint.read(generator_folder(network.base_model))
        return base.with_task(data.task, data.max_input_length, self.name)

    def _check_lengths(self, base: GeneratorCheckpoint) -> None:
        """Refuse texts of more tokens than the encoder has positions."""
        data, positions = self.settings.data, base.config["max_position_embeddings"]
        if max(data.max_input_length + sum(map(len, base.frame)), data.max_target_length) > positions:
            raise VizslaError(
                f"{self.settings.network.base_model} reads and writes at most {positions} tokens, special ones "
                "included; lower data.max_input_length or data.max_target_length"
            )

    def load_base(self) -> Base:
        """The checkpoint's network, with a new decoder if it has none."""
        torch.manual_seed(self.settings.training.seed)
        checkpoint = self.checkpoint
        if self.settings.network.decoder_layers:
            model = new_model(checkpoint.config, start_arrays(checkpoint))
        elif checkpoint.is_quantised and not has_weights(checkpoint.folder):
            model = new_model(checkpoint.config, read_quantised(checkpoint))
        else:
            model = open_model(checkpoint.folder, checkpoint.seq2seq)
        return Base(Generator(model, checkpoint.seq2seq), checkpoint)

    def prepare(self, inputs: TrainingInputs, base: Base, folder: Path) -> None:  # noqa: ARG002
        """Pack train pairs, judged and generated ones together, and dev pairs."""
        pairs = [self._pairs(dataset, "train") for dataset in inputs.datasets]
        if self.reads_corpus and inputs.corpus is not None:
            written, length = documents_and_queries(inputs.corpus), self.settings.data.max_target_length
            pairs.append(generation_pairs(written, self.checkpoint, length, "the documents"))
        concatenated(pairs).save(folder / _PAIRS)
        for number, dataset in enumerate(inputs.dev):
            self._pairs(dataset, "dev", _DEV_PAIRS).save(folder / f"dev-{number}")

    def _pairs(self, dataset: BeirDataset, split: str, limit: int | None = None) -> GenerationPairs:
        """The pairs of a split as token ids, or the first of them."""
        data, training = self.settings.data, self.settings.training
        if data.task == NGRAMS:
            return ngram_pairs(
                dataset, split, self.checkpoint, ngrams=data.ngrams, length=data.ngram_length,
                title_length=data.max_target_length, seed=training.seed,
            ).first(limit)  # fmt: skip
        texts = islice(TEXT_PAIRS[data.task](dataset, split), limit)
        return generation_pairs(texts, self.checkpoint, data.max_target_length, dataset.name)

    def open_data(self, folder: Path) -> TrainingData:
        """The pairs and the dev sets."""
        dev = [GenerationDev(GenerationPairs.open(place)) for place in numbered_folders(folder, "dev")]
        return TrainingData(GenerationPairs.open(folder / _PAIRS), dev)

    def objective(self) -> Objective:
        """The likelihood of the target text."""
        return LikelihoodObjective()

    def write(self, network: Any, base: Base, folder: Path, output: Path) -> None:  # noqa: ARG002
        """Write the generator in transformers' layout, with its settings; a BART also in 8 bits."""
        self.checkpoint.save(output)
        network.cpu().model.save_pretrained(output)
        written = GeneratorCheckpoint.read(output)
        if is_plain_bart(written.config):
            inputs = GenerationPairs.open(folder / _PAIRS).inputs
            chosen = np.linspace(0, len(inputs) - 1, min(len(inputs), SAMPLE)).astype(int)
            write_quantised(written, read_checkpoint(output), output, [inputs[i].tolist() for i in chosen])

    def open_model(self, output: Path) -> TextGenerator:
        """The written generator."""
        return open_generator(output)

    def usage(self, output: Path) -> str:
        """A command that uses the generator."""
        if self.settings.data.task == "query":
            return f"vizsla queries generate SOURCE -o FILE --model {output}"
        if self.settings.data.task == NGRAMS:
            return f'vizsla index SOURCE -o DIR --model "seal(generator={output})"'
        return f'vizsla search DIR QUERY --expand "gar(generator={output})"'
