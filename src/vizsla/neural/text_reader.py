"""Texts to token ids by an encoder's own tokenizer, and the encoder itself, opened from its folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vizsla.errors import InputError
from vizsla.neural.arrays import prefix_of, read_pickled, weight_files
from vizsla.neural.inference import transformers
from vizsla.neural.text_options import TokenizerOptions
from vizsla.plain_data import read_object

TOKENS = {"cuda": 65_536, "cpu": 2048}
"""How many are encoded together."""
_UNUSED = ("pooler.", "embeddings.position_ids")  # arrays that may be absent: nothing is made from them


class TextReader:
    """An encoder of transformers' in a folder, with its tokenizer.

    It runs in 32-bit floats; on a GPU products are made in 16 bits, unless `exact`.
    """

    def __init__(
        self,
        folder: Path,
        *,
        base: str = "",
        lowercase: bool = False,
        trusted: bool = False,
        exact: bool = False,
    ) -> None:
        self.folder, self.lowercase = folder, lowercase
        self._lock = threading.Lock()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.short = self.device.type == "cuda" and not exact
        with quiet():
            self.tokenizer = _tokenizer(folder / base, trusted)
            self.tokens([""], True)  # takes off what its file says of cutting and padding: no later call changes it

    def open_model(self, place: Path, *, trusted: bool, masked_language: bool = False) -> dict[str, Tensor]:
        """Open the encoder, with its masked-language head if asked for; gives the arrays in its files."""
        with quiet():
            arrays = read_tensors(place)
            self.model = _model(place, arrays, trusted, masked_language).to(self.device).eval()
        return arrays

    def tokens(self, texts: Sequence[str], special_tokens: bool, length: int | None = None) -> list[list[int]]:
        """The tokens of texts, at most `length` of each.

        They are cut here: a tokenizer that cuts is one that was changed, and another thread may be using it. A
        tokenizer written in Python is used by one thread at a time.
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
        return [_cut(row, special, length, from_left) if len(row) > length else row for row, special in pairs]

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


def _cut(row: list[int], special: list[int], length: int, from_left: bool) -> list[int]:
    """A text's tokens, cut at its end or its beginning to a length; the special tokens around it stay.

    >>> _cut([101, 7, 8, 9, 102], [1, 0, 0, 0, 1], 4, False), _cut([101, 7, 8, 9, 102], [1, 0, 0, 0, 1], 3, True)
    ([101, 7, 8, 102], [101, 9, 102])
    """
    own = [place for place, added in enumerate(special) if not added]
    many = len(row) - length
    dropped = set(own[:many] if from_left else own[-many:])
    return [token for place, token in enumerate(row) if place not in dropped]


_loudness = threading.Lock()  # one for the whole process, so that nobody takes another's quiet for what was before


@contextmanager
def quiet() -> Iterator[None]:
    """Without what transformers says of arrays it does not need, and without its bars."""
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
        raise InputError(f"this is no file of weights, or a damaged one ({_reason(e)})", file=str(file)) from None


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
