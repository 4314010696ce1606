"""Average models trained from the same start with several seeds: more robust than any one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from vizsla.datasets import Document
from vizsla.errors import VizslaError
from vizsla.models import LearnedSparse, Model, Network
from vizsla.neural.heads.base import RULED_OUT
from vizsla.neural.torch_network import load
from vizsla.neural.weights import read_weights
from vizsla.text import Analyzer
from vizsla.training.kinds.learned_sparse import write_sparse_model
from vizsla.training.sources.crops import packed_documents

_BIAS = "decoder.bias"


def average_models(folders: Sequence[str | Path], documents: Iterable[Document], output: Path) -> None:
    """Write the model whose weights are the means of those of several learned sparse models.

    It has the name, the fields and the tokenizer of the first one, and a table for queries if all have one.
    `documents`: some texts to calibrate the quantisation with.
    """
    if len(folders) < 2:
        raise VizslaError(
            "name two models or more, as in: vizsla models average seed-0 seed-1 seed-2 --corpus FILE -o DIR"
        )
    models = [_learned_sparse(folder) for folder in folders]
    arrays = [read_weights(model.network.folder) for model in models]
    first = models[0]
    for folder, model, own in zip(folders, models, arrays, strict=True):
        shapes = [{name: values.shape for name, values in some.items()} for some in (own, arrays[0])]
        if model.network.kind != first.network.kind or shapes[0] != shapes[1] or model.analyzer != first.analyzer:
            raise VizslaError(f"{folder}: this network has another shape or tokenizer than {folders[0]}")
        if _BIAS in own and ((own[_BIAS] <= RULED_OUT / 2) != (arrays[0][_BIAS] <= RULED_OUT / 2)).any():
            raise VizslaError(f"{folder}: this network gives weights to other terms than {folders[0]}")
    means = {name: np.stack([own[name] for own in arrays]).mean(0, dtype=np.float32) for name in arrays[0]}
    assert isinstance(first.network, Network)
    network = load(means, first.network.kind, first.network.heads, first.network.pooling or "mean")
    assert isinstance(first.analyzer, Analyzer)
    write_sparse_model(
        network, first.analyzer, packed_documents(documents, first.analyzer), output, name=first.name,
        fields=first.fields, query_table=all(model.query_table is not None for model in models),
    )  # fmt: skip


def _learned_sparse(folder: str | Path) -> LearnedSparse:
    model = Model.load(folder)
    if not isinstance(model, LearnedSparse) or not isinstance(model.network, Network) or model.inference_free:
        raise VizslaError(f"{folder}: only BM26, uniCOIL and SPLADE models can be averaged, and this is another")
    return model
