"""Write trained networks in the form that models store."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vizsla.models import Network
from vizsla.neural.inference import plain_name
from vizsla.neural.onnx_graph import Precision

SAMPLE = 40  # texts to calibrate the quantisation with


def write_network(
    network: Any, folder: Path, *, max_weight: float, length: int, sample: Sequence[Sequence[int]], pooling: str = "",
    precision: Precision = "int8",
) -> Network:  # fmt: skip
    """Write a trained network, by default in 8 bits, into a subfolder that is named by its hash.

    `max_weight`: the highest weight it gives. `length`: how many tokens it reads. `sample`: token ids of some texts.
    """
    shutil.rmtree(folder / "written", ignore_errors=True)
    weights = {plain_name(n): p.detach().float().numpy() for n, p in network.named_parameters()}
    written = Network.write(
        folder / "written",
        weights,
        kind=network.kind,
        heads=network.encoder.heads,
        max_weight=max_weight,
        length=length,
        sample=sample,
        pooling=pooling,
        precision=precision,
    )
    final = folder / written.digest[:12]
    shutil.rmtree(final, ignore_errors=True)
    written.folder.rename(final)
    return Network.open(final)
