"""What the files of a tokenizer beside an encoder say: BERT's word pieces, and how many tokens are read."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vizsla.neural.checkpoints.sentence import read_json
from vizsla.plain_data import parse_settings
from vizsla.text import Analyzer, WordPiece
from vizsla.text.tokenizers import tokenizers_library

_OFFSET = ("roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet", "data2vec-text", "ibert", "longformer")
"""Encoders whose position ids start after the id of the padding token."""
MAX_LENGTH = 512
"""How many tokens are read if no file says so."""


def bert_pieces(place: Path) -> WordPiece | None:
    """The word pieces of an encoder, where they are BERT's and their special tokens have the usual numbers.

    A BERT published without any file of a tokenizer, whose vocabulary has the size of bert-base-uncased's, reads these
    pieces; where such files are there but the vocabulary is missing, there are none.
    """
    file, words = place / "tokenizer.json", place / "vocab.txt"
    if not file.is_file() and not words.is_file():
        if any((place / name).is_file() for name in ("tokenizer_config.json", "special_tokens_map.json")):
            return None
        config = with_model_type(read_json(place / "config.json")) if (place / "config.json").is_file() else {}
        pieces = uncased_pieces() if config.get("model_type") == "bert" else None
        return pieces if pieces is not None and config.get("vocab_size") == len(pieces.vocabulary) else None
    content = file.read_bytes() if file.is_file() else bert_tokenizer(words)
    pieces = WordPiece(content, str(file))
    numbers = [pieces.numbers.get(name) for name in ("[PAD]", "[CLS]", "[SEP]")]
    return pieces if numbers == [0, 101, 102] and pieces.is_bert else None


def uncased_pieces() -> WordPiece:
    """The word pieces of bert-base-uncased, which come with Vizsla."""
    tokenizer = Analyzer.parse("wordpiece").tokenizer
    assert isinstance(tokenizer, WordPiece)
    return tokenizer


def with_model_type(config: dict[str, Any]) -> dict[str, Any]:
    """A config.json with the model type that early versions of transformers left out for BERT.

    >>> with_model_type({"type_vocab_size": 2, "num_hidden_layers": 12})["model_type"]
    'bert'
    """
    early = "model_type" not in config and config.get("type_vocab_size") == 2 and "num_hidden_layers" in config
    return {**config, "model_type": "bert"} if early else config


def bert_tokenizer(words: Path) -> bytes:
    """BERT's tokenizer from a list of its word pieces."""
    file = words.with_name("tokenizer_config.json")
    config = read_json(file) if file.is_file() else {}
    tokenizer = tokenizers_library().BertWordPieceTokenizer(
        str(words), lowercase=config.get("do_lower_case", True) is not False
    )
    return str(tokenizer.to_str()).encode()


def alike(tokenizers: Sequence[WordPiece | None]) -> bool:
    """Whether tokenizers split texts into the same pieces, even if their files differ in other respects."""
    contents = [parse_settings(t.content) for t in tokenizers if t is not None]
    decisive = ("normalizer", "pre_tokenizer", "added_tokens")
    steps = {json.dumps([t.get(step) for step in decisive], sort_keys=True) for t in contents}
    first = tokenizers[0]
    return len(steps) == 1 and all(
        t is not None and first is not None and t.numbers == first.numbers for t in tokenizers
    )


def positions(config: Mapping[str, Any]) -> int | None:
    """How many tokens an encoder has positions for; None where its config.json does not say."""
    places: int | None = config.get("max_position_embeddings")
    if places is not None and config.get("model_type") in _OFFSET:
        places -= int(config.get("pad_token_id") or 0) + 1
    return places
