"""The network of a run: the base model that it starts from, and how the trained one is written."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.models import ColBERT, DeepCT, Dense, LearnedSparse, Model
from vizsla.models.learned_sparse import SHIPPED
from vizsla.neural.checkpoints.checkpoint import bert_arrays, find_checkpoint, trainable_config
from vizsla.neural.checkpoints.splade import HEAD, masked_language_arrays
from vizsla.neural.encoder import encoder_of
from vizsla.neural.heads.sparta import Sparta
from vizsla.neural.heads.splade import Splade, SpladeDoc, TiedHead
from vizsla.neural.heads.unicoil import UniCoil
from vizsla.neural.lazy_torch import torch
from vizsla.neural.network import ABOUT, Network
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.query_tables import TermWeights
from vizsla.neural.torch_network import bert_model, load, plain_name
from vizsla.neural.weights import read_weights
from vizsla.text import Analyzer

DEFAULT_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
SPARSE_HEADS = ("unicoil", "splade", "splade-doc", "sparta")
_WITH_NETWORK = (LearnedSparse, Dense, DeepCT, ColBERT)


class Base(NamedTuple):
    """An encoder or a whole network to start from, and its tokenizer: an analyzer, or a generator's checkpoint."""

    network: Any
    analyzer: Any
    new_head: bool = True
    """Whether the network's head is untrained."""
    masked_language: bool = False
    """Whether its head is the base model's masked-language head, whose logits have not been shifted and scaled yet."""


def base_encoder(base_model: str, seed: int = 0) -> Base:
    """The encoder of a base model, without a head."""
    torch.manual_seed(seed)
    model = known_model(base_model)
    if model is None:
        return _transformers_encoder(base_model)
    encoder = load_network(model.network).encoder
    analyzer = model.pieces if isinstance(model, DeepCT) else model.analyzer
    assert isinstance(analyzer, Analyzer)
    return Base(encoder, analyzer)


def base_sparse_network(base_model: str, head: str, seed: int = 0) -> Base:
    """A uniCOIL, SPLADE or SPARTA network; the head is the base model's if it has one of this kind.

    A SPLADE is initialised with the masked-language head of a BERT or DistilBERT, if it has one.
    """
    model = known_model(base_model)
    for_documents = head == "splade-doc"
    if model is not None and model.network.kind == ("splade" if for_documents else head):
        torch.manual_seed(seed)
        assert isinstance(model.analyzer, Analyzer)
        network = load_network(model.network)
        if for_documents:
            network = SpladeDoc(network.encoder, network.head)
            if isinstance(model, LearnedSparse) and isinstance(model.query_table, TermWeights):
                network.start_from(torch.tensor(model.query_table.values))
        return Base(network, model.analyzer, new_head=False)
    encoder, analyzer, *_ = base_encoder(base_model, seed)
    if head in ("unicoil", "sparta"):
        return Base(UniCoil(encoder) if head == "unicoil" else Sparta(encoder), analyzer)
    known = {} if model is not None else _masked_language_head(base_model)
    tied = TiedHead(encoder.embeddings.word_embeddings, encoder.hidden, tied="decoder.weight" not in known)
    for name, array in known.items():
        tied.get_parameter(name).data.copy_(torch.from_numpy(array))
    network = SpladeDoc(encoder, tied) if for_documents else Splade(encoder, tied)
    return Base(network, analyzer, new_head=not known, masked_language=bool(known))


def _masked_language_head(base_model: str) -> dict[str, np.ndarray]:
    """The head with which an encoder of transformers predicts masked words; empty if it has none."""
    folder = find_checkpoint(base_model)
    config = trainable_config(folder)
    arrays, lacking = masked_language_arrays(folder, config)
    if lacking:
        return {}
    hidden, words = int(config["hidden_size"]), int(config["vocab_size"])
    shapes = dict.fromkeys(HEAD, (hidden,)) | {"dense.weight": (hidden, hidden), "decoder.bias": (words,)}
    if "decoder.weight" in arrays:
        shapes["decoder.weight"] = (words, hidden)
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise InputError(f"the masked-language head does not fit config.json (its {name})", file=base_model)
    return {name: arrays[name].astype(np.float32) for name in shapes}


def known_model(base_model: str) -> LearnedSparse | Dense | DeepCT | ColBERT | None:
    """A Vizsla model by name or folder; None if it is something else."""
    if any((place / "augmenter.json").is_file() for place in (SHIPPED / base_model, Path(base_model))):
        raise VizslaError(
            f"{base_model} is an augmenter; training starts from an encoder, or from a model such as bm26"
        )
    if (SHIPPED / base_model / ABOUT).is_file():
        return LearnedSparse.shipped(base_model)
    if (Path(base_model) / "model.json").is_file():
        components = [p.component for p in Model.load(base_model).parts]
        networks = [component for component in components if isinstance(component, _WITH_NETWORK)]
        if len(networks) != 1:
            raise InputError("this model has no network to start from, or several", file=base_model)
        return networks[0]
    return None


def _transformers_encoder(base_model: str) -> Base:
    """An encoder of transformers, by folder or name: a BERT, or a DistilBERT as a BERT."""
    folder = find_checkpoint(base_model)
    config = trainable_config(folder)
    analyzer = Analyzer.parse(f"wordpiece:{folder}")
    arrays = bert_arrays(folder, config)
    try:
        encoder = bert_model(config, arrays)
    except (TypeError, ValueError) as e:  # transformers' own, of numbers that do not fit each other
        raise InputError(f"config.json does not describe a BERT ({str(e).splitlines()[0]})", file=base_model) from None
    numbers = analyzer.tokenizer.numbers  # type: ignore[attr-defined]
    if [numbers.get(name) for name in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")] != [0, 101, 102, 103]:
        raise InputError(
            "only encoders whose special tokens are numbered as in BERT's vocabulary can be trained", file=base_model
        )
    pieces = len(analyzer.tokenizer.vocabulary)  # type: ignore[attr-defined]
    if pieces > encoder.config.vocab_size:
        raise InputError(
            f"the encoder knows {encoder.config.vocab_size:,} word pieces and its tokenizer gives {pieces:,}",
            file=base_model,
        )
    return Base(encoder_of(encoder), analyzer)


def load_network(network: Any) -> Any:
    """A saved network, in torch."""
    if not isinstance(network, Network):
        raise InputError("only BERT and DistilBERT can be trained, and this is another", file=str(network.folder))

    return load(read_weights(network.folder), network.kind, network.heads, network.pooling or "mean")


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
