"""BART as a BERT with a decoder: the same layers under other names.

BART has no token types, so BERT's vector of token type 0 is added to the position embeddings, which begin at the third
row of BART's tables. The epsilon of normalisations is 1e-12 in BERT and 1e-5 in BART, which changes MiniLM's states by
at most 0.005; there is no other difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vizsla.errors import InputError, VizslaError
from vizsla.neural.checkpoints.checkpoint import bert_arrays, find_checkpoint, random_texts, trainable_config
from vizsla.neural.checkpoints.generator import GeneratorCheckpoint
from vizsla.neural.onnx_generator import write_seq2seq
from vizsla.neural.onnx_graph import Precision
from vizsla.neural.weights import read_weights

_OFFSET = 2  # rows of BART's position embeddings before that of the first position
_TOKENS = {"pad_token_id": "[PAD]", "decoder_start_token_id": "[CLS]", "eos_token_id": "[SEP]"}
_WORDS, _TOKEN_TYPES = "embeddings.word_embeddings.weight", "embeddings.token_type_embeddings.weight"
_POSITIONS = "embeddings.position_embeddings.weight"
_SHARED, _BIAS = "model.shared.weight", "final_logits_bias"
_ATTENTION = {"q_proj": "self.query", "k_proj": "self.key", "v_proj": "self.value", "out_proj": "output.dense"}
_LAYER = {"fc1": "intermediate.dense", "fc2": "output.dense", "final_layer_norm": "output.LayerNorm"}
_ATTENTIONS = {
    "encoder": {"self_attn": "attention"},
    "decoder": {"self_attn": "attention", "encoder_attn": "crossattention"},
}
_PREFIXES = {"encoder": "", "decoder": "decoder."}
_PLAIN = {"activation_function": "gelu", "scale_embedding": False, "tie_word_embeddings": True}


def bart_checkpoint(which: str | Path, decoder_layers: int) -> GeneratorCheckpoint:
    """A BART whose encoder is a BERT, with its tokenizer and without dropout; `start_arrays` initialises it."""
    folder = find_checkpoint(which)
    bert = trainable_config(folder)
    config: dict[str, Any] = {"architectures": ["BartForConditionalGeneration"], "model_type": "bart", **_PLAIN}
    try:
        config |= {name: int(bert[name]) for name in ("vocab_size", "max_position_embeddings")}
        config |= {"d_model": int(bert["hidden_size"]), "encoder_layers": int(bert["num_hidden_layers"])}
        for side in _ATTENTIONS:
            config[f"{side}_attention_heads"] = int(bert["num_attention_heads"])
            config[f"{side}_ffn_dim"] = int(bert["intermediate_size"])
    except (KeyError, TypeError, ValueError) as e:
        raise InputError(f"config.json does not describe a BERT ({e!r})", file=str(folder)) from None
    config |= {"decoder_layers": len(spaced(config["encoder_layers"], decoder_layers)), "forced_eos_token_id": None}
    config |= {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    checkpoint = GeneratorCheckpoint.of(folder, config, seq2seq=True)
    for role, name in _TOKENS.items():
        config[role] = checkpoint.tokenizer.token_to_id(name)
        if config[role] is None:
            raise InputError(f"the tokenizer of this encoder has no {name}", file=str(folder))
    config["bos_token_id"] = config["decoder_start_token_id"]
    return checkpoint


def start_arrays(checkpoint: GeneratorCheckpoint) -> dict[str, np.ndarray]:
    """The initial arrays of a BART of `bart_checkpoint`.

    The decoder's layers are copies of evenly spaced layers of the encoder, including the first and the last.
    Cross-attention is initialised with the same layer's self-attention.
    """
    bert, config = bert_arrays(checkpoint.folder, trainable_config(checkpoint.folder)), checkpoint.config
    layers = spaced(config["encoder_layers"], config["decoder_layers"])
    return bart_arrays(_with_decoder(bert, layers), config)


def _with_decoder(bert: Mapping[str, np.ndarray], layers: list[int]) -> dict[str, np.ndarray]:
    """A BERT's arrays with those of a decoder whose layers are copies of these layers."""
    arrays = dict(bert)
    arrays[f"decoder.{_POSITIONS}"] = bert[_POSITIONS] + bert[_TOKEN_TYPES][0]
    for name, array in bert.items():
        if name.startswith("embeddings.LayerNorm."):
            arrays[f"decoder.{name}"] = array
        for layer, source in enumerate(layers):
            at = f"encoder.layer.{source}."
            if name.startswith(at):
                own = f"decoder.layer.{layer}.{name.removeprefix(at)}"
                arrays[own] = array
                arrays[own.replace(".attention.", ".crossattention.")] = array
    return arrays


def spaced(layers: int, count: int) -> list[int]:
    """The numbers of evenly spaced layers.

    >>> spaced(6, 3), spaced(6, 6)
    ([0, 2, 5], [0, 1, 2, 3, 4, 5])
    """
    if not 1 <= count <= layers:
        raise VizslaError(f"a decoder begins with 1 to {layers} of the encoder's layers, not {count}")
    return [int(number) for number in np.linspace(0, layers - 1, count).round()]


def is_plain_bart(config: Mapping[str, Any]) -> bool:
    """Whether a config.json describes a BART that runs without torch: gelu, shared and unscaled word embeddings."""
    return config.get("model_type") == "bart" and all(
        config.get(name, usual) == usual for name, usual in _PLAIN.items()
    )


def write_quantised(
    checkpoint: GeneratorCheckpoint,
    arrays: Mapping[str, np.ndarray],
    folder: Path,
    sample: Sequence[Sequence[int]] = (),
    precision: Precision = "int8",
) -> None:
    """Write a BART's arrays in 8 bits, as onnxruntime runs it; see `write_seq2seq`.

    `sample`: some inputs as token ids to calibrate the quantisation with; random ones by default.
    """
    config = checkpoint.config
    weights = named_as_bert(arrays, config, checkpoint.folder)
    positions = len(weights[_POSITIONS])
    write_seq2seq(
        folder,
        weights,
        encoder_heads=int(config["encoder_attention_heads"]),
        decoder_heads=int(config["decoder_attention_heads"]),
        precision=precision,
        sample=sample or random_texts(len(weights[_WORDS]), positions, *checkpoint.frame),
    )


def read_quantised(checkpoint: GeneratorCheckpoint) -> dict[str, np.ndarray]:
    """The arrays of a BART that was written in 8 bits, in floats."""
    return bart_arrays(read_weights(checkpoint.folder), checkpoint.config)


def bart_arrays(arrays: Mapping[str, np.ndarray], config: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """BART's arrays under its own names, from those of a BERT with a decoder."""
    made = {own: arrays[name] for own, name in _names(config).items()}
    made[_SHARED] = arrays[_WORDS]
    for side, prefix in _PREFIXES.items():
        positions = arrays[prefix + _POSITIONS] + (arrays[_TOKEN_TYPES][0] if side == "encoder" else 0)
        made[f"model.{side}.embed_positions.weight"] = np.pad(positions, ((_OFFSET, 0), (0, 0)))
    if "decoder.bias" in arrays:
        made[_BIAS] = arrays["decoder.bias"][None]
    return made


def named_as_bert(bart: Mapping[str, np.ndarray], config: Mapping[str, Any], folder: Path) -> dict[str, np.ndarray]:
    """BART's arrays under the names of a BERT with a decoder; `bart_arrays` is the inverse."""
    try:
        made = {name: bart[own] for own, name in _names(config).items()}
        made[_WORDS] = bart[_SHARED]
        for side, prefix in _PREFIXES.items():
            made[prefix + _POSITIONS] = bart[f"model.{side}.embed_positions.weight"][_OFFSET:]
    except KeyError as e:
        raise InputError(f"these weights do not fit config.json ({e.args[0]} is missing)", file=str(folder)) from None
    made[_TOKEN_TYPES] = np.zeros((1, made[_WORDS].shape[1]), np.float32)
    if np.any(bart.get(_BIAS, 0)):
        made["decoder.bias"] = bart[_BIAS][0]
    return made


def _names(config: Mapping[str, Any]) -> dict[str, str]:
    """For each array of BART's layers and normalisations its name in a BERT with a decoder."""
    names = {}
    for side, attentions in _ATTENTIONS.items():
        names[f"model.{side}.layernorm_embedding"] = f"{_PREFIXES[side]}embeddings.LayerNorm"
        for layer in range(int(config[f"{side}_layers"])):
            own, theirs = f"model.{side}.layers.{layer}.", f"{side}.layer.{layer}."
            names |= {own + part: theirs + name for part, name in _LAYER.items()}
            for attention, name in attentions.items():
                names |= {f"{own}{attention}.{part}": f"{theirs}{name}.{what}" for part, what in _ATTENTION.items()}
                names[f"{own}{attention}_layer_norm"] = f"{theirs}{name}.output.LayerNorm"
    return {f"{own}.{part}": f"{name}.{part}" for own, name in names.items() for part in ("weight", "bias")}
