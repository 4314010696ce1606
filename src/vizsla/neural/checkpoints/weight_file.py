"""A single file of weights: DPR's .cp, the .ckpt of PyTorch Lightning, ColBERT's .dnn. One BERT, or two.

Such a file has neither a configuration nor a tokenizer. The configuration follows from the shapes of the arrays, and
the tokenizer from the size of the vocabulary; files beside it override both.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from vizsla.cache import cached_folder, file_digest
from vizsla.errors import InputError
from vizsla.neural.checkpoints.tokenizers import uncased_pieces
from vizsla.neural.checkpoints.writing import bert_config_of, modules_data, write_json
from vizsla.neural.weights import file_floats, write_arrays
from vizsla.plain_data import read_object

_WORDS = "embeddings.word_embeddings.weight"
_HEAD_SIZE = 64  # numbers of an attention head in every published BERT
_SIDES = {"query": ("query", "question"), "document": ("context", "ctx", "document", "doc", "passage")}
_BESIDE = ("config.json", "tokenizer.json", "vocab.txt", "tokenizer_config.json")
_UNUSED = ("pooler.", "embeddings.position_ids")
_PLACES = {"query": "query_0_Transformer", "document": "document_0_Transformer"}
_TRANSFORMER, _POOLING = "sentence_transformers.models.Transformer", "sentence_transformers.models.Pooling"


def unpacked(file: Path) -> Path:
    """The folder, in the user's cache, of the encoder in a file of weights, or of the two that it has.

    One encoder lies there as transformers saves it, two as sentence-transformers saves a router; these are pooled by
    [CLS].
    """
    beside = [file.with_name(name) for name in _BESIDE if file.with_name(name).is_file()]
    key = [file_digest(part) for part in (file, *beside)]

    def write(folder: Path) -> None:
        arrays = file_floats(file)
        prefixes = [name.removesuffix(_WORDS) for name in arrays if name.endswith(_WORDS)]
        if len(prefixes) == 1:
            _write_encoder(folder, arrays, _of_prefix(arrays, prefixes[0]), file)
        else:
            _write_two(folder, arrays, _sides(prefixes, file), file)

    return cached_folder("checkpoints", key, write)


def _sides(prefixes: list[str], file: Path) -> dict[str, str]:
    """Which of two encoders reads queries and which documents, by the names of their arrays."""
    sides = {}
    for side, words in _SIDES.items():
        own = [prefix for prefix in prefixes if prefix.startswith(words)]
        if len(prefixes) != 2 or len(own) != 1:
            found = ", ".join(prefix or "one without a prefix" for prefix in prefixes) or "none"
            raise InputError(
                f"a file of weights has one encoder, or one for queries and one for documents; found: {found}",
                file=str(file),
            )
        sides[side] = own[0]
    return sides


def _of_prefix(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _write_two(folder: Path, arrays: Mapping[str, np.ndarray], sides: Mapping[str, str], file: Path) -> None:
    modules = {}
    for side, prefix in sides.items():
        own = _of_prefix(arrays, prefix)
        strange = [n for n in own if not n.startswith(("embeddings.", "encoder.layer.", *_UNUSED))]
        root = f"{prefix.partition('.')[0]}."
        strange += [n for n in arrays if n.startswith(root) and not n.startswith(prefix)]
        if strange:
            raise InputError(f"the encoder of this file has a layer that cannot be read ({strange[0]})", file=str(file))
        _write_encoder(folder / _PLACES[side], own, own, file)
        pooling = f"{side}_1_Pooling"
        (folder / pooling).mkdir()
        write_json(folder / pooling / "config.json", {"pooling_mode_cls_token": True})
        modules[side] = {_PLACES[side]: _TRANSFORMER, pooling: _POOLING}
    types = {place: kind for own in modules.values() for place, kind in own.items()}
    structure = {side: list(own) for side, own in modules.items()}
    write_json(folder / "router_config.json", {"types": types, "structure": structure, "parameters": {}})
    write_json(folder / "modules.json", modules_data([("", "sentence_transformers.models.Router")]))


def _write_encoder(
    place: Path, arrays: Mapping[str, np.ndarray], encoder: Mapping[str, np.ndarray], file: Path
) -> None:
    """Write arrays as a BERT of transformers; `encoder`: those of the BERT itself, named without a prefix."""
    place.mkdir(exist_ok=True)
    write_arrays(place / "model.safetensors", {name: np.ascontiguousarray(a) for name, a in arrays.items()})
    for name in _BESIDE:
        if file.with_name(name).is_file():
            shutil.copyfile(file.with_name(name), place / name)
    if not (place / "config.json").is_file():
        write_json(place / "config.json", _described(encoder, file))
    vocabulary = int(read_object(place / "config.json").get("vocab_size", 0))
    if (place / "tokenizer.json").is_file() or (place / "vocab.txt").is_file():
        return
    pieces = uncased_pieces()
    if vocabulary != len(pieces.vocabulary):
        raise InputError(
            f"this encoder has {vocabulary:,} word pieces, unlike bert-base-uncased; put its tokenizer.json beside it",
            file=str(file),
        )
    (place / "tokenizer.json").write_bytes(pieces.content)


def _described(encoder: Mapping[str, np.ndarray], file: Path) -> dict[str, object]:
    try:
        hidden = encoder[_WORDS].shape[1]
        if hidden % _HEAD_SIZE:
            raise InputError(
                f"how many attention heads an encoder with states of {hidden} numbers has is not known; put its "
                "config.json beside it",
                file=str(file),
            )
        return bert_config_of(encoder, hidden // _HEAD_SIZE)
    except (KeyError, IndexError) as e:
        raise InputError(
            f"only a BERT can be read from a file of weights, and here {e} is missing", file=str(file)
        ) from None
