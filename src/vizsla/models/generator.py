"""Text generators: they read a passage and write queries for it, or read a question and write what may answer it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.models.learned_sparse import SHIPPED
from vizsla.neural.beams import Rule, Written, beam_search
from vizsla.neural.checkpoints.bart import is_plain_bart, read_quantised, write_quantised
from vizsla.neural.checkpoints.generator import NGRAMS, GeneratorCheckpoint
from vizsla.neural.checkpoints.packages import own_package
from vizsla.neural.device import Place, device_of_opening, opening_on, place_of
from vizsla.neural.once import once
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.weights import read_checkpoint

S = TypeVar("S")
SHIPPED_GENERATOR = "doc2query-small"
"""The name of Vizsla's own generator, in a checkout and in its own package."""
_PACKAGE = own_package(SHIPPED_GENERATOR, "doc2query", "30 MB")


@dataclass(frozen=True)
class Sampling:
    """How texts are drawn: `texts` of them for each input, each token from the likeliest ones.

    `top_k`: how many tokens can be drawn; 0 is no limit. `top_p`: the share of probability they have together.
    `temperature`: below 1 prefers likely tokens more; 0 always takes the likeliest, so there is one text.
    `max_tokens`: the longest text. The same `seed` gives the same texts.

    >>> Sampling(texts=3, temperature=0)
    Traceback (most recent call last):
    ...
    vizsla.errors.VizslaError: a temperature of 0 gives the same text 3 times; ask for one text
    """

    texts: int = 40
    top_k: int = 10
    top_p: float = 1.0
    temperature: float = 1.0
    max_tokens: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        if self.texts < 1 or self.max_tokens < 1 or self.top_k < 0:
            raise VizslaError("a generator writes 1 or more texts of 1 or more tokens, and top_k is 0 or more")
        if not 0 < self.top_p <= 1 or not 0 <= self.temperature < np.inf:
            raise VizslaError(
                f"top_p is above 0 and at most 1, and temperature is 0 or more, not {self.top_p} and {self.temperature}"
            )
        if self.temperature == 0 and self.texts > 1:
            raise VizslaError(f"a temperature of 0 gives the same text {self.texts} times; ask for one text")

    def uniform(self, keys: Sequence[str]) -> np.ndarray:
        """[keys, texts, tokens] random numbers from 0 to 1; those of a key do not depend on the other keys.

        >>> sampling = Sampling(texts=2, max_tokens=3)
        >>> bool((sampling.uniform(["a", "b"])[1] == sampling.uniform(["b"])[0]).all())
        True
        """
        shape = (self.texts, self.max_tokens)
        seeds = [int.from_bytes(blake2b(f"{self.seed}:{key}".encode(), digest_size=16).digest(), "big") for key in keys]
        rows = [np.random.Generator(np.random.Philox(key=seed)).random(shape, np.float32) for seed in seeds]
        return np.stack(rows) if rows else np.zeros((0, *shape), np.float32)


class TextGenerator(ABC):
    """Reads texts and writes others. `open_generator` opens one.

    `task` says what it writes: `query` for a passage, or `answer`, `sentence`, `title` or `ngrams` for a question.
    `length` is how many tokens of an input it reads. `digest` is a hash of its weights and settings.
    """

    task: str
    name: str
    digest: str
    length: int

    @abstractmethod
    def generate(
        self, texts: Sequence[str], sampling: Sampling | None = None, keys: Sequence[str] | None = None
    ) -> list[list[str]]:
        """Some texts for each input.

        `keys`: seeds of the random numbers, one per input, such as a document's id; by default its position. The same
        inputs with the same keys and sampling give the same texts. Other inputs in the same call can change how scores
        are rounded, and thereby a text: to reproduce texts exactly, make the same calls.
        """

    @property
    def writes_ngrams(self) -> bool:
        """Whether it writes what may be in a passage for a question."""
        return self.task in ("answer", "sentence", NGRAMS)

    @property
    def writes_titles(self) -> bool:
        """Whether it writes titles of passages for a question."""
        return self.task in ("title", NGRAMS)

    def search(
        self,
        texts: Sequence[str],  # noqa: ARG002 (a generator need not be able to do this)
        rule: Rule[S],  # noqa: ARG002
        beam: int,  # noqa: ARG002
        steps: int,  # noqa: ARG002
        *,
        titles: bool = False,  # noqa: ARG002
    ) -> list[list[Written[S]]]:
        """For each input every text of up to `steps` tokens that was among the best `beam` of its length.

        `rule`: which tokens may follow. `titles`: titles are to be written, by a generator of n-grams and titles.
        """
        raise VizslaError(f"{self.name} does not write texts token by token under a rule, which seal needs")

    @abstractmethod
    def token_counts(self, texts: Sequence[str]) -> np.ndarray:
        """The tokens of each input; those after the first `length` are not read."""


class CheckpointGenerator(TextGenerator):
    """A causal or seq2seq transformers checkpoint, run by torch, or without a GPU in 8 bits by onnxruntime."""

    def __init__(self, checkpoint: GeneratorCheckpoint) -> None:
        self.checkpoint, self.device = checkpoint, device_of_opening()
        self.task, self.name = checkpoint.settings.task, checkpoint.settings.name
        self.digest, self.length = checkpoint.digest, checkpoint.reads

    def generate(
        self, texts: Sequence[str], sampling: Sampling | None = None, keys: Sequence[str] | None = None
    ) -> list[list[str]]:
        sampling = sampling or Sampling()
        keys = [str(i) for i in range(len(texts))] if keys is None else keys
        tokens = self.running.generate(
            self.checkpoint.inputs(texts), sampling.uniform(keys),
            top_k=sampling.top_k, top_p=sampling.top_p, temperature=sampling.temperature,
        )  # fmt: skip
        return [self.checkpoint.texts(rows) for rows in tokens]

    def search(
        self, texts: Sequence[str], rule: Rule[S], beam: int, steps: int, *, titles: bool = False
    ) -> list[list[Written[S]]]:
        inputs, together = self.checkpoint.inputs(texts, titles=titles), self.running.together(beam)
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i]))
        written: list[list[Written[S]]] = [[] for _ in inputs]
        for a in range(0, len(order), together):
            some = order[a : a + together]
            states = self.running.beams([inputs[i] for i in some], beam, steps)
            for i, found in zip(some, beam_search(states, len(some), rule, beam, steps), strict=True):
                written[i] = found
        return written

    def token_counts(self, texts: Sequence[str]) -> np.ndarray:
        return self.checkpoint.token_counts(texts)

    @once
    def running(self) -> Any:
        """The network, opened by onnxruntime or by torch."""
        checkpoint = self.checkpoint
        if checkpoint.is_quantised and self._place().runtime == "onnx":
            from vizsla.neural.onnx_generator import OnnxGenerator

            return OnnxGenerator(checkpoint.folder, checkpoint.start, checkpoint.ends)
        lacking = [name for name in ("torch", "transformers", "safetensors") if find_spec(name) is None]
        if lacking:
            raise VizslaError(
                f"{checkpoint.folder}: torch and transformers run this generator; install what is missing with: "
                f"pip install {' '.join(lacking)}"
            )
        from vizsla.neural.torch_generator import TorchGenerator, new_model, open_model

        if checkpoint.is_quantised:
            model = new_model(checkpoint.config, read_quantised(checkpoint))
        else:
            model = open_model(checkpoint.folder, checkpoint.seq2seq)
        return TorchGenerator(model, checkpoint.seq2seq, checkpoint.ends, self.device)

    def _place(self) -> Place:
        """Where it runs; onnxruntime writes texts in 8 bits, and so on the processor alone."""
        place = place_of(self.device)
        if place.runtime == "onnx" and place.device.is_gpu:
            raise VizslaError(
                f"{self.checkpoint.folder}: this generator is in 8 bits, which onnxruntime runs on processors only; "
                f"install torch to run it on {place.device}, or name cpu"
            )
        return place

    def __repr__(self) -> str:
        return f"<generator {self.name}: writes {self.task}, reads {self.length} tokens>"


def open_generator(which: str | Path = SHIPPED_GENERATOR, *, device: str | None = None) -> TextGenerator:
    """A generator by its folder, or by its name on the model hub: a checkpoint of T5, BART, Llama and the like.

    `device`: where it runs, as in cpu or cuda:1; by default the device of the process, see `vizsla.use_device`.

    >>> open_generator("/no/such/folder")
    Traceback (most recent call last):
    ...
    vizsla.errors.InputError: /no/such/folder: this folder does not exist
    """
    with opening_on(device):
        return CheckpointGenerator(GeneratorCheckpoint.read(generator_folder(which)))


def generator_folder(which: str | Path) -> str | Path:
    """The folder of a generator: that of Vizsla's own if it is named, else the given folder or name."""
    if str(which) != SHIPPED_GENERATOR or Path(which).is_dir():
        return which
    if (SHIPPED / SHIPPED_GENERATOR).is_dir():
        return SHIPPED / SHIPPED_GENERATOR
    if (installed := _PACKAGE.path()) is not None:
        return installed
    raise VizslaError(
        f"the weights of {SHIPPED_GENERATOR} are not installed; get them ({_PACKAGE.size}) with: {_PACKAGE.install}, "
        "or name another generator by its folder"
    )


def export_generator(
    which: str | Path, folder: str | Path, *, sample: Sequence[str] = (), precision: Precision = "int8"
) -> None:
    """Write a BART in 8 bits into a folder of its own, from which it runs without torch.

    `which`: the folder or name of a checkpoint in floats. `sample`: some input texts to calibrate the quantisation
    with; thirty are enough. By default random ones are used.
    """
    checkpoint = GeneratorCheckpoint.read(which)
    if not is_plain_bart(checkpoint.config):
        raise InputError("only a BART with gelu and one table of words runs without torch", file=str(which))
    arrays, inputs = read_checkpoint(checkpoint.folder), [ids.tolist() for ids in checkpoint.inputs(sample)]
    output = Path(folder)
    checkpoint.save(output)
    (output / "config.json").write_bytes((checkpoint.folder / "config.json").read_bytes())
    write_quantised(checkpoint, arrays, output, inputs, precision)
