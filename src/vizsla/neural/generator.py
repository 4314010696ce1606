"""Generators: networks of transformers that read a text and write another, as they are trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vizsla.errors import InputError
from vizsla.neural.chunks import Batch, Chunk
from vizsla.neural.inference import transformers

TARGET = 1 << 24
"""Added to the ids of tokens that are to be predicted: inputs and targets share one row."""
_PLAIN_HEADS = ("gpt2", "gpt_neo", "gpt_neox", "llama", "mistral", "opt", "qwen2", "qwen3", "smollm3")
"""Causal models whose logits are the product of the last state and the output embeddings, and nothing more."""


class Generator(nn.Module):
    """A causal or a seq2seq model of transformers', and the loss of what it should write."""

    kind = "generator"

    def __init__(self, model: Any, seq2seq: bool) -> None:
        super().__init__()
        self.model, self.seq2seq = model, seq2seq
        self.hidden: int = model.get_input_embeddings().weight.shape[1]

    def forward(self, chunk: Chunk) -> Tensor:
        """[texts, 3] the negative log-likelihood of each text's target, its tokens, and how many were predicted."""
        ids, mask = chunk.padded()
        wanted = (ids >= TARGET) & mask
        ids = ids & (TARGET - 1)
        rows, targets, logits = self._seq2seq(ids, mask, wanted) if self.seq2seq else self._causal(ids, wanted)
        losses = F.cross_entropy(logits.float(), targets, reduction="none")
        right = (logits.argmax(-1) == targets).float()
        per_token = torch.stack([losses, torch.ones_like(losses), right], 1)
        return losses.new_zeros(len(ids), 3).index_add(0, rows, per_token)

    def vectors(self, outputs: Sequence[Tensor], batch: Batch) -> Tensor:
        """[texts, 3] in the order of the batch."""
        return torch.cat(list(outputs))[torch.argsort(batch.order)]

    def _causal(self, ids: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows, columns = wanted.nonzero(as_tuple=True)  # padding is on the right, where a causal model does not look
        if self.model.config.model_type in _PLAIN_HEADS:
            states = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state
            return rows, ids[rows, columns], self.model.get_output_embeddings()(states[rows, columns - 1])
        logits = self.model(input_ids=ids, use_cache=False).logits
        return rows, ids[rows, columns], logits[rows, columns - 1]

    def _seq2seq(self, ids: Tensor, mask: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        sources, source_mask = _split(ids, mask & ~wanted)
        targets, target_mask = _split(ids, wanted)
        first = targets.new_full((len(targets), 1), start_token(self.model))
        logits = self.model(
            input_ids=sources,
            attention_mask=source_mask.long(),
            decoder_input_ids=torch.cat([first, targets[:, :-1]], 1),
            use_cache=False,
        ).logits
        rows = target_mask.nonzero(as_tuple=True)[0]
        return rows, targets[target_mask], logits[target_mask]


def _split(ids: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
    """The chosen tokens of each row, padded on the right, and their mask."""
    lengths = chosen.sum(1)
    mask = torch.arange(int(lengths.max()), device=ids.device) < lengths[:, None]
    return ids.new_zeros(mask.shape).masked_scatter_(mask, ids[chosen]), mask


def start_token(model: Any) -> int:
    """The token that a seq2seq model's decoder begins with."""
    for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id"):
        number = getattr(model.config, name, None)
        if number is not None:
            return int(number)
    raise InputError("config.json names no decoder_start_token_id", file=str(model.config.name_or_path))


def open_model(folder: str | Path, seq2seq: bool) -> Any:
    """The model in a folder, in 32-bit floats and ready to run."""
    library = transformers()
    library.utils.logging.disable_progress_bar()
    opener = library.AutoModelForSeq2SeqLM if seq2seq else library.AutoModelForCausalLM
    try:
        return opener.from_pretrained(folder, local_files_only=True, dtype=torch.float32).eval()
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as e:
        reason = (str(e) or type(e).__name__).splitlines()[0]
        raise InputError(f"transformers cannot open this generator ({reason})", file=str(folder)) from None


def new_model(config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """A seq2seq model that a config.json describes, with these arrays, in 32-bit floats and ready to run."""
    library = transformers()
    model = library.AutoModelForSeq2SeqLM.from_config(library.AutoConfig.for_model(**config)).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(arrays[name]))
    return model.eval()
