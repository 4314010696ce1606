"""How sentence-transformers' files beside an encoder say that a text becomes a vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from vizsla.errors import InputError
from vizsla.neural.checkpoints.transformer import ACTIVATIONS, Layer
from vizsla.plain_data import parse_settings, read_object

_POOLINGS = {
    "cls": "cls",
    "max": "max",
    "mean": "mean",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean": "weightedmean",
    "lasttoken": "lasttoken",
}
_OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
_POOLING = "1_Pooling/config.json"
ROUTERS = ("Router", "Asym")
ROUTES = {"document": ("document", "passage", "doc", "corpus"), "query": ("query", "question")}


@dataclass(frozen=True)
class EncoderSettings:
    """What the files say. An encoder without such files has these defaults.

    `base`: where in the folder the encoder itself lies. `length`: how many tokens are read, 0 for as many as possible.
    `lowercase`: texts are lower-cased first. `skip_prompt_tokens`: the prompt's tokens are not pooled. `token_type`:
    BERT's token type of all tokens.
    """

    base: str = ""
    pooling: tuple[str, ...] = ("mean",)
    layers: tuple[Layer, ...] = ()
    normalize: bool = False
    length: int = 0
    query_prompt: str = ""
    document_prompt: str = ""
    lowercase: bool = False
    skip_prompt_tokens: bool = False
    token_type: int = 0


def read_settings(folder: Path) -> list[EncoderSettings]:
    """The settings of documents, and those of queries if they differ.

    Some exports to ONNX have no list of modules, but say how states are pooled, and the prompts.
    """
    if not (folder / "modules.json").is_file():
        prompts: dict[str, Any] = prompts_of(library_config(folder))
        pooled = folder / _POOLING
        return [
            EncoderSettings(pooling=_pooling(read_json(pooled), folder) if pooled.is_file() else ("mean",), **prompts)
        ]
    modules, config = modules_of(folder), library_config(folder)
    if modules and modules[0][0] in ROUTERS:
        routes = routes_of(folder, modules[0][1])
        return [_settings(folder, [*routes[side], *modules[1:]], config) for side in ROUTES]
    return [_settings(folder, modules, config)]


def says_pooling(folder: Path) -> bool:
    """Whether a folder's files say how the states of tokens become a vector."""
    return (folder / "modules.json").is_file() or (folder / _POOLING).is_file()


def library_config(folder: Path) -> dict[str, Any]:
    """What sentence-transformers wrote of the whole encoder: its prompts and how vectors are compared."""
    file = folder / "config_sentence_transformers.json"
    return read_json(file) if file.is_file() else {}


def modules_of(folder: Path) -> list[tuple[str, str]]:
    """The kinds of an encoder's modules, and where in its folder they lie."""
    return [(_kind(m["type"]), _path(m["path"], folder)) for m in _modules(folder / "modules.json")]


def read_json(file: Path) -> dict[str, Any]:
    """The object in a file of an encoder's."""
    try:
        return read_object(file)
    except FileNotFoundError:
        raise InputError(f"there is no encoder here (no {file.name})", file=str(file.parent)) from None


def _modules(file: Path) -> list[dict[str, Any]]:
    try:
        listed = parse_settings(file.read_text("utf-8"))
        return [{"type": str(m["type"]), "path": str(m["path"])} for m in listed]
    except (ValueError, TypeError, KeyError):
        raise InputError("this does not list the modules of an encoder", file=str(file)) from None


def _kind(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _path(path: str, folder: Path) -> str:
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise InputError(f"a module must lie inside of the encoder's folder, and not at {path}", file=str(folder))
    return "" if path == "." else path


def routes_of(folder: Path, path: str) -> dict[str, list[tuple[str, str]]]:
    """The modules of a router, for documents and for queries."""
    files = [folder / path / name for name in ("router_config.json", "config.json")]
    router = read_json(next((f for f in files if f.is_file()), files[0]))
    routes = {}
    for side, names in ROUTES.items():
        name = next((n for n in names if n in router.get("structure", {})), None)
        if name is None:
            known = ", ".join(router.get("structure", {})) or "none"
            raise InputError(f"this router has no route for a {side} (routes: {known})", file=str(folder))
        ids = router["structure"][name]
        routes[side] = [(_kind(router["types"][i]), _path(str(PurePosixPath(path) / i), folder)) for i in ids]
    return routes


def _settings(folder: Path, modules: Sequence[tuple[str, str]], config: dict[str, Any]) -> EncoderSettings:
    settings: dict[str, Any] = {}
    layers: list[Layer] = []
    for kind, path in modules:
        if kind == "Transformer":
            settings |= {"base": path, **transformer_settings(folder / path)}
        elif kind == "Pooling":
            about = read_json(folder / path / "config.json")
            settings |= {"pooling": _pooling(about, folder), "skip_prompt_tokens": about.get("include_prompt") is False}
        elif kind == "Dense":
            layers.append(_dense(read_json(folder / path / "config.json"), path, folder))
        elif kind == "LayerNorm":
            layers.append(Layer("norm", path, "norm"))
        elif kind == "Normalize":
            layers.append(Layer("unit"))
        elif kind != "Dropout":
            raise InputError(f"this encoder has a layer that cannot be read ({kind})", file=str(folder))
    if "base" not in settings:
        raise InputError("this encoder is not a transformer; only transformers can be read", file=str(folder))
    settings["normalize"] = bool(layers) and layers[-1].kind == "unit"
    settings["layers"] = tuple(layers[:-1] if settings["normalize"] else layers)
    return EncoderSettings(**{**settings, **_similarity(config, folder, settings["normalize"]), **prompts_of(config)})


def transformer_settings(place: Path) -> dict[str, Any]:
    """How many tokens of a text are read, and whether it is lower-cased first."""
    files = sorted(place.glob("sentence_*_config.json"))
    about = read_json(files[0]) if files else {}
    max_length = about.get("max_seq_length")
    return {"length": int(max_length) if max_length else 0, "lowercase": about.get("do_lower_case") is True}


def _pooling(config: dict[str, Any], folder: Path) -> tuple[str, ...]:
    mode = config.get("pooling_mode")
    if mode is None:
        return tuple(ours for theirs, ours in _OLD_POOLINGS.items() if config.get(theirs) is True) or ("mean",)
    modes = [mode] if isinstance(mode, str) else list(mode)
    if unknown := [mode for mode in modes if mode not in _POOLINGS]:
        raise InputError(f"states cannot be pooled by {unknown[0]}", file=str(folder))
    return tuple(_POOLINGS[mode] for mode in modes)


def _dense(config: dict[str, Any], path: str, folder: Path) -> Layer:
    if config.get("use_residual") or config.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise InputError("this encoder has a dense layer of a kind that cannot be read", file=str(folder / path))
    activation = _kind(config.get("activation_function") or "torch.nn.Tanh")
    if activation not in ACTIVATIONS:
        raise InputError(f"this encoder has an activation that is not known ({activation})", file=str(folder / path))
    return Layer("linear", path, "linear", activation, int(config["out_features"]))


def _similarity(config: dict[str, Any], folder: Path, normalize: bool) -> dict[str, bool]:
    name = config.get("similarity_fn_name")
    if name in ("euclidean", "manhattan"):
        raise InputError(f"vectors are compared by inner products and cosines, not by {name}", file=str(folder))
    return {"normalize": normalize or name == "cosine"}


def prompts_of(config: dict[str, Any]) -> dict[str, str]:
    """The prompts of queries and of documents."""
    prompts = config.get("prompts") or {}
    usual = prompts.get(config.get("default_prompt_name") or "", "")
    return {
        "query_prompt": prompts.get("query", usual),
        "document_prompt": prompts.get("document", prompts.get("passage", usual)),
    }
