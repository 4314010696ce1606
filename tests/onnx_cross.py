"""Tiny cross-encoders as ONNX files, made for tests: their tokenizer, their files and their scores by hand."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WORDS = ("dog", "cat", "river", "stone", "bark", "night", "the", "##s")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
WIDTH = 16


def save_tokenizer(folder: Path, truncation: int | None = None) -> None:
    """BERT's tokenizer for a few words, as transformers saves it."""
    from tokenizers import BertWordPieceTokenizer

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = BertWordPieceTokenizer({word: i for i, word in enumerate((*SPECIAL, *WORDS))})
    if truncation:
        tokenizer.enable_truncation(truncation)
        tokenizer.enable_padding(length=truncation)
    tokenizer.save(str(folder / "tokenizer.json"))
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIAL, strict=True))
    about = {f"{name}_token": word for name, word in names.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer", **about}))


def save_network(
    file: Path,
    *,
    labels: int = 1,
    inputs: Sequence[str] = ("input_ids", "attention_mask", "token_type_ids"),
    output: Sequence[int | str] | None = None,
    name: str = "logits",
    kind: int = TensorProto.INT64,
    mask: int | None = None,
    shape: Sequence[int | str] = ("batch", "tokens"),
    states: bool = False,
) -> None:
    """Embeddings of words and token types, a layer with tanh, the mean of what is masked in, and a linear layer.

    `kind`: the type of its inputs, and `mask` that of the mask. `states`: the network gives the states of tokens
    instead of scores, as an encoder does.
    """
    rng = np.random.default_rng(3)
    arrays = {
        "words": rng.normal(size=(len(SPECIAL) + len(WORDS), WIDTH)),
        "types": rng.normal(size=(2, WIDTH)),
        "dense": rng.normal(size=(WIDTH, WIDTH)),
        "head": rng.normal(size=(WIDTH, labels)),
    }
    weights = [numpy_helper.from_array(array.astype(np.float32), n) for n, array in arrays.items()]
    weights.append(numpy_helper.from_array(np.array([2], np.int64), "last"))
    nodes = [helper.make_node("Gather", ["words", inputs[0]], ["sum"])]
    if "token_type_ids" in inputs:
        nodes.append(helper.make_node("Gather", ["types", "token_type_ids"], ["segments"]))
        nodes.append(helper.make_node("Add", ["sum", "segments"], ["embedded"]))
    before = nodes[-1].output[0]
    nodes.append(helper.make_node("MatMul", [before, "dense"], ["hidden"]))
    nodes.append(helper.make_node("Tanh", ["hidden"], ["active"]))
    if "attention_mask" in inputs:
        nodes.append(helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Unsqueeze", ["mask", "last"], ["column"]))
        nodes.append(helper.make_node("Mul", ["active", "column"], ["kept"]))
    kept = nodes[-1].output[0]
    if states:
        nodes.append(helper.make_node("MatMul", [kept, "head"], [name]))
    else:
        nodes.append(helper.make_node("ReduceSum", [kept, "first"], ["pooled"], keepdims=0))
        nodes.append(helper.make_node("MatMul", ["pooled", "head"], [name]))
        weights.append(numpy_helper.from_array(np.array([1], np.int64), "first"))
    graph = helper.make_graph(
        nodes, "cross",
        [helper.make_tensor_value_info(n, mask or kind if "mask" in n else kind, list(shape)) for n in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(output or (shape[0], labels)))],
        weights,
    )  # fmt: skip
    file.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)


def quantise(file: Path, target: Path) -> None:
    """Put a network into 8 bits whose scales are worked out for each batch, as exporters do."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    quantize_dynamic(file, target, weight_type=QuantType.QInt8, extra_options={"MatMulConstBOnly": True})


def by_hand(file: Path, tokenizer: Path, queries: Sequence[str], texts: Sequence[str], length: int) -> np.ndarray:
    """What onnxruntime gives for pairs as transformers' tokenizer makes them, one by one."""
    import onnxruntime
    from transformers import AutoTokenizer

    pieces: Any = AutoTokenizer.from_pretrained(tokenizer)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(file, options)
    wanted = {i.name: np.int32 if "int32" in i.type else np.int64 for i in session.get_inputs()}
    scores = []
    for query, text in zip(queries, texts, strict=True):
        pair = pieces([query], [text], truncation="only_second", max_length=length, return_tensors="np")
        scores.append(session.run(None, {name: pair[name].astype(t) for name, t in wanted.items()})[0][0])
    return np.array(scores)
