"""Tiny encoders, SPLADEs and generators with random weights, saved as others save theirs."""

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
SMALL_GENERATOR = {"vocab_size": 400, "bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
ST = "sentence_transformers"
OLD = f"{ST}.sparse_encoder.modules.mlm_transformer.MLMTransformer"
NEW = f"{ST}.base.modules.transformer.Transformer"
POOLING = f"{ST}.sparse_encoder.modules.splade_pooling.SpladePooling"
TABLE = f"{ST}.sparse_encoder.modules.sparse_static_embedding.SparseStaticEmbedding"


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


def masked_language(config: Any = None) -> Any:
    """A masked-language model with larger weights than a new one has, so that terms differ."""
    model = transformers.AutoModelForMaskedLM.from_config(config or bert_config()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3).add_(torch.randn_like(parameter) * 0.05)
    return model


def save_masked_language(folder: Path, model: Any) -> Any:
    """A model in transformers' own layout, with BERT's tokenizer."""
    model.save_pretrained(folder)
    return save_bert_tokenizer(folder)


def save_splade(folder: Path, how: str = "max", activation: str = "relu", kind: str = OLD) -> None:
    """What sentence-transformers writes beside a masked-language model."""
    listed = [("", kind), ("1_SpladePooling", POOLING)]
    modules = [{"idx": i, "name": str(i), "path": path, "type": name} for i, (path, name) in enumerate(listed)]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_SpladePooling").mkdir(exist_ok=True)
    pooling = {"pooling_strategy": how, "activation_function": activation, "word_embedding_dimension": None}
    (folder / "1_SpladePooling" / "config.json").write_text(json.dumps(pooling))
    about = {"transformer_task": "fill-mask"} if kind == NEW else {"max_seq_length": 64, "do_lower_case": False}
    (folder / "sentence_bert_config.json").write_text(json.dumps(about))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"model_type": "SparseEncoder"}))


def expected(model: Any, tokenizer: Any, text: str, how: str = "max", activation: str = "relu") -> np.ndarray:
    """[vocabulary] the weights by transformers and the formula, one text at a time."""
    ids = tokenizer(text, truncation=True, max_length=64, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        weights = torch.log1p(torch.relu(model(input_ids=ids).logits[0]))
    if activation == "log1p_relu":
        weights = torch.log1p(weights)
    return np.asarray(weights.amax(0) if how == "max" else weights.sum(0))


def dense_rows(rows: tuple[np.ndarray, np.ndarray, np.ndarray], width: int) -> np.ndarray:
    """[texts, width] from pointers, terms and weights."""
    pointers, terms, weights = rows
    vectors = np.zeros((len(pointers) - 1, width), np.float32)
    vectors[np.repeat(np.arange(len(pointers) - 1), np.diff(pointers)), terms] = weights
    return vectors


def tiny_causal(folder: Path, kind: str = "llama", seed: int = 0, scale: float = 6, **options: Any) -> Path:
    """A Llama of two layers, or another causal model."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    if kind == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4}
    elif kind != "gpt_neox":
        sizes |= {"num_key_value_heads": 2}
    config = transformers.AutoConfig.for_model(
        kind, **SMALL_GENERATOR, **sizes, max_position_embeddings=1024, **options
    )
    _save_generator(transformers.AutoModelForCausalLM.from_config(config), folder, "", scale)
    return folder


def tiny_seq2seq(folder: Path, kind: str = "t5", seed: int = 0, scale: float = 6) -> Path:
    """A T5 of two layers, or another seq2seq model."""
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    if kind == "bart":
        sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4}
        sizes |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    config = transformers.AutoConfig.for_model(kind, **SMALL_GENERATOR, **sizes, decoder_start_token_id=0)
    _save_generator(
        transformers.AutoModelForSeq2SeqLM.from_config(config), folder, "" if kind == "t5" else "<s>", scale
    )
    return folder


def _save_generator(model: Any, folder: Path, start: str, scale: float) -> None:
    with torch.no_grad():
        for parameter in model.parameters():  # far from uniform, so that equal choices are no accident
            if parameter.ndim > 1:
                parameter.mul_(scale)
    model.save_pretrained(folder)
    save_pieces(folder, start=start, length=1024)
