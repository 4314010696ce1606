"""Encoders and masked-language models of transformers': their folders, as models hold them, and how torch runs them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from vizsla.cache import digest
from vizsla.errors import InputError, UnknownNameError, VizslaError
from vizsla.neural.device import device_of_opening, on_gpu, torch_device
from vizsla.neural.heads.splade import pooled_logits
from vizsla.neural.lazy_torch import Module, inference_mode, nn, torch
from vizsla.neural.network import ABOUT
from vizsla.neural.once import once
from vizsla.neural.onnx_network import batches
from vizsla.neural.torch_network import transformers
from vizsla.neural.weights import prefix_of, read_pickled, weight_files
from vizsla.plain_data import DescriptionError, fields_from_data, from_data, parse_settings, read_object

if TYPE_CHECKING:
    from torch import Tensor


POOLINGS = ("mean", "cls", "max", "lasttoken", "weightedmean", "mean_sqrt_len")
"""How the states of tokens become one vector: their mean, the first state, the maximum of each channel, the last state,
their mean weighted by position, their sum divided by the square root of their number."""
SPLADE_POOLINGS = ("max", "sum", "log1p")
"""How the logits of tokens become weights of terms: the highest or the sum of log(1 + ReLU(logit)); with log1p the
logarithm is taken twice."""
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid", "Softplus", "LeakyReLU", "ELU", "Softsign")


@dataclass(frozen=True)
class TokenizerOptions:
    """How queries, or documents, become tokens.

    `prompt`: put before each text. `length`: how many tokens are read. `special_tokens`: whether the tokenizer adds its
    special tokens. `pad_with_mask`: whether texts are padded to the length with the mask token. `token_types`: whether
    the text after the first separator gets the token type 1.
    """

    prompt: str = ""
    length: int = 512
    special_tokens: bool = True
    pad_with_mask: bool = False
    token_types: bool = False


@dataclass(frozen=True)
class Layer:
    """A layer after pooling: `linear`, with an activation, `norm`, a layer normalization, or `unit`, to a length of 1.

    `place`: the folder of its arrays inside the encoder's, empty for the encoder's own file. `name`: what their names
    begin with. `width`: how many numbers come out, 0 for as many as go in.
    """

    kind: str
    place: str = ""
    name: str = ""
    activation: str = "Identity"
    width: int = 0


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


def known(texts: Sequence[str], tokens: Callable[[Sequence[str]], list[list[int]]], unknown: int | None) -> np.ndarray:
    """[texts] which have a token that the tokenizer knows; any text with an ASCII letter or digit is assumed to.

    >>> known(["dog", "?", "x ⁂", "⁂⁂", ""], lambda some: [[7] if "?" in t else [0] * len(t) for t in some], 0).tolist()
    [True, True, True, False, False]
    """
    has_token = np.array([any(c.isascii() and c.isalnum() for c in text) for text in texts], bool)
    rest = np.flatnonzero(~has_token).tolist()
    if rest:
        has_token[rest] = [not {unknown}.issuperset(row) for row in tokens([texts[i].strip() for i in rest])]
    return has_token


TOKENS = 65_536, 2048
"""How many are encoded together by a GPU, and by the processor."""
_UNUSED = ("pooler.", "embeddings.position_ids")  # arrays that may be absent, as they are not used


class TextReader:
    """An encoder of transformers' in a folder, with its tokenizer.

    It runs in float32; on a GPU matrix products are computed in bfloat16, unless `exact`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        base: str = "",
        lowercase: bool = False,
        trusted: bool = False,
        exact: bool = False,
        device: str = "",
    ) -> None:
        self.folder, self.lowercase = folder, lowercase
        self._lock = threading.Lock()
        self.device = torch_device(device)
        self.short = self.device.type == "cuda" and not exact
        with quiet():
            self.tokenizer = _tokenizer(folder / base, trusted)
            self.tokens([""], True)  # removes the file's truncation and padding, so that no later call has to

    def open_model(self, place: Path, *, trusted: bool, masked_language: bool = False) -> dict[str, Tensor]:
        """Open the encoder, with its masked-language head if wanted; returns the arrays in its files."""
        with quiet():
            arrays = read_tensors(place)
            self.model = _model(place, arrays, trusted, masked_language).to(self.device).eval()
        return arrays

    def tokens(self, texts: Sequence[str], special_tokens: bool, length: int | None = None) -> list[list[int]]:
        """The tokens of texts, at most `length` of each.

        They are truncated here and not by the tokenizer, since enabling truncation would change a tokenizer that
        another thread may be using. A tokenizer written in Python is used by one thread at a time.
        """
        valid = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]
        read = [text.lower() for text in valid] if self.lowercase else valid
        with nullcontext() if self.tokenizer.is_fast else self._lock:
            encoding = self.tokenizer(
                read,
                add_special_tokens=special_tokens,
                truncation=False,
                return_special_tokens_mask=True,
                verbose=False,
            )
        rows: list[list[int]] = encoding["input_ids"]
        if length is None:
            return rows
        from_left = self.tokenizer.truncation_side == "left"
        pairs = zip(rows, encoding["special_tokens_mask"], strict=True)
        return [cut_tokens(row, special, length, from_left) if len(row) > length else row for row, special in pairs]

    def ids(self, texts: Sequence[str], options: TokenizerOptions) -> list[list[int]]:
        if not texts:
            return []
        rows = self.tokens([options.prompt + text for text in texts], options.special_tokens, options.length)
        if options.pad_with_mask:
            mask = self.tokenizer.mask_token_id
            if mask is None:
                raise InputError(
                    "texts cannot be padded with [MASK], since this tokenizer has no such token", file=str(self.folder)
                )
            rows = [row + [mask] * (options.length - len(row)) for row in rows]
        return rows

    def padded(self, rows: list[list[int]]) -> tuple[Tensor, Tensor]:
        """[texts, length] token ids and which of them are not padding."""
        longest = max(map(len, rows))
        padding = self.tokenizer.pad_token_id or 0
        ids = torch.tensor([row + [padding] * (longest - len(row)) for row in rows], device=self.device)
        sizes = torch.tensor([len(row) for row in rows], device=self.device)
        return ids, torch.arange(longest, device=self.device) < sizes[:, None]


def cut_tokens(row: list[int], special: list[int], length: int, from_left: bool = False) -> list[int]:
    """A text's tokens, cut at its end or its beginning to a length; the special tokens around it stay.

    >>> cut_tokens([101, 7, 8, 9, 102], [1, 0, 0, 0, 1], 4)
    [101, 7, 8, 102]
    >>> cut_tokens([101, 7, 8, 9, 102], [1, 0, 0, 0, 1], 3, from_left=True)
    [101, 9, 102]
    """
    own = [place for place, added in enumerate(special) if not added]
    many = len(row) - length
    dropped = set(own[:many] if from_left else own[-many:])
    return [token for place, token in enumerate(row) if place not in dropped]


_loudness = threading.Lock()  # one per process, so that no thread saves another thread's quiet level as the original


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and its warnings about arrays it does not need."""
    logging = transformers().utils.logging
    with _loudness:
        before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            yield
        finally:
            logging.set_verbosity(before)
            if bars:
                logging.enable_progress_bar()


def _reason(error: Exception) -> str:
    return " ".join((str(error) or type(error).__name__).split())[:200]


def _tokenizer(folder: Path, trusted: bool) -> Any:
    try:
        return transformers().AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)
    except Exception as e:  # of transformers, of tokenizers, and of libraries that some tokenizers need
        raise InputError(f"there is no tokenizer here that can be read ({_reason(e)})", file=str(folder)) from None


def read_tensors(folder: Path) -> dict[str, Tensor]:
    arrays: dict[str, Tensor] = {}
    for file in weight_files(folder):
        arrays |= _read(file)
    return arrays


def _read(file: Path) -> dict[str, Tensor]:
    if file.suffix != ".safetensors":
        return read_pickled(file)
    from safetensors.torch import load_file

    try:
        return load_file(file)
    except Exception as e:  # the library has its own, and those of the system
        raise InputError(f"this is not a weight file, or it is damaged ({_reason(e)})", file=str(file)) from None


def _model(folder: Path, arrays: dict[str, Tensor], trusted: bool, masked_language: bool) -> Any:
    """The encoder, with the arrays under whatever names it has in the file."""
    library = transformers()
    try:
        config = _config(folder, trusted)
        encodes = config.model_type in library.models.auto.modeling_auto.MODEL_FOR_TEXT_ENCODING_MAPPING_NAMES
        maker = library.AutoModelForTextEncoding if encodes else library.AutoModel
        if masked_language:
            maker = library.AutoModelForMaskedLM
        with torch.device("meta"):
            empty = maker.from_config(config, trust_remote_code=trusted)
    except Exception as e:  # anything may be wrong with a configuration
        raise InputError(f"this does not describe an encoder ({_reason(e)})", file=str(folder)) from None
    prefix = prefix_of(arrays, empty.state_dict())
    plain = {name.removeprefix(prefix): value for name, value in arrays.items() if name.startswith(prefix)}
    try:
        model, loading = type(empty).from_pretrained(
            None, config=config, state_dict=plain, output_loading_info=True, ignore_mismatched_sizes=True,
            dtype=torch.float32,
        )  # fmt: skip
    except Exception as e:
        raise InputError(f"these weights do not fit the encoder ({_reason(e)})", file=str(folder)) from None
    lacking = sorted(name for name in loading["missing_keys"] if not name.startswith(_UNUSED))
    other = sorted(entry[0] if isinstance(entry, tuple) else entry for entry in loading["mismatched_keys"])
    if lacking or other:
        what = f"{lacking[0]} is missing" if lacking else f"{other[0]} has another shape"
        raise InputError(f"these weights do not fit config.json ({what})", file=str(folder))
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise InputError(f"some weights are no numbers (in {name})", file=str(folder))
    return model


def _config(folder: Path, trusted: bool) -> Any:
    """The configuration; that of DPR is BERT's under another name."""
    library = transformers()
    content = read_object(folder / "config.json")
    if content.get("model_type") == "dpr":
        return library.BertConfig(**{name: value for name, value in content.items() if name != "model_type"})
    return library.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=trusted)


class TextEncoder(TextReader):
    """An encoder in a folder: its tokenizer, its network, its pooling, and the layers after that.

    It runs in float32; on a GPU matrix products are computed in bfloat16, unless `exact`.
    """

    def __init__(
        self,
        folder: Path,
        pooling: Sequence[str],
        layers: Sequence[Layer] = (),
        *,
        base: str = "",
        lowercase: bool = False,
        skip_prompt_tokens: bool = False,
        trusted: bool = False,
        exact: bool = False,
        device: str = "",
    ) -> None:
        super().__init__(folder, base=base, lowercase=lowercase, trusted=trusted, exact=exact, device=device)
        self.pooling, self.skip_prompt_tokens = tuple(pooling), skip_prompt_tokens
        arrays = self.open_model(folder / base, trusted=trusted)
        self.layers = nn.Sequential(*(_layer(folder, layer, arrays) for layer in layers)).to(self.device).eval()
        try:
            self.layers(torch.zeros(1, self.model.config.hidden_size * len(self.pooling), device=self.device))
        except RuntimeError:
            raise InputError("a layer after the encoder does not fit the layer before it", file=str(folder)) from None

    @inference_mode
    def encode(self, texts: Sequence[str], options: TokenizerOptions) -> tuple[np.ndarray, np.ndarray]:
        """[texts, width] the vectors, and [texts] which have a known token; others have no vector."""
        has_token = known(texts, lambda some: self.tokens(some, False), self.tokenizer.unk_token_id)
        rows = self.ids([text for text, can in zip(texts, has_token.tolist(), strict=True) if can], options)
        skipped = self._prompt_tokens(options) if self.skip_prompt_tokens and options.prompt else 0
        order = batches(np.array([len(row) for row in rows], np.int64), TOKENS[self.device.type == "cpu"])
        pooled = [self._vectors([rows[i] for i in chosen.tolist()], options, skipped).float().cpu() for chosen in order]
        if not pooled:
            return np.zeros((0, 0), np.float32), has_token
        sorted_vectors = torch.cat(pooled).numpy()
        vectors = np.empty_like(sorted_vectors)
        vectors[np.concatenate(order)] = sorted_vectors
        return vectors, has_token

    def _prompt_tokens(self, options: TokenizerOptions) -> int:
        """How many tokens a prompt takes, including special tokens before it but not those that end a text."""
        (row,) = self.tokens([options.prompt], options.special_tokens)
        special = {self.tokenizer.sep_token_id, self.tokenizer.eos_token_id} if options.special_tokens else set()
        return len(row) - (len(row) > 0 and row[-1] in special)

    def _vectors(self, rows: list[list[int]], options: TokenizerOptions, skipped: int) -> Tensor:
        ids, mask = self.padded(rows)
        inputs = {"input_ids": ids, "attention_mask": mask.long()}
        if options.token_types:
            ends = (ids == self.tokenizer.sep_token_id).long()
            inputs["token_type_ids"] = ((ends.cumsum(1) - ends) > 0).long() * mask
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.short):
            states = self.model(**inputs).last_hidden_state.float()
        counted = mask & (torch.arange(ids.shape[1], device=self.device) >= skipped)
        pooled: Tensor = self.layers(torch.cat([pool(states, counted, how) for how in self.pooling], 1))
        return pooled


def pool(states: Tensor, counted: Tensor, how: str) -> Tensor:
    """[texts, hidden] from [texts, tokens, hidden] and which tokens count."""
    places = torch.arange(states.shape[1], device=states.device)
    if how in ("cls", "lasttoken"):
        outside = states.shape[1] if how == "cls" else -1
        at = torch.where(counted, places, outside)
        chosen = at.amin(1) if how == "cls" else at.amax(1)
        return states[torch.arange(len(states), device=states.device), chosen.clamp(0, states.shape[1] - 1)]
    if how == "max":
        return states.masked_fill(~counted[:, :, None], -torch.inf).amax(1)
    weights = counted * (places + 1) if how == "weightedmean" else counted
    weights = weights[:, :, None].to(states.dtype)
    sums, counts = (states * weights).sum(1), weights.sum(1).clamp(min=1e-9)
    return sums / (counts.sqrt() if how == "mean_sqrt_len" else counts)


class _Unit(Module):
    def forward(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=1)


def _layer(folder: Path, layer: Layer, arrays: dict[str, Tensor]) -> nn.Module:
    if layer.kind == "unit":
        return _Unit()
    place = folder / layer.place
    own = read_tensors(place) if layer.place else arrays
    parameters = {}
    for what in ("weight", "bias"):
        ending = f"{layer.name}.{what}"
        names = [name for name in own if name == ending or name.endswith(f".{ending}")]
        parameters[what] = own[names[0]].float() if names else None
    weight, bias = parameters["weight"], parameters["bias"]
    if weight is None:
        raise InputError(f"the weights of a layer are missing ({layer.name}.weight)", file=str(place))
    if not all(torch.isfinite(values).all() for values in parameters.values() if values is not None):
        raise InputError(f"some weights are no numbers (in {layer.name})", file=str(place))
    module: nn.Module
    if layer.kind == "norm":
        module = nn.LayerNorm(len(weight), bias=bias is not None)
    else:
        module = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    module.load_state_dict({name: values for name, values in parameters.items() if values is not None})
    return nn.Sequential(module, getattr(nn, layer.activation)())


def layer_width(folder: Path, layer: Layer) -> Layer:
    """A layer with its width, read from the encoder's weight file."""
    ending = f"{layer.name}.weight"
    shape = next((v.shape for n, v in read_tensors(folder).items() if n == ending or n.endswith(f".{ending}")), None)
    if shape is None:
        raise InputError(f"the weights of a layer are missing ({ending})", file=str(folder))
    return replace(layer, width=shape[0])


class SparseTextEncoder(TextReader):
    """A masked-language model in a folder, its tokenizer, and how logits become weights: see `SPLADE_POOLINGS`."""

    def __init__(
        self,
        folder: Path,
        pooling: Sequence[str],
        *,
        base: str = "",
        trusted: bool = False,
        exact: bool = False,
        device: str = "",
    ) -> None:
        super().__init__(folder, base=base, trusted=trusted, exact=exact, device=device)
        self.open_model(folder / base, trusted=trusted, masked_language=True)
        self.pooling = tuple(pooling)
        names = self.tokenizer.convert_ids_to_tokens(range(min(len(self.tokenizer), self.model.config.vocab_size)))
        rest = range(len(names), self.model.config.vocab_size)  # rows of the table without a token
        self.terms: list[str] = [*names, *(f"[row {number}]" for number in rest)]

    @inference_mode
    def encode(self, texts: Sequence[str], options: TokenizerOptions) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Terms, their weights, and where each text's begin; texts without a known token have none."""
        has_token = known(texts, lambda some: self.tokens(some, False), self.tokenizer.unk_token_id)
        places = np.flatnonzero(has_token).tolist()
        rows = self.ids([texts[place] for place in places], options)
        terms, weights = ([np.zeros(0, kind)] * len(texts) for kind in (np.int64, np.float32))
        for chosen in batches(np.array([len(row) for row in rows], np.int64), TOKENS[self.device.type == "cpu"] // 4):
            vectors = self._vectors([rows[i] for i in chosen.tolist()]).float().cpu().numpy()
            for row, vector in zip(chosen.tolist(), vectors, strict=True):
                terms[places[row]] = np.flatnonzero(vector)
                weights[places[row]] = vector[terms[places[row]]]
        starts = np.cumsum([0, *map(len, terms)], dtype=np.int64)
        empty = np.zeros(0, np.int64), np.zeros(0, np.float32)
        return np.concatenate([empty[0], *terms]), np.concatenate([empty[1], *weights]), starts

    def _vectors(self, rows: list[list[int]]) -> Tensor:
        ids, mask = self.padded(rows)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.short):
            logits = self.model(input_ids=ids, attention_mask=mask.long()).logits.float()
        return pooled_logits(logits * mask[:, :, None], self.pooling)
