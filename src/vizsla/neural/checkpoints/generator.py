"""Third-party generators: a causal or seq2seq transformers checkpoint with its tokenizer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.cache import digest
from vizsla.errors import InputError, UnknownNameError
from vizsla.lazy import cached_property
from vizsla.neural.checkpoints.checkpoint import find_checkpoint
from vizsla.neural.checkpoints.published import find_published
from vizsla.neural.checkpoints.sentence import read_json
from vizsla.neural.checkpoints.sentencepiece import SPIECE, tokenizer_file
from vizsla.neural.checkpoints.transformer import brings_code
from vizsla.neural.onnx_generator import FILES
from vizsla.neural.weights import weight_files
from vizsla.plain_data import DescriptionError, fields_from_data
from vizsla.text.tokenizers import tokenizers_library

ABOUT = "generator.json"
NGRAMS = "ngrams"
TASKS = {
    "query": "a query that a passage answers",
    "answer": "the answer to a question",
    "sentence": "a sentence that answers a question",
    "title": "titles of passages that answer a question",
    NGRAMS: "n-grams of passages that answer a question, and their titles",
}
"""What generators write."""
_PROMPTS = {
    "query": "\nQuery:", "answer": "\nAnswer:", "sentence": "\nSentence:", "title": "\nTitle:", NGRAMS: "\nPassage:",
}  # fmt: skip
TITLE_PROMPT = _PROMPTS["title"]
"""What a generator of n-grams reads after a question to write a title."""
_SEQ2SEQ = ("ForConditionalGeneration", "EncoderDecoderModel", "ForSeq2SeqLM")
_CAUSAL = ("ForCausalLM", "LMHeadModel")
_LENGTH = 512  # tokens of an input that are read if no file says how many
_TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class GeneratorSettings:
    """What a generator writes, how many tokens of an input it reads, and the prompt after the input.

    Causal generators have a prompt, and those of n-grams, which write two kinds of text.
    """

    task: str = "query"
    length: int = _LENGTH
    prompt: str = ""
    name: str = ""

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise UnknownNameError("task of a generator", self.task, tuple(TASKS))


@dataclass(frozen=True, eq=False)
class GeneratorCheckpoint:
    """What is known of a generator from its files, before any weights are read."""

    folder: Path
    config: dict[str, Any]
    seq2seq: bool
    settings: GeneratorSettings

    @classmethod
    def read(cls, which: str | Path) -> GeneratorCheckpoint:
        """A generator from its folder, or by its name on the model hub."""
        folder = find_checkpoint(which)
        if (folder / "model.json").is_file():
            raise InputError("this is a model that searches, not a generator", file=str(folder))
        config = read_json(folder / "config.json")
        brings_code(folder)
        checkpoint = cls.of(folder, config, _is_seq2seq(config, folder))
        entry = find_published(str(which), "generator")
        if entry is None or (folder / ABOUT).is_file():
            return checkpoint
        return replace(checkpoint, settings=replace(checkpoint.settings, name=entry.name, **entry.settings))

    @classmethod
    def of(cls, folder: Path, config: dict[str, Any], seq2seq: bool) -> GeneratorCheckpoint:
        """A generator of this configuration, with the tokenizer of a folder."""
        if not tokenizer_file(folder).is_file():
            raise InputError(
                f"there is no {_TOKENIZER} here, and no {SPIECE}; save it with transformers' save_pretrained",
                file=str(folder),
            )
        return cls(folder, config, seq2seq, _settings(folder, seq2seq))

    def with_task(self, task: str, length: int, name: str) -> GeneratorCheckpoint:
        """The same checkpoint for another task."""
        prompt = "" if self.seq2seq and task != NGRAMS else _PROMPTS[task]
        return replace(self, settings=GeneratorSettings(task, length, prompt, name))

    @property
    def is_quantised(self) -> bool:
        """Whether the folder has the network in 8 bits, for onnxruntime; it may have it in floats as well."""
        return (self.folder / ABOUT).is_file() and any((self.folder / name).is_file() for name in FILES)

    @cached_property
    def digest(self) -> str:
        """A hash of weights, tokenizer and settings."""
        weights = self._network_files if self.is_quantised else weight_files(self.folder)
        files = [*weights, self.tokens_file, self.folder / "config.json"]
        identity = json.dumps([digest(self.folder, files), asdict(replace(self.settings, name=""))])
        return hashlib.sha256(identity.encode()).hexdigest()

    @property
    def tokens_file(self) -> Path:
        """The file that the tokenizer comes from."""
        return self.folder / (_TOKENIZER if (self.folder / _TOKENIZER).is_file() else SPIECE)

    @property
    def _network_files(self) -> list[Path]:
        """Those of a network in 8 bits."""
        for name in FILES:
            if not (self.folder / name).is_file():
                raise InputError(f"there is no network here (no {name})", file=str(self.folder))
        return [self.folder / name for name in FILES]

    @cached_property
    def tokenizer(self) -> Any:
        """The tokenizer, of the library tokenizers."""
        file = tokenizer_file(self.folder)
        try:
            tokenizer = tokenizers_library().Tokenizer.from_file(str(file))
        except Exception as e:  # the library raises bare exceptions
            raise InputError(f"this is not a tokenizer ({e})", file=str(file)) from None
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return tokenizer

    @cached_property
    def ends(self) -> list[int]:
        """The tokens that end a text."""
        own = read_json(self.folder / "generation_config.json") if self._has_generation_config else {}
        for config in (self.config, own, self.config.get("decoder") or {}):
            ends = config.get("eos_token_id")
            if ends is not None:
                return [int(end) for end in (ends if isinstance(ends, list) else [ends])]
        raise InputError(
            "config.json names no eos_token_id, so no text of this generator would end", file=str(self.folder)
        )

    @property
    def start(self) -> int:
        """The token that the decoder of a seq2seq model begins with."""
        for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
            if self.config.get(name) is not None:
                return int(self.config[name])
        raise InputError("config.json names no decoder_start_token_id", file=str(self.folder))

    def save(self, folder: Path) -> None:
        """Write the tokenizer and the settings into another folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _TOKENIZER).write_bytes(tokenizer_file(self.folder).read_bytes())
        if (self.folder / "tokenizer_config.json").is_file():  # for transformers
            (folder / "tokenizer_config.json").write_bytes((self.folder / "tokenizer_config.json").read_bytes())
        (folder / ABOUT).write_text(json.dumps(asdict(self.settings), indent=2) + "\n", "utf-8")

    @property
    def _has_generation_config(self) -> bool:
        return (self.folder / "generation_config.json").is_file()

    @property
    def reads(self) -> int:
        """How many tokens of an input are read, not counting special tokens and the prompt."""
        return self.settings.length

    def inputs(self, texts: Sequence[str], *, titles: bool = False) -> list[np.ndarray]:
        """Inputs as token ids, cut to what is read, with special tokens and the prompt.

        `titles`: with the prompt of titles, for a generator of n-grams.
        """
        text = TITLE_PROMPT if titles and self.settings.task == NGRAMS else self.settings.prompt
        prompt = self.tokenizer.encode(text, add_special_tokens=False).ids
        before, after = self.frame
        rows = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [np.array([*before, *row.ids[: self.reads], *prompt, *after], np.int64) for row in rows]

    def token_counts(self, texts: Sequence[str]) -> np.ndarray:
        """The tokens of each input before it is cut."""
        rows = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return np.array([len(row.ids) for row in rows], np.int64)

    def targets(self, texts: Sequence[str], length: int) -> list[np.ndarray]:
        """The target texts as token ids, each with an end token."""
        return [np.array([*row[: length - 1], self.ends[0]], np.int64) for row in self.tokens(texts)]

    def tokens(self, texts: Sequence[str]) -> list[list[int]]:
        """Texts as the generator writes them: token ids without special tokens and end tokens."""
        ends = set(self.ends)
        return [[token for token in row.ids if token not in ends] for row in self._written(texts)]

    def placed_tokens(self, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
        """The same tokens, and from where to where in its text each of them is."""
        ends, space = set(self.ends), len(self._space)
        rows = [
            [(t, (max(a - space, 0), max(z - space, 0))) for t, (a, z) in zip(row.ids, row.offsets, strict=True)]
            for row in self._written(texts)
        ]
        kept = [[(token, place) for token, place in row if token not in ends] for row in rows]
        return [([token for token, _ in row], [place for _, place in row]) for row in kept]

    @property
    def _space(self) -> str:
        """What is before a text that is written."""
        return "" if self.seq2seq else " "

    def _written(self, texts: Sequence[str]) -> list[Any]:
        rows: list[Any] = self.tokenizer.encode_batch([self._space + t for t in texts], add_special_tokens=False)
        return rows

    def texts(self, tokens: Sequence[Sequence[int]]) -> list[str]:
        """Tokens as text on one line."""
        decoded = self.tokenizer.decode_batch([list(row) for row in tokens], skip_special_tokens=True)
        return [" ".join(text.split()) for text in decoded]

    @cached_property
    def frame(self) -> tuple[list[int], list[int]]:
        """The special tokens that the tokenizer puts before and after an input."""
        plain = self.tokenizer.encode("a", add_special_tokens=False).ids
        framed = self.tokenizer.encode("a", add_special_tokens=True).ids
        at = next(i for i in range(len(framed)) if framed[i : i + len(plain)] == plain)
        before, after = framed[:at], framed[at + len(plain) :]
        return before, after if self.seq2seq else []  # a causal model goes on writing


def _is_seq2seq(config: dict[str, Any], folder: Path) -> bool:
    names = [str(name) for name in config.get("architectures") or []]
    if any(name.endswith(_SEQ2SEQ) for name in names):
        return True
    if any(name.endswith(_CAUSAL) for name in names):
        return False
    kind = names[0] if names else config.get("model_type", "of an unknown kind")
    raise InputError(
        f"this checkpoint is neither seq2seq (T5, BART) nor causal (Llama, GPT-2), but {kind}", file=str(folder)
    )


def _settings(folder: Path, seq2seq: bool) -> GeneratorSettings:
    if not (folder / ABOUT).is_file():
        return GeneratorSettings(prompt="" if seq2seq else _PROMPTS["query"], name=folder.name)
    try:
        return GeneratorSettings(**fields_from_data(GeneratorSettings, read_json(folder / ABOUT)))
    except DescriptionError as e:
        raise InputError(f"this does not describe a generator ({e})", file=str(folder / ABOUT)) from None
