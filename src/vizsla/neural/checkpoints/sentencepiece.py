"""SentencePiece models, such as T5's spiece.model, as a tokenizer.json: read without the library sentencepiece."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vizsla.cache import cached_folder, file_digest
from vizsla.errors import InputError
from vizsla.text.tokenizers import tokenizers_library

SPIECE = "spiece.model"
_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3  # fields of the file
_MODEL_TYPE, _UNIGRAM = 3, 1
_CHARSMAP, _DUMMY_PREFIX, _REMOVE_SPACES = 2, 3, 4
_UNKNOWN, _CONTROL = 2, 3  # types of a piece
_SENTINELS = 100  # tokens that T5 fills gaps with: <extra_id_99> to <extra_id_0> after the pieces
_END, _SPACE = "</s>", "▁"


def tokenizer_file(folder: Path) -> Path:
    """The tokenizer.json of a folder, or one that was made of its spiece.model, in the user's cache."""
    own, model = folder / "tokenizer.json", folder / SPIECE
    if own.is_file() or not model.is_file():
        return own

    def write(place: Path) -> None:
        (place / own.name).write_text(t5_tokenizer(model).to_str(), "utf-8")

    return cached_folder("tokenizers", [file_digest(model)], write) / own.name


def t5_tokenizer(file: Path) -> Any:
    """T5's tokenizer, of the library tokenizers, from a unigram model of SentencePiece.

    Texts are normalised by the model's own table, runs of spaces become one, and a text ends with </s>.
    """
    library = tokenizers_library()
    try:
        fields = list(_fields(file.read_bytes()))
        pieces = [dict(_fields(value)) for number, value in fields if number == _PIECES]
        trainer = next((dict(_fields(value)) for number, value in fields if number == _TRAINER), {})
        normalizer = next((dict(_fields(value)) for number, value in fields if number == _NORMALIZER), {})
        vocabulary = [(piece[1].decode(), float(piece.get(2, 0.0))) for piece in pieces]
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, struct.error):
        raise InputError("this is not a model of SentencePiece, or it is damaged", file=str(file)) from None
    if trainer.get(_MODEL_TYPE, _UNIGRAM) != _UNIGRAM:
        raise InputError("only a unigram model of SentencePiece can be read", file=str(file))
    names = [name for name, _ in vocabulary]
    unknown = next((number for number, piece in enumerate(pieces) if piece.get(3, 1) == _UNKNOWN), None)
    if unknown is None or _END not in names:
        raise InputError(f"this model of SentencePiece has no piece for unknown text, or no {_END}", file=str(file))
    control = [name for name, piece in zip(names, pieces, strict=True) if piece.get(3, 1) in (_UNKNOWN, _CONTROL)]
    made = library.Tokenizer(library.models.Unigram(vocabulary, unk_id=unknown))
    steps = []
    if charsmap := normalizer.get(_CHARSMAP):
        steps.append(library.normalizers.Precompiled(charsmap))
    if normalizer.get(_REMOVE_SPACES, 1):
        steps += [library.normalizers.Strip(), library.normalizers.Replace(library.Regex(" {2,}"), " ")]
    made.normalizer = library.normalizers.Sequence(steps)
    prefix = "always" if normalizer.get(_DUMMY_PREFIX, 1) else "never"
    made.pre_tokenizer = library.pre_tokenizers.Metaspace(replacement=_SPACE, prepend_scheme=prefix)
    made.decoder = library.decoders.Metaspace(replacement=_SPACE, prepend_scheme=prefix)
    made.add_special_tokens(control)
    made.add_special_tokens([f"<extra_id_{number}>" for number in reversed(range(_SENTINELS))])
    made.post_processor = library.processors.TemplateProcessing(
        single=f"$A {_END}", special_tokens=[(_END, names.index(_END))]
    )
    return made


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The numbered values of a message in Protocol Buffers: integers, floats and bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value
        elif wire in (1, 5):
            kind, size = ("<d", 8) if wire == 1 else ("<f", 4)
            yield number, struct.unpack(kind, data[at : at + size])[0]
            at += size
        elif wire == 2:
            size, at = _varint(data, at)
            if at + size > len(data):
                raise ValueError("a value ends after the file")
            yield number, data[at : at + size]
            at += size
        else:
            raise ValueError(f"there is no type {wire}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A whole number, seven bits a byte, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
