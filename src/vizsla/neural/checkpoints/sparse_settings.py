"""How a text becomes weights of terms, as the files of sentence-transformers' SparseEncoder say.

Both layouts are read: `MLMTransformer`, and `Transformer` with `transformer_task: fill-mask`, each before a
`SpladePooling`; and a router whose queries go through a `SparseStaticEmbedding`, a table of weights without a network.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vizsla.errors import InputError
from vizsla.neural.checkpoints.sentence import (
    ROUTERS,
    ROUTES,
    library_config,
    modules_of,
    prompts_of,
    read_json,
    routes_of,
    transformer_settings,
)

_NETWORKS = ("Transformer", "MLMTransformer")
_TABLE = "SparseStaticEmbedding"
_POOLING = "SpladePooling"


@dataclass(frozen=True)
class SparseSettings:
    """What the files say. A masked-language model without such files has these defaults, which are SPLADE's.

    `base`: where in the folder the network, or the table, lies. `pooling`: see `SPLADE_POOLINGS`. `length`: how many
    tokens are read, 0 for as many as possible. `is_table`: tokens have fixed weights, and there is no network.
    """

    base: str = ""
    pooling: tuple[str, ...] = ("max",)
    length: int = 0
    is_table: bool = False
    query_prompt: str = ""
    document_prompt: str = ""


def is_sparse_encoder(folder: Path) -> bool:
    """Whether a folder holds a SPLADE: of sentence-transformers, or a masked-language model of transformers."""
    if (folder / "modules.json").is_file():
        modules = modules_of(folder)
        if modules and modules[0][0] in ROUTERS:
            modules = [*(m for route in routes_of(folder, modules[0][1]).values() for m in route), *modules[1:]]
        return any(kind in (_POOLING, _TABLE) for kind, _ in modules)
    config = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    return any(str(name).endswith("ForMaskedLM") for name in config.get("architectures") or ())


def read_sparse_settings(folder: Path) -> list[SparseSettings]:
    """Of documents, and of queries where they go another way."""
    if not (folder / "modules.json").is_file():
        return [SparseSettings()]
    modules, prompts = modules_of(folder), prompts_of(library_config(folder))
    if modules and modules[0][0] in ROUTERS:
        routes = routes_of(folder, modules[0][1])
        ways = [_settings(folder, [*routes[side], *modules[1:]]) for side in ROUTES]
    else:
        ways = [_settings(folder, modules)]
    if ways[0].is_table:
        raise InputError("documents need a network here, and these have a table of weights", file=str(folder))
    return [
        replace(way, query_prompt=prompts["query_prompt"], document_prompt=prompts["document_prompt"]) for way in ways
    ]


def _settings(folder: Path, modules: Sequence[tuple[str, str]]) -> SparseSettings:
    kinds = [kind for kind, _ in modules]
    if kinds == [_TABLE]:
        return SparseSettings(modules[0][1], is_table=True)
    if len(kinds) != 2 or kinds[0] not in _NETWORKS or kinds[1] != _POOLING:
        raise InputError(
            f"a SPLADE is a masked-language model and a {_POOLING}, and this is {' and '.join(kinds) or 'nothing'}",
            file=str(folder),
        )
    about = transformer_settings(folder / modules[0][1])
    if about["lowercase"]:
        raise InputError("texts that are lower-cased before the tokenizer sees them cannot be read", file=str(folder))
    pooling = _pooling(read_json(folder / modules[1][1] / "config.json"), folder)
    return SparseSettings(modules[0][1], pooling, about["length"])


def _pooling(config: dict[str, Any], folder: Path) -> tuple[str, ...]:
    how, activation = config.get("pooling_strategy", "max"), config.get("activation_function", "relu")
    if how not in ("max", "sum") or activation not in ("relu", "log1p_relu"):
        raise InputError(f"weights cannot be pooled by {how} after {activation}", file=str(folder))
    return (how, "log1p") if activation == "log1p_relu" else (how,)
