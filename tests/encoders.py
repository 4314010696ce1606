"""Tiny encoders at random, saved as others save theirs."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from vizsla import Analyzer

TEXTS = ["A dog that points at birds.", "Taxes on vehicles, " * 30, "x", "Dogs and birds in a field"]
WORDS = 3000
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
DOCUMENTS = [
    {"id": "1", "title": "Dogs", "text": "A dog that points and retrieves birds."},
    {"id": "2", "title": "", "text": "Taxes on vehicles that are used for business."},
    {"id": "3", "title": "Puppies", "text": "Young hounds learn to fetch."},
    {"id": "4", "title": "", "text": " "},
]


def save_bert_tokenizer(folder: Path) -> Any:
    """BERT's word pieces, the first of them."""
    words = Analyzer.parse("wordpiece").tokenizer.vocabulary[:WORDS]  # type: ignore[attr-defined]
    made = transformers.BertTokenizerFast(vocab={t: i for i, t in enumerate(words)}, do_lower_case=True)
    made.save_pretrained(folder)
    return made


def save_pieces(folder: Path, start: str = "<s>", end: str = "</s>", length: int = 64) -> Any:
    """A tokenizer of its own over bytes, each text between two special tokens, or before one."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    made.train_from_iterator(TEXTS + [d["text"] for d in DOCUMENTS], trainer)
    frame = f"{start} $A {end}".strip()
    numbers = [(t, made.token_to_id(t)) for t in (start, end) if t]
    made.post_processor = processors.TemplateProcessing(single=frame, special_tokens=numbers)
    names = {"pad_token": "<pad>", "unk_token": "<unk>", "mask_token": "<mask>", "eos_token": end, "sep_token": end}
    names |= {"cls_token": start, "bos_token": start} if start else {}
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=made, model_max_length=length, **names)
    fast.save_pretrained(folder)
    return fast


def save_modules(folder: Path, *modules: tuple[str, str, dict[str, Any]], **about: Any) -> None:
    """What sentence-transformers writes beside an encoder."""
    kinds = [("", "Transformer"), *((path, kind) for path, kind, _ in modules)]
    told = [
        {"idx": i, "name": str(i), "path": p, "type": f"sentence_transformers.models.{k}"}
        for i, (p, k) in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(told))
    for path, _, config in modules:
        (folder / path).mkdir(exist_ok=True)
        (folder / path / "config.json").write_text(json.dumps(config))
    (folder / "config_sentence_transformers.json").write_text(json.dumps(about))


def states(model: Any, ids: list[int], **more: Any) -> np.ndarray:
    with torch.no_grad():
        found = model(input_ids=torch.tensor([ids]), **more).last_hidden_state[0]
    return np.asarray(found)


KINDS: dict[str, Callable[[], Any]] = {
    "roberta": lambda: transformers.RobertaConfig(
        **SMALL, vocab_size=400, max_position_embeddings=70, pad_token_id=0, type_vocab_size=1
    ),
    "xlm-roberta": lambda: transformers.XLMRobertaConfig(
        **SMALL, vocab_size=400, max_position_embeddings=70, pad_token_id=0
    ),
    "distilbert": lambda: transformers.DistilBertConfig(
        dim=16, n_layers=2, n_heads=2, hidden_dim=24, vocab_size=400, max_position_embeddings=64
    ),
    "mpnet": lambda: transformers.MPNetConfig(**SMALL, vocab_size=400, max_position_embeddings=70, pad_token_id=0),
    "electra": lambda: transformers.ElectraConfig(
        **SMALL, embedding_size=8, vocab_size=400, max_position_embeddings=64
    ),
    "albert": lambda: transformers.AlbertConfig(
        **SMALL, embedding_size=8, vocab_size=400, max_position_embeddings=64
    ),
    "modernbert": lambda: transformers.ModernBertConfig(
        **SMALL, vocab_size=400, max_position_embeddings=64, pad_token_id=0, bos_token_id=2, eos_token_id=3,
        cls_token_id=2, sep_token_id=3,
    ),
    "t5": lambda: transformers.T5Config(d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, vocab_size=400),
    "relu-bert": lambda: transformers.BertConfig(
        **SMALL, hidden_act="relu", vocab_size=400, max_position_embeddings=64
    ),
}  # fmt: skip


def made_encoder(config: Any) -> Any:
    if config.model_type == "t5":
        return transformers.T5EncoderModel(config).eval()
    return transformers.AutoModel.from_config(config).eval()


def bert_config(**options: Any) -> Any:
    return transformers.BertConfig(**{**SMALL, "vocab_size": WORDS, "max_position_embeddings": 64, **options})


def export(model: Any, file: Path, *, output: str = "last_hidden_state", token_types: bool = True) -> None:
    """Write an encoder as an ONNX file, as torch does."""
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if token_types else [])]

    class Exported(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = model

        def forward(self, *inputs: Any) -> Any:
            made = self.encoder(**dict(zip(names, inputs, strict=True)))
            return made if isinstance(made, torch.Tensor) else made.last_hidden_state

    ids = torch.full((2, 5), 7)
    axes = {name: {0: "batch", 1: "tokens"} for name in names}
    pooled = output == "sentence_embedding"
    file.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Exported().eval(), (ids, torch.ones_like(ids), torch.zeros_like(ids))[: len(names)], str(file),
            input_names=names, output_names=[output], opset_version=17, dynamo=False,
            dynamic_axes={**axes, output: {0: "batch"} if pooled else {0: "batch", 1: "tokens"}},
        )  # fmt: skip
