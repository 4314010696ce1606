"""A small network and small documents that several tests share."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from vizsla import Dense, LearnedSparse
from vizsla.models import Network

SMALL_TRAINING = ["training.steps=2", "training.batch_size=8", "training.eval_steps=2", "training.save_steps=2"]
SMALL_TRAINING += ["training.tokens_per_chunk=2000", "data.max_query_length=16"]
"""Settings that a dense model or a cross-encoder of the small network is trained with."""
SMALL_CROSS = [*SMALL_TRAINING, "data.max_length=48", "data.negatives_depth=8", "data.candidates_depth=8"]
"""Settings that a cross-encoder of the small network is trained with."""
HIDDEN, INNER, VOCABULARY = 32, 64, 30_522


def small_weights(seed: int = 0) -> dict[str, np.ndarray]:
    """An encoder of two layers with random numbers, and uniCOIL's head."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        made[f"{name}.weight"] = rng.normal(0, 0.3, (rows, columns)).astype(np.float32)

    def linear(name: str, rows: int, columns: int) -> None:
        matrix(name, rows, columns)
        made[f"{name}.bias"] = rng.normal(0, 0.1, rows).astype(np.float32)

    def norm(name: str) -> None:
        made[f"{name}.weight"], made[f"{name}.bias"] = np.ones(HIDDEN, np.float32), np.zeros(HIDDEN, np.float32)

    for name, rows in (("word", VOCABULARY), ("position", 64), ("token_type", 2)):
        matrix(f"embeddings.{name}_embeddings", rows, HIDDEN)
    norm("embeddings.LayerNorm")
    for layer in range(2):
        at = f"encoder.layer.{layer}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{at}.attention.{name}", HIDDEN, HIDDEN)
        norm(f"{at}.attention.output.LayerNorm")
        linear(f"{at}.intermediate.dense", INNER, HIDDEN)
        linear(f"{at}.output.dense", HIDDEN, INNER)
        norm(f"{at}.output.LayerNorm")
    linear("weigh", 1, HIDDEN)
    made["weigh.bias"] += 0.5
    return made


def documents_of(count: int) -> list[dict[str, str]]:
    words = "dog bark night cat sleep quark field theory river stone bridge summer winter music paint".split()  # noqa: SIM905
    rng = np.random.default_rng(5)
    return [{"id": str(i), "text": " ".join(rng.choice(words, 30))} for i in range(count)]


def small_model(folder: Path) -> LearnedSparse:
    """An untrained model of two layers, written to a folder."""
    network = Network.write(folder, small_weights(), kind="unicoil", heads=4, max_weight=8.0, length=64)
    return LearnedSparse(network, namespace="small", name="small")


def small_dense(folder: Path, seed: int = 0, name: str = "dense", pooling: str = "mean") -> Dense:
    """An untrained dense model of two layers, written to a folder in floats."""
    weights = {n: array for n, array in small_weights(seed).items() if not n.startswith("weigh.")}
    network = Network.write(
        folder, weights, kind="dense", heads=4, max_weight=1.0, length=64, precision="float32", pooling=pooling
    )
    return Dense(network, normalize=False, namespace=name, name=name)
