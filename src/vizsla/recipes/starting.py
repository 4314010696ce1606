"""What training starts from: a network that comes with Vizsla, a model it saved, or an encoder of transformers'."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vizsla.encoders.checkpoint import find_checkpoint
from vizsla.encoders.network import ABOUT, Network
from vizsla.encoders.sentence import read_json
from vizsla.encoders.transformer import Transformer
from vizsla.errors import InputError, VizslaError
from vizsla.models import Dense, LearnedSparse, Model
from vizsla.models.learned_sparse import SHIPPED
from vizsla.text import Analyzer


def starting_network(start: str, kind: str = "unicoil", seed: int = 0) -> tuple[Any, Analyzer, bool]:
    """A network to train, the word pieces it reads, and whether its head knows nothing yet.

    Of an augmenter, of a dense model and of a cross-encoder only the encoder.
    """
    import torch

    from vizsla.networks import Splade, TiedHead, UniCoil

    torch.manual_seed(seed)
    known = known_model(start)
    if known is None:
        encoder, analyzer = _fresh_encoder(start)
    else:
        network = loaded(known.network)
        assert isinstance(known.analyzer, Analyzer)
        if known.network.kind == kind != "dense":
            return network, known.analyzer, False
        encoder, analyzer = network.encoder, known.analyzer
    if kind in ("augmenter", "dense", "cross"):
        return encoder, analyzer, True
    if kind == "unicoil":
        return UniCoil(encoder), analyzer, True
    return Splade(encoder, TiedHead(encoder.embeddings.word_embeddings, encoder.hidden)), analyzer, True


def known_model(start: str) -> LearnedSparse | Dense | None:
    """A model of Vizsla's own, by name or by folder."""
    if any((place / "augmenter.json").is_file() for place in (SHIPPED / start, Path(start))):
        raise VizslaError(f"{start} is an augmenter; training starts from an encoder, or from a model such as bm26")
    if (SHIPPED / start / ABOUT).is_file():
        return LearnedSparse.shipped(start)
    if (Path(start) / "model.json").is_file():
        learned = [p.component for p in Model.load(start).parts if isinstance(p.component, LearnedSparse | Dense)]
        if len(learned) != 1:
            raise InputError("this model has no network to start from, or several", file=start)
        return learned[0]
    return None


def _fresh_encoder(start: str) -> tuple[Any, Analyzer]:
    """An encoder of transformers' and its word pieces."""
    from vizsla.networks import encoder_of
    from vizsla.networks.inference import transformers

    folder = find_checkpoint(start)
    kind = read_json(folder / "config.json").get("model_type", "nothing that is named")
    if kind != "bert":  # before it is opened: others do not know the options of BERT
        raise InputError(f"only plain BERT encoders can be trained, and this is {kind}", file=start)
    analyzer = Analyzer.parse(f"wordpiece:{folder}")
    try:
        encoder = transformers().AutoModel.from_pretrained(
            folder, local_files_only=True, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        )
    except (OSError, ValueError) as e:
        raise InputError(f"there is no encoder to start from here ({str(e).splitlines()[0]})", file=start) from None
    if encoder.config.hidden_act != "gelu":
        raise InputError(f"only BERT with gelu can be trained, and this has {encoder.config.hidden_act}", file=start)
    numbers = analyzer.tokenizer.numbers  # type: ignore[attr-defined]
    if [numbers.get(name) for name in ("[PAD]", "[CLS]", "[SEP]", "[MASK]")] != [0, 101, 102, 103]:
        raise InputError(
            "only encoders whose special tokens are numbered as in BERT's vocabulary can be trained", file=start
        )
    pieces = len(analyzer.tokenizer.vocabulary)  # type: ignore[attr-defined]
    if pieces > encoder.config.vocab_size:
        raise InputError(
            f"the encoder knows {encoder.config.vocab_size:,} word pieces and its tokenizer gives {pieces:,}",
            file=start,
        )
    return encoder_of(encoder), analyzer


def loaded(network: Network | Transformer) -> Any:
    """A network that was saved, in torch."""
    if not isinstance(network, Network):
        raise InputError("only plain BERT encoders can be trained, and this is another", file=str(network.folder))
    from vizsla.networks.inference import load
    from vizsla.networks.weights import read_weights

    return load(read_weights(network.folder), network.kind, network.heads, network.pooling or "mean")
