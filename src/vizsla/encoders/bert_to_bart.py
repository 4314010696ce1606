"""A BERT as the start of a BART: its layers are the encoder, and copies of some are the first layers of a decoder.

BART's layers are BERT's under other names. What BART does not have is moved: the vector of the first token type is
added to the positions, which begin at the third row of BART's table. Normalisations have an epsilon of 1e-12 in BERT
and of 1e-5 in BART: MiniLM's states change by at most 0.005 through that, and are the same in all else.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.encoders.checkpoint import bert_arrays, find_checkpoint, trainable_config
from vizsla.encoders.generator import GeneratorCheckpoint
from vizsla.errors import InputError, VizslaError

_OFFSET = 2  # rows of BART's tables of positions before the first one
_TOKENS = {"pad_token_id": "[PAD]", "decoder_start_token_id": "[CLS]", "eos_token_id": "[SEP]"}
_ATTENTION = {"q_proj": "self.query", "k_proj": "self.key", "v_proj": "self.value", "out_proj": "output.dense"}
_LAYER = {"fc1": "intermediate.dense", "fc2": "output.dense", "final_layer_norm": "output.LayerNorm"}


def bart_checkpoint(which: str | Path, decoder_layers: int) -> GeneratorCheckpoint:
    """The BART that a BERT becomes, with BERT's tokenizer and without dropout; `bart_arrays` are its weights."""
    folder = find_checkpoint(which)
    bert = trainable_config(folder)
    try:
        sizes = {"d_model": int(bert["hidden_size"])}
        for side, layers in (("encoder", int(bert["num_hidden_layers"])), ("decoder", decoder_layers)):
            sizes |= {f"{side}_layers": layers, f"{side}_attention_heads": int(bert["num_attention_heads"])}
            sizes |= {f"{side}_ffn_dim": int(bert["intermediate_size"])}
        sizes |= {name: int(bert[name]) for name in ("vocab_size", "max_position_embeddings")}
    except (KeyError, TypeError, ValueError) as e:
        raise InputError(f"config.json does not describe a BERT ({e!r})", file=str(folder)) from None
    checkpoint = GeneratorCheckpoint.of(folder, _config(sizes), seq2seq=True)
    numbers = {role: checkpoint.tokenizer.token_to_id(name) for role, name in _TOKENS.items()}
    for role, name in _TOKENS.items():
        if numbers[role] is None:
            raise InputError(f"the tokenizer of this encoder has no {name}", file=str(folder))
    checkpoint.config.update(numbers, bos_token_id=numbers["decoder_start_token_id"])
    return checkpoint


def _config(sizes: Mapping[str, int]) -> dict[str, Any]:
    return {
        "architectures": ["BartForConditionalGeneration"],
        "model_type": "bart",
        **sizes,
        "activation_function": "gelu",
        "scale_embedding": False,
        "tie_word_embeddings": True,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "activation_dropout": 0.0,
        "forced_eos_token_id": None,
    }


def bart_arrays(checkpoint: GeneratorCheckpoint) -> dict[str, np.ndarray]:
    """The arrays of a BART that `bart_checkpoint` describes.

    The decoder's layers are evenly spaced layers of the encoder, the first and the last among them. The attention to
    the input begins as the same layer's attention to its own text.
    """
    config = checkpoint.config
    bert = bert_arrays(checkpoint.folder, trainable_config(checkpoint.folder))
    positions = bert["embeddings.position_embeddings.weight"] + bert["embeddings.token_type_embeddings.weight"][0]
    arrays = {"model.shared.weight": bert["embeddings.word_embeddings.weight"]}
    names = {}
    for side in ("encoder", "decoder"):
        arrays[f"model.{side}.embed_positions.weight"] = np.pad(positions, ((_OFFSET, 0), (0, 0)))
        names[f"model.{side}.layernorm_embedding"] = "embeddings.LayerNorm"
    for layer in range(config["encoder_layers"]):
        names |= _layer_names(f"model.encoder.layers.{layer}.", layer, ("self_attn",))
    for layer, source in enumerate(spaced(config["encoder_layers"], config["decoder_layers"])):
        names |= _layer_names(f"model.decoder.layers.{layer}.", source, ("self_attn", "encoder_attn"))
    for own, theirs in names.items():
        arrays |= {f"{own}.{part}": bert[f"{theirs}.{part}"] for part in ("weight", "bias")}
    return arrays


def spaced(layers: int, count: int) -> list[int]:
    """The numbers of evenly spaced layers.

    >>> spaced(6, 3), spaced(6, 6)
    ([0, 2, 5], [0, 1, 2, 3, 4, 5])
    """
    if not 1 <= count <= layers:
        raise VizslaError(f"a decoder begins with 1 to {layers} of the encoder's layers, not {count}")
    return [int(number) for number in np.linspace(0, layers - 1, count).round()]


def _layer_names(prefix: str, source: int, attentions: tuple[str, ...]) -> dict[str, str]:
    """For each part of a layer of BART's the part of a BERT's layer that it begins as."""
    at = f"encoder.layer.{source}."
    names = {prefix + own: at + theirs for own, theirs in _LAYER.items()}
    for attention in attentions:
        names |= {f"{prefix}{attention}.{own}": f"{at}attention.{theirs}" for own, theirs in _ATTENTION.items()}
        names[f"{prefix}{attention}_layer_norm"] = f"{at}attention.output.LayerNorm"
    return names
