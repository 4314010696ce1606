"""Generators: doc2query and docT5query write queries for passages, GAR answers and SEAL n-grams for questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

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
from vizsla.neural.generation import Generator, new_model, open_model
from vizsla.neural.lazy_torch import torch
from vizsla.neural.weights import has_weights, read_checkpoint
from vizsla.scratch import GrowingArray
from vizsla.text.sentences import sentences_of
from vizsla.training.arrays.generation import GenerationDev, GenerationPairs
from vizsla.training.kind import TRAINED_KINDS, TrainedKind, TrainingData, TrainingInputs
from vizsla.training.loop.objectives import LikelihoodObjective, Objective
from vizsla.training.networks import Base
from vizsla.training.prepare.ngrams import ngram_pairs, relevant_passages, titles_of
from vizsla.training.prepare.writing import SAMPLE
from vizsla.training.settings import TrainingSettings, require_at_least, require_one_of, setting
from vizsla.training.sources.dev_set import numbered_folders
from vizsla.training.sources.texts import FIELDS
from vizsla.training.sources.token_corpus import GrowingCorpus, TokenCorpus

GAR_TASKS = ("answer", "sentence", "title")
_TEXTS = 5000  # pairs that are tokenized at once
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


_PAIRS = "pairs"
_DEV_PAIRS = 2000  # pairs of a data set on which the likelihood is measured
TEXT_PAIRS: dict[str, TextPairs] = {
    "query": passages_and_queries,
    **{task: partial(gar_pairs, task=task) for task in GAR_TASKS},
}
"""Where the pairs of each task come from."""


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


@TRAINED_KINDS.register(
    "generator",
    help="Writes queries for passages, or answers or n-grams for questions.",
    needs=("torch", "transformers", "onnx"),
)
class GeneratorKind(TrainedKind[GeneratorSettings]):
    """Trains a seq2seq or causal model to generate; the loss is over the target text only."""

    settings_class = GeneratorSettings

    @property
    def reads_datasets(self) -> bool:
        """It learns from judged queries."""
        return True

    @property
    def reads_corpus(self) -> bool:
        """A generator of queries also learns from documents with a field of generated queries."""
        return self.settings.data.task == "query"

    def check_inputs(self, inputs: TrainingInputs) -> None:
        """Refuse inputs without judged and without generated queries."""
        if not self.reads_corpus:
            super().check_inputs(inputs)
        elif not inputs.datasets and inputs.corpus is None:
            raise VizslaError(
                f"{self.name} learns from judged or generated queries; name a data set with --dataset, or documents "
                "with a field queries with --corpus"
            )

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
