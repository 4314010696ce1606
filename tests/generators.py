"""Tiny generators at random, saved as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from encoders import save_pieces

SMALL = {"vocab_size": 400, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}


def tiny_causal(folder: Path, kind: str = "llama", seed: int = 0, scale: float = 6, **options: Any) -> Path:
    """A Llama of two layers, or another causal model."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    if kind == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4}
    elif kind != "gpt_neox":
        sizes |= {"num_key_value_heads": 2}
    config = transformers.AutoConfig.for_model(kind, **SMALL, **sizes, max_position_embeddings=1024, **options)
    _save(transformers.AutoModelForCausalLM.from_config(config), folder, "", scale)
    return folder


def tiny_seq2seq(folder: Path, kind: str = "t5", seed: int = 0, scale: float = 6) -> Path:
    """A T5 of two layers, or another seq2seq model."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    if kind == "bart":
        sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
        sizes |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    config = transformers.AutoConfig.for_model(kind, **SMALL, **sizes, decoder_start_token_id=0)
    _save(transformers.AutoModelForSeq2SeqLM.from_config(config), folder, "" if kind == "t5" else "<s>", scale)
    return folder


def _save(model: Any, folder: Path, start: str, scale: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():  # far from uniform, so that equal choices are no accident
            if parameter.ndim > 1:
                parameter.mul_(scale)
    model.save_pretrained(folder)
    save_pieces(folder, start=start, length=1024)
