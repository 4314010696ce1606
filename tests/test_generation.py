"""Texts to texts: what the fast paths write is what transformers' own `generate` writes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiny_checkpoints import tiny_causal, tiny_seq2seq, torch, transformers
from vizsla import VizslaError
from vizsla.errors import InputError
from vizsla.models.generator import CheckpointGenerator, Sampling, open_generator
from vizsla.neural.torch_generator import next_tokens

pytestmark = pytest.mark.usefixtures("in_floats")

PASSAGES = [
    "A dog that points at birds.",
    "Taxes on vehicles that are used for business, " * 9,
    "x",
    "Young hounds learn to fetch",
    "Dogs and birds in a field. " * 4,
]
KINDS = ("llama", "mistral", "qwen2", "gpt2", "t5", "bart")


def tiny(folder: Path, kind: str) -> Path:
    return (tiny_seq2seq if kind in ("t5", "bart") else tiny_causal)(folder, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_texts_are_those_of_transformers(tmp_path: Path, kind: str) -> None:
    folder = tiny(tmp_path / kind, kind)
    generator = open_generator(folder)
    assert isinstance(generator, CheckpointGenerator)
    written = generator.generate(PASSAGES, Sampling(texts=1, temperature=0, max_tokens=12))
    opener = transformers.AutoModelForSeq2SeqLM if kind in ("t5", "bart") else transformers.AutoModelForCausalLM
    model = opener.from_pretrained(folder).eval()
    model.generation_config.forced_eos_token_id = None  # BART's, at the last token
    for passage, own in zip(PASSAGES, written, strict=True):
        ids = torch.from_numpy(generator.checkpoint.inputs([passage])[0])[None]
        result = model.generate(ids, do_sample=False, max_new_tokens=12, attention_mask=torch.ones_like(ids))[0]
        tokens = result[1:] if kind in ("t5", "bart") else result[ids.shape[1] :]
        text = generator.checkpoint.texts([[t for t in tokens.tolist() if t not in generator.checkpoint.ends]])
        assert own == text


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_sampled_texts_follow_the_distribution_of_the_model(tmp_path: Path, kind: str) -> None:
    """Each token is the one that inverting the model's own distribution at the random number gives."""
    generator = open_generator(tiny(tmp_path / kind, kind))
    assert isinstance(generator, CheckpointGenerator)
    sampling = Sampling(texts=7, top_k=5, max_tokens=9, seed=3)
    keys = list("abcde")
    inputs, uniform = generator.checkpoint.inputs(PASSAGES), sampling.uniform(keys)
    written = generator.running.generate(inputs, uniform, top_k=5, top_p=1.0, temperature=1.0)
    model, ends = generator.running.model, generator.checkpoint.ends
    for row, numbers, texts in zip(inputs, uniform, written, strict=True):
        for text, drawn in zip(texts, numbers, strict=True):
            assert text == _slow(model, kind in ("t5", "bart"), row, drawn, ends)


def _slow(model: object, seq2seq: bool, row: np.ndarray, drawn: np.ndarray, ends: list[int]) -> list[int]:
    written: list[int] = []
    for number in drawn:
        with torch.inference_mode():
            if seq2seq:
                start = [model.config.decoder_start_token_id]  # type: ignore[attr-defined]
                logits = model(  # type: ignore[operator]
                    input_ids=torch.from_numpy(row)[None], decoder_input_ids=torch.tensor([start + written])
                ).logits[0, -1]
            else:
                logits = model(input_ids=torch.tensor([row.tolist() + written])).logits[0, -1]  # type: ignore[operator]
        values, tokens = logits.float().topk(5)
        cumulative = torch.softmax(values, -1).cumsum(-1)
        token = int(tokens[min(int((cumulative <= float(number) * cumulative[-1]).sum()), 4)])
        if token in ends:
            break
        written.append(token)
    return written


def test_texts_depend_on_their_key_and_the_seed(tmp_path: Path) -> None:
    generator = open_generator(tiny_causal(tmp_path / "m"))
    sampling = Sampling(texts=4, max_tokens=8)
    first = generator.generate(PASSAGES, sampling, keys=list("abcde"))
    assert generator.generate(PASSAGES, sampling, keys=list("abcde")) == first
    assert generator.generate(PASSAGES, Sampling(texts=4, max_tokens=8, seed=1), keys=list("abcde")) != first
    assert generator.generate(PASSAGES[:1], sampling, keys=["a"]) == first[:1]
    assert len(set(first[0])) > 1
    assert generator.generate([], sampling) == []
    assert [len(texts) for texts in generator.generate(["", " "], sampling)] == [4, 4]


def test_long_inputs_are_cut(tmp_path: Path) -> None:
    generator = open_generator(tiny_causal(tmp_path / "m"))
    words = "birds " * 2000
    assert generator.token_counts([words])[0] > generator.length == 512
    sampling = Sampling(texts=2, max_tokens=4)
    cut = " ".join(["birds"] * 600)
    assert generator.generate([words], sampling, ["k"]) == generator.generate([cut], sampling, ["k"])


@given(
    st.lists(st.floats(-9, 9, width=32), min_size=2, max_size=30),
    st.floats(0, 0.999),
    st.integers(0, 31),
    st.floats(0.05, 1.0),
    st.floats(0.1, 3.0),
)
def test_only_likely_tokens_are_drawn(
    scores: list[float], number: float, top_k: int, top_p: float, temperature: float
) -> None:
    logits = torch.tensor([scores])
    token = int(next_tokens(logits, torch.tensor([number]), top_k, top_p, temperature)[0])
    probabilities = torch.softmax(logits[0].double() / temperature, -1)
    likelier = probabilities[probabilities > probabilities[token] * (1 + 1e-4)]
    assert not top_k or len(likelier) < top_k
    kept = torch.sort(probabilities, descending=True).values[: top_k or None]
    assert float(likelier.sum() / kept.sum()) < top_p + 1e-4


def test_bad_checkpoints_are_refused_in_one_sentence(tmp_path: Path) -> None:
    from tiny_checkpoints import SMALL, save_bert_tokenizer

    folder = tmp_path / "bert"
    transformers.BertModel(transformers.BertConfig(vocab_size=3000, **SMALL)).save_pretrained(folder)
    save_bert_tokenizer(folder)
    with pytest.raises(InputError, match=r"neither seq2seq .* nor causal .*, but BertModel"):
        open_generator(folder)
    folder = tiny_causal(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"there is no tokenizer\.json here"):
        open_generator(folder)
    with pytest.raises(VizslaError, match="top_p"):
        Sampling(top_p=0)
