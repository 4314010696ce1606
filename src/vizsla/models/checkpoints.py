"""Models from a folder of anybody's: one that Vizsla saved, a SPLADE or a sentence encoder; or by name from the hub."""

from __future__ import annotations

from pathlib import Path

from vizsla.errors import VizslaError
from vizsla.models.model import Model
from vizsla.neural.checkpoints.packages import HUB

_OTHERS = "config.json", "modules.json"


def open_model(which: str | Path) -> Model:
    """The model in a folder, or on the model hub as `hf:org/name`.

    A folder with a model.json is a model that Vizsla saved. Any other is a checkpoint of sentence-transformers or
    transformers: a SPLADE where it says so or has a masked-language head, else an encoder of dense vectors.
    """
    from vizsla.neural.checkpoints.checkpoint import (
        find_checkpoint,  # here and below: a search that needs none does not wait
    )
    from vizsla.neural.checkpoints.splade import is_sparse_encoder

    folder = find_checkpoint(which) if str(which).startswith(HUB) else Path(which)
    if (folder / "model.json").is_file() or not any((folder / name).is_file() for name in _OTHERS):
        return Model.load(folder)
    modules = folder / "modules.json"
    if modules.is_file() and '"pylate.' in modules.read_text("utf-8", "replace"):
        raise VizslaError(f"{which}: this is a ColBERT; name it as in colbert(checkpoint={which})")
    if is_sparse_encoder(folder):
        from vizsla.models.splade import Splade

        return Splade.open(folder)
    from vizsla.models.dense import Dense

    return Dense.open(folder)
