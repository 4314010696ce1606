"""A BERT with a new decoder: its states are BERT's, and it learns from judged and generated queries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import Cli
from test_generator_runs import PAIRS, write_dataset
from tiny_checkpoints import SMALL, TEXTS, WORDS, save_bert_tokenizer, torch, transformers
from vizsla import Document, VizslaError
from vizsla.errors import InputError
from vizsla.models.generator import CheckpointGenerator, Sampling, open_generator
from vizsla.neural.checkpoints.bart import bart_checkpoint, start_arrays
from vizsla.neural.checkpoints.generator import GeneratorCheckpoint
from vizsla.neural.onnx_generator import OnnxGenerator
from vizsla.neural.torch_generator import new_model
from vizsla.training import TrainingInputs, load_training_recipe, train

SIZES = {**SMALL, "hidden_size": 32, "num_hidden_layers": 3}


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(vocab_size=WORDS, **SIZES), add_pooling_layer=False)
    with torch.no_grad():
        for parameter in model.parameters():  # biases and normalisations that are not those of a new network
            parameter.add_(torch.randn_like(parameter) * 0.1)
    model.save_pretrained(folder)
    save_bert_tokenizer(folder)
    return folder


def small_recipe(base: Path, *changes: str) -> Any:
    settings = [
        f"network.base_model={base}", "network.decoder_layers=2", "training.steps=40", "training.batch_size=4",
        "training.learning_rate=0.01", "training.warmup_steps=2", "training.eval_steps=30",
    ]  # fmt: skip
    return load_training_recipe("doc2query-small").with_changes([*settings, *changes])


def documents() -> list[Document]:
    written: dict[str, list[str]] = {}
    for passage, query in PAIRS:
        written.setdefault(passage, []).append(query)
    return [Document(str(i), {"text": text, "queries": queries}) for i, (text, queries) in enumerate(written.items())]


def test_states_are_those_of_bert(bert: Path) -> None:
    checkpoint = bart_checkpoint(bert, 2)
    model = new_model(checkpoint.config, start_arrays(checkpoint))
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-12  # BERT's; all else is the same
    own = transformers.BertModel.from_pretrained(bert, add_pooling_layer=False).eval()
    with torch.inference_mode():
        for ids in checkpoint.inputs(TEXTS):
            given = torch.from_numpy(ids)[None]
            states = model.get_encoder()(given).last_hidden_state
            torch.testing.assert_close(states, own(given).last_hidden_state, atol=1e-4, rtol=0)
    for layer, source in enumerate((0, 2)):
        decoder, encoder = model.get_decoder().layers[layer], model.get_encoder().layers[source]
        assert torch.equal(decoder.self_attn.k_proj.weight, encoder.self_attn.k_proj.weight)
        assert torch.equal(decoder.encoder_attn.out_proj.bias, encoder.self_attn.out_proj.bias)
        assert torch.equal(decoder.encoder_attn_layer_norm.weight, encoder.self_attn_layer_norm.weight)
        assert torch.equal(decoder.fc2.weight, encoder.fc2.weight)
    assert model.lm_head.weight is model.get_encoder().embed_tokens.weight is model.get_decoder().embed_tokens.weight
    config = checkpoint.config
    tokens = [config[f"{name}_token_id"] for name in ("pad", "decoder_start", "eos")]
    assert tokens == [0, 101, 102]


@pytest.mark.slow
def test_it_learns_judged_and_generated_queries_and_is_written_in_8_bits_and_in_floats(
    bert: Path, tmp_path: Path
) -> None:
    dataset = write_dataset(tmp_path / "data")
    corpus = [Document("new", {"text": "Cats purr.", "queries": ["sound of cats", ""]}), Document("e", {"queries": []})]
    inputs = TrainingInputs(corpus=corpus, datasets=[dataset], dev=[dataset])
    trained = train(small_recipe(bert), tmp_path / "out", inputs)
    assert trained.result.figures["data likelihood"] > 0.2
    generator = trained.model
    assert isinstance(generator, CheckpointGenerator)
    assert isinstance(generator.running, OnnxGenerator)
    assert (generator.name, generator.task, generator.length) == ("doc2query-small", "query", 256)
    sampling = Sampling(texts=5, top_k=2, max_tokens=20)
    written = generator.generate(["Taxes on vehicles", "Cats purr."], sampling)
    assert "car taxes" in written[0]
    assert "sound of cats" in written[1]
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    read = tokenizer(["Cats purr."], return_tensors="pt", return_token_type_ids=False)
    greedy = model.generate(**read, max_new_tokens=20)
    assert tokenizer.decode(greedy[0], skip_special_tokens=True) == "sound of cats"


def test_generated_queries_are_enough_and_a_trained_generator_is_a_start(bert: Path, tmp_path: Path) -> None:
    changes = ("training.steps=2", "training.save_steps=2")
    train(small_recipe(bert, *changes), tmp_path / "first", TrainingInputs(corpus=documents()))
    (tmp_path / "first" / "model.safetensors").unlink()  # what is shipped has 8 bits only
    again = small_recipe(tmp_path / "first", *changes, "network.decoder_layers=0", "training.learning_rate=1e-12")
    train(again, tmp_path / "second", TrainingInputs(corpus=documents()))
    first, second = (open_generator(tmp_path / name) for name in ("first", "second"))
    texts = [passage for passage, _ in PAIRS]
    greedy = Sampling(texts=1, temperature=0, max_tokens=8)
    assert first.generate(texts, greedy) == second.generate(texts, greedy)


def test_the_command_reads_documents_with_queries(bert: Path, tmp_path: Path, cli: Cli) -> None:
    source = tmp_path / "expanded.jsonl"
    lines = [{"_id": d.id, **d.content} for d in documents()]
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    settings = ("training.steps=1", "training.batch_size=4", "network.decoder_layers=1", f"network.base_model={bert}")
    changes = [part for setting in settings for part in ("--set", setting)]
    code, _, err = cli("train", "doc2query-small", "--corpus", source, "-o", tmp_path / "out", *changes)
    assert code == 0, err
    assert "--corpus is ignored" not in err
    pairs = np.load(tmp_path / "out" / "training" / "pairs" / "rows.npy")
    assert pairs.tolist() == [0, 0, 1, 2]


def test_what_cannot_be_a_start_is_refused(bert: Path, tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="a decoder begins with 1 to 3 of the encoder's layers, not 4"):
        train(small_recipe(bert, "network.decoder_layers=4"), tmp_path / "out", TrainingInputs(corpus=documents()))
    with pytest.raises(InputError, match="the document 'x' has no texts in the field 'queries'"):
        train(small_recipe(bert), tmp_path / "out", TrainingInputs(corpus=[Document("x", {"text": "a dog"})]))
    with pytest.raises(VizslaError, match="the documents: there is no pair of an input and a text to write"):
        train(small_recipe(bert), tmp_path / "out", TrainingInputs(corpus=[]))
    with pytest.raises(VizslaError, match="judged or generated queries; name a data set with --dataset, or documents"):
        train(small_recipe(bert), tmp_path / "out", TrainingInputs())
    long = small_recipe(bert, "data.max_input_length=511")
    with pytest.raises(VizslaError, match="reads and writes at most 512 tokens"):
        train(long, tmp_path / "out", TrainingInputs(corpus=documents()))
    recipe = small_recipe(bert, "data.task=answer")
    assert not recipe.make().reads_corpus
    with pytest.raises(VizslaError, match="name a data set with --dataset"):
        train(recipe, tmp_path / "out", TrainingInputs(corpus=documents()))
    with pytest.raises(InputError, match=r"neither seq2seq .* nor causal .*, but BertModel"):
        GeneratorCheckpoint.read(bert)
