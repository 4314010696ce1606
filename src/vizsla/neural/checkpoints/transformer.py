"""Encoders and masked-language models of transformers' in their folders, as models hold them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from vizsla.cache import digest
from vizsla.described import DescriptionError, fields_from_data, from_data
from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.neural.checkpoints.text_encoder import POOLINGS, SPLADE_POOLINGS, Layer, TokenizerOptions
from vizsla.neural.device import device_of_opening, on_gpu
from vizsla.neural.network import ABOUT
from vizsla.neural.once import once
from vizsla.neural.weights import weight_files
from vizsla.plain_data import parse_settings, read_object

TRUST = "VIZSLA_TRUST_CODE"
"""If this environment variable is yes, encoders may run the code that comes with them."""
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model", "bpe.codes")
_BESIDE = ("config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", "*.py")


@dataclass(frozen=True)
class Transformer:
    """Texts to vectors by any encoder, `pooling` and `layers` after it.

    `length`: how many tokens it reads. `width`: how many numbers a vector has. `base`: where in the folder the encoder
    lies. `lowercase`: texts are lower-cased first. `skip_prompt_tokens`: the tokens of the prompt are not pooled.
    `exact`: it runs in 32-bit floats on every device.
    """

    folder: Path = field(compare=False)
    digest: str
    pooling: tuple[str, ...] = ("mean",)
    layers: tuple[Layer, ...] = ()
    length: int = 512
    width: int = 0
    base: str = ""
    lowercase: bool = False
    skip_prompt_tokens: bool = False
    exact: bool = False
    device: str = field(default_factory=device_of_opening, compare=False, repr=False)
    """Where it runs; empty for the device of the process. It is not saved."""

    kind: ClassVar[str] = "dense"
    reads: ClassVar[str] = "texts"
    """What its file `network.json` calls it."""
    poolings: ClassVar[tuple[str, ...]] = POOLINGS

    @classmethod
    def of(cls, folder: Path, **settings: Any) -> Self:
        """A third-party encoder in a folder; its digest covers its files and these settings."""
        for name in settings["pooling"]:
            if name not in cls.poolings:
                raise UnknownNameError("pooling", name, cls.poolings)
        encoder = cls(folder, "", **settings)
        files = digest(folder, encoder.files())
        identity = json.dumps([files, encoder.settings()], sort_keys=True)
        return cls(folder, hashlib.sha256(identity.encode()).hexdigest(), **settings)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """The encoder that was saved in a folder."""
        try:
            about = parse_settings((folder / ABOUT).read_text("utf-8"))
            arguments = fields_from_data(cls, about, ("folder", "device"), reads="str", layers="list")
            del arguments["reads"]
            return cls(
                folder, **{**arguments, "layers": tuple(from_data(Layer, layer) for layer in arguments["layers"])}
            )
        except (ValueError, DescriptionError) as e:
            raise InputError(f"this does not describe an encoder ({e})", file=str(folder / ABOUT)) from None

    def settings(self) -> dict[str, Any]:
        """The settings as plain data."""
        return {name: value for name, value in asdict(self).items() if name not in ("folder", "digest", "device")}

    def files(self) -> list[Path]:
        """The files the encoder is made of."""
        place = self.folder / self.base
        tokens = [file for pattern in _TOKENIZERS for file in sorted(place.glob(pattern))]
        if not tokens:
            raise InputError("there is no tokenizer here (no tokenizer.json)", file=str(place))
        beside = [file for pattern in _BESIDE for file in sorted(place.glob(pattern))]
        files = weight_files(place) + tokens + beside
        for layer in self.layers:
            files += weight_files(self.folder / layer.place) if layer.place else []
        return list(dict.fromkeys(files))

    def save(self, folder: Path) -> str:
        """Copy the encoder into a folder; returns the name it has there."""
        name = self.digest[:12]
        target = folder / name
        if target.resolve() != self.folder.resolve():
            copies = [(file, target / file.relative_to(self.folder)) for file in self.files()]
            for file, copy in copies:
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, copy)
            about = {"reads": self.reads, "digest": self.digest, **self.settings()}
            (target / ABOUT).write_text(json.dumps(about, indent=2) + "\n", "utf-8")
            for copy in (*(copy for _, copy in copies), target / ABOUT):
                with copy.open("rb") as copied:
                    os.fsync(copied.fileno())
        return name

    def encode(self, texts: Sequence[str], options: TokenizerOptions) -> tuple[np.ndarray, np.ndarray]:
        """The vectors of the texts that have a known token, and [texts] which texts these are."""
        vectors, has_token = self.running.encode(texts, options)
        if len(vectors) and vectors.shape[1] != self.width:
            raise InputError(
                f"vectors of {self.width} numbers were expected, and this encoder makes {vectors.shape[1]}",
                file=str(self.folder),
            )
        return vectors, has_token

    @once
    def running(self) -> Any:
        """The encoder, opened by torch."""
        kind = read_object(self.folder / self.base / "config.json").get("model_type")
        need_torch(kind, self.folder)
        trusted = brings_code(self.folder / self.base)
        from vizsla.neural.checkpoints.text_encoder import TextEncoder

        return TextEncoder(
            self.folder, self.pooling, self.layers,
            base=self.base, lowercase=self.lowercase, skip_prompt_tokens=self.skip_prompt_tokens, trusted=trusted,
            exact=self.exact, device=self.device,
        )  # fmt: skip

    @property
    def vocabulary(self) -> list[str]:
        """The pieces of words that it reads."""
        return list(self.running.tokenizer.get_vocab())

    @property
    def runs_fast(self) -> bool:
        """Whether it runs on a GPU, and so takes many texts at once."""
        return on_gpu(self.device)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "running"}


def need_torch(kind: str | None, folder: Path) -> None:
    """Raise an error that says what to install to run an encoder that is not a plain BERT."""
    lacking = [name for name in ("torch", "transformers", "safetensors") if find_spec(name) is None]
    if lacking:
        raise VizslaError(
            f"{folder}: an encoder of the kind {kind} is run by torch and transformers; "
            f"install what is missing with: pip install {' '.join(lacking)}"
        )


def brings_code(place: Path) -> bool:
    """Whether an encoder comes with code of its own; an error unless that was allowed."""
    config = read_object(place / "config.json")
    if not any(name.startswith("AutoModel") for name in config.get("auto_map") or {}):
        return False
    if os.environ.get(TRUST) != "yes":
        raise InputError(
            f"this encoder runs code that comes with it, which is refused; if you trust it, set {TRUST}=yes",
            file=str(place),
        )
    return True


@dataclass(frozen=True)
class MaskedLanguage(Transformer):
    """Texts to weights of terms by any masked-language model. `width`: how many terms there are."""

    kind: ClassVar[str] = "splade"
    poolings: ClassVar[tuple[str, ...]] = SPLADE_POOLINGS

    @once
    def running(self) -> Any:
        """The model, opened by torch."""
        place = self.folder / self.base
        need_torch(read_object(place / "config.json").get("model_type"), self.folder)
        trusted = brings_code(place)
        from vizsla.neural.checkpoints.text_encoder import SparseTextEncoder

        return SparseTextEncoder(
            self.folder, self.pooling, base=self.base, trusted=trusted, exact=self.exact, device=self.device
        )

    def term_weights(
        self, texts: Sequence[str], options: TokenizerOptions
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Pointers, terms and weights of several texts, in CSR form."""
        terms, weights, pointers = self.running.encode(texts, options)
        return pointers, terms, weights

    @property
    def terms(self) -> list[str]:
        """The terms by number."""
        names: list[str] = self.running.terms
        return names

    def token_ids(self, texts: Sequence[str], length: int) -> list[list[int]]:
        """The tokens of texts without special tokens, at most `length` of each."""
        ids: list[list[int]] = self.running.tokens(texts, False, length)
        return ids
