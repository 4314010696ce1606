"""Descriptions of encoders and dense models on disk, which may have the names of older versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_NAMES = {
    "most": "max_weight",
    "framed": "special_tokens",
    "filled": "pad_with_mask",
    "segments": "token_types",
    "skips": "skip_prompt_tokens",
    "lowers": "lowercase",
    "normalised": "normalize",
}
_POOLINGS = {"first": "cls", "last": "lasttoken", "weighted": "weightedmean", "root": "mean_sqrt_len"}


def with_current_names(data: Any) -> Any:
    """Plain data that describes a network, an encoder or a dense model, under the names of today.

    >>> with_current_names({"most": 5.0, "pooling": "first+mean"})
    {'max_weight': 5.0, 'pooling': 'cls+mean'}
    """
    return _renamed(data, _NAMES, _POOLINGS)


def with_former_names(data: Any) -> Any:
    """The same data under the names of the first version, which digests are made from so that they stay the same."""
    return _renamed(data, _swapped(_NAMES), _swapped(_POOLINGS))


def _swapped(names: Mapping[str, str]) -> dict[str, str]:
    return {new: old for old, new in names.items()}


def _renamed(data: Any, names: Mapping[str, str], poolings: Mapping[str, str]) -> Any:
    if not isinstance(data, Mapping):
        return data  # which is refused by who reads it
    renamed = {names.get(name, name): value for name, value in data.items()}
    pooling = renamed.get("pooling")
    if isinstance(pooling, str):
        renamed["pooling"] = "+".join(poolings.get(part, part) for part in pooling.split("+"))
    elif isinstance(pooling, list | tuple):
        renamed["pooling"] = [poolings.get(part, part) if isinstance(part, str) else part for part in pooling]
    return renamed
