"""Learned models: a small network through onnxruntime and torch, in an index, in a sum, trained and saved."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx", reason="writing networks needs onnx")
pytest.importorskip("onnxruntime", reason="running networks needs onnxruntime")

import vizsla
from conftest import Cli
from vizsla.errors import InputError, VizslaError
from vizsla.index import Index
from vizsla.models import BM25, Balanced, Learned, Model, Network, expression, parse_model
from vizsla.models.impacts import Impacts
from vizsla.models.model import Part

HIDDEN, INNER, VOCABULARY = 32, 64, 30_522
TEXTS = [
    "Dogs bark at night.",
    "A cat sleeps; the dog barks, barks and barks.",
    "",
    "Quantum chromodynamics of quarks.",
]


def small_weights(seed: int = 0) -> dict[str, np.ndarray]:
    """An encoder of two layers with random numbers, and uniCOIL's head."""
    rng = np.random.default_rng(seed)
    made: dict[str, np.ndarray] = {}

    def matrix(name: str, rows: int, columns: int) -> None:
        made[f"{name}.weight"] = rng.normal(0, 0.3, (rows, columns)).astype(np.float32)

    def linear(name: str, rows: int, columns: int) -> None:
        matrix(name, rows, columns)
        made[f"{name}.bias"] = rng.normal(0, 0.1, rows).astype(np.float32)

    def norm(name: str) -> None:
        made[f"{name}.weight"], made[f"{name}.bias"] = np.ones(HIDDEN, np.float32), np.zeros(HIDDEN, np.float32)

    for name, rows in (("word", VOCABULARY), ("position", 64), ("token_type", 2)):
        matrix(f"embeddings.{name}_embeddings", rows, HIDDEN)
    norm("embeddings.LayerNorm")
    for layer in range(2):
        at = f"encoder.layer.{layer}"
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            linear(f"{at}.attention.{name}", HIDDEN, HIDDEN)
        norm(f"{at}.attention.output.LayerNorm")
        linear(f"{at}.intermediate.dense", INNER, HIDDEN)
        linear(f"{at}.output.dense", HIDDEN, INNER)
        norm(f"{at}.output.LayerNorm")
    linear("weigh", 1, HIDDEN)
    made["weigh.bias"] += 0.5
    return made


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Learned:
    folder = tmp_path_factory.mktemp("network")
    network = Network.write(folder, small_weights(), kind="unicoil", heads=4, most=8.0, length=64)
    return Learned(network, namespace="small", name="small")


def test_a_weight_is_the_highest_of_its_repeats(small: Learned) -> None:
    (terms,) = small.query_terms_of(["the dog barks, barks and barks."])
    assert list(terms) == list(dict.fromkeys(terms))
    assert all(weight > 0 for weight in terms.values())
    assert set(terms) <= {"the", "dog", "bark", "##s", ",", "and", "."}
    ids = np.array([101, *(small.pieces.numbers[p] for p in ("dog", "bark", "dog")), 102])
    weights = small.network.running.weights(ids, np.array([0, 5]))
    assert small.query_terms("dog bark dog")["dog"] == pytest.approx(max(weights[1], weights[3]))


def test_texts_alone_and_together_are_the_same(small: Learned) -> None:
    assert small.query_terms_of(TEXTS) == [small.query_terms(t) for t in TEXTS]
    assert small.query_terms("") == {}


def test_documents_and_queries_are_cut_into_the_same_pieces(small: Learned) -> None:
    """One way through the lexicon, the other through the tokenizers library."""
    texts = [*TEXTS, "naïve café — 3,5 kg?", "x" * 300, "漢字 emoji 🐕 and\ttabs", "half a pair \ud800 here"]
    rows = small.encode_documents([{"text": t} for t in texts])
    for row, terms in enumerate(small.query_terms_of(texts)):
        stored = {term: weight for (_, term), weight in rows[row].items()}
        step = small.network.most / 255
        assert stored.keys() == {t for t, w in terms.items() if w > step / 2}
        assert all(abs(terms[t] - w) <= step / 2 + 1e-6 for t, w in stored.items())


def test_what_is_too_long_is_cut(small: Learned) -> None:
    long = " ".join(f"dog {i}" for i in range(200))
    assert small.query_terms(long) == small.query_terms(" ".join(long.split()[:62]))
    short = replace(small, length=5)
    assert short.query_terms(long) == short.query_terms("dog 0 dog")
    assert short.storage != small.storage
    with pytest.raises(VizslaError, match="reads 3 to 64 tokens"):
        replace(small, length=65)


def test_torch_makes_the_same_of_the_same_file(small: Learned) -> None:
    pytest.importorskip("torch")
    from vizsla.networks.inference import TorchNetwork

    numbers = small.pieces.numbers
    texts = [[101, *(numbers[p] for p in ("dog", "bark", "cat", "night")[:n]), 102] for n in (1, 4, 0, 3)]
    ids, offsets = np.concatenate(texts), np.cumsum([0, *map(len, texts)])
    torch_made = TorchNetwork(small.network.folder, "unicoil", 4, "cpu").weights(ids, offsets)
    made = small.network.running.weights(ids, offsets)
    spread = made[made > 0].std()
    assert np.abs(torch_made - made).max() < 0.3 * spread
    assert ((torch_made > 0) == (made > 0)).mean() > 0.9


def test_an_index_scores_as_the_vectors_do(small: Learned, tmp_path: Path) -> None:
    documents = [{"id": str(i), "text": t} for i, t in enumerate(TEXTS)]
    with Index.create(tmp_path / "i", small) as index:
        assert [d.id for d in index.add(documents).empty] == ["2"]
        index.commit()
        rows = small.encode_documents([{"text": t} for t in TEXTS])
        expected = small.encode_queries(["a barking dog"], small.fit([{"text": t} for t in TEXTS])).dot(rows)[0]
        hits = {hit.id: hit.score for hit in index.search("a barking dog")}
        assert hits == pytest.approx({str(i): s for i, s in enumerate(expected) if s > 0}, rel=1e-6)
        index.delete(["1"])
        index.add([{"id": "0", "text": "Nothing of the kind."}])
        index.commit()
        assert "1" not in {hit.id for hit in index.search("a barking dog")}
        assert index.verify() == []


def test_an_index_has_its_own_copy_of_the_network(small: Learned, tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", small) as index:
        index.add([{"id": "1", "text": "dogs"}])
        index.commit()
    with Index.open(tmp_path / "i") as index:
        (part,) = index.model.parts
        assert part.component == small
        assert part.component.network.folder.parent == tmp_path / "i" / "model"
        assert [hit.id for hit in index.search("dogs")] == ["1"]
    weights = part.component.network.folder / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(bytes(content))
    with Index.open(tmp_path / "i") as index:
        assert any("weights.safetensors is damaged" in problem for problem in index.verify())
    weights.unlink()
    with Index.open(tmp_path / "i") as index, pytest.raises(InputError, match="no network here"):
        index.search("dogs")


def test_a_saved_model_is_the_same_again(small: Learned, tmp_path: Path) -> None:
    model = BM25() + 0.5 * small
    model.save(tmp_path / "m")
    again = Model.load(tmp_path / "m")
    assert again.parts == model.parts
    small.save(tmp_path / "alone")
    assert parse_model(f"bm25 + 0.5 * {tmp_path / 'alone'}").parts == model.parts
    (tmp_path / "m" / small.network.digest[:12] / "network.json").write_text("{")
    with pytest.raises(InputError, match="does not describe a network"):
        Model.load(tmp_path / "m")


def documents_of(count: int) -> list[dict[str, str]]:
    words = "dog bark night cat sleep quark field theory river stone bridge summer winter music paint".split()  # noqa: SIM905
    rng = np.random.default_rng(5)
    return [{"id": str(i), "text": " ".join(rng.choice(words, 30))} for i in range(count)]


def test_a_balanced_sum_is_settled_at_the_first_commit(small: Learned, tmp_path: Path) -> None:
    model = Balanced((Part(1.0, BM25()), Part(0.5, small)), "both")
    documents = documents_of(80)
    with Index.create(tmp_path / "i", model) as index:
        assert index.model.settles
        index.add(documents)
        index.commit()
        assert not index.model.settles
        fitted = index.model.parts[1].weight
        assert fitted != 0.5
        assert fitted == model.settled([{"text": d["text"]} for d in documents]).parts[1].weight
        index.add([{"id": "more", "text": "dog dog dog"}])
        index.commit()
        explanation = index.explain("dog bark", "0")
        assert [p.name for p in explanation.parts] == ["bm25", "small"]
    with Index.open(tmp_path / "i") as index:
        assert index.model.parts[1].weight == fitted
        assert index.model.name == "both"
        alone = index.run({"q": "dog bark"}, model=small)["q"]
        both = index.run({"q": "dog bark"})["q"]
        words = index.run({"q": "dog bark"}, model="bm25")["q"]
        sums = dict(zip(words.documents, words.scores, strict=True))
        for document, score in zip(alone.documents, alone.scores, strict=True):
            sums[document] = sums.get(document, 0.0) + fitted * score
        assert dict(zip(both.documents, both.scores, strict=True)) == pytest.approx(sums, rel=1e-5)


def test_the_parts_of_a_settled_sum_lift_alike(small: Learned) -> None:
    contents = [{"text": d["text"]} for d in documents_of(90)]
    settled = Balanced((Part(1.0, BM25()), Part(1.0, small))).settled(contents)
    doubled = Balanced((Part(2.0, BM25()), Part(1.0, small))).settled(contents)
    assert doubled.parts[1].weight == pytest.approx(2 * settled.parts[1].weight, rel=1e-3)
    assert not settled.settles
    few = Balanced((Part(1.0, BM25()), Part(0.7, small))).settled(contents[:10])
    assert (few.parts[1].weight, few.settles) == (0.7, True)


def test_several_adds_of_one_commit_are_fitted_together(small: Learned, tmp_path: Path) -> None:
    documents, weights = documents_of(90), []
    for name, parts in (("one", [documents]), ("three", [documents[:30], documents[30:60], documents[60:]])):
        with Index.create(tmp_path / name, Balanced((Part(1.0, BM25()), Part(0.5, small)))) as index:
            for part in parts:
                index.add(part)
            index.commit()
            weights.append(index.model.parts[1].weight)
    assert weights[0] == weights[1] != 0.5


def test_expressions_of_learned_models(small: Learned, tmp_path: Path) -> None:
    small.save(tmp_path / "m")
    saved = Model.load(tmp_path / "m")
    assert expression(0.5 * saved + BM25()) == f"0.5 * {tmp_path / 'm'} + bm25"
    assert expression(parse_model("bm51(weight=0.7)")) == "bm25 + 0.7 * bm26"
    assert expression(parse_model("bm26(length=128)")) == "bm26(length=128)"
    for wrong in ("nan", "-1", "0"):
        with pytest.raises(VizslaError, match=r"must be a number above 0|is no number"):
            parse_model(f"bm51(weight={wrong})")
    with pytest.raises(VizslaError, match="cannot be written as an expression"):
        expression(parse_model("bm51-paper"))


def test_a_sum_waits_for_enough_documents(small: Learned, tmp_path: Path) -> None:
    documents = documents_of(70)
    with Index.create(tmp_path / "i", Balanced((Part(1.0, BM25()), Part(0.5, small)))) as index:
        index.add(documents[:5])
        index.commit()
        assert (index.model.settles, index.model.parts[1].weight) == (True, 0.5)
        assert index.search("dog")
        index.add(documents[5:])
        index.commit()
        assert not index.model.settles


def test_workers_have_networks_of_their_own(small: Learned, tmp_path: Path) -> None:
    code = (
        "import sys, json\n"
        "from vizsla.index import Index\n"
        "from vizsla.models import Model\n"
        "if __name__ == '__main__':\n"
        f"    with Index.create({str(tmp_path / 'i')!r}, Model.load({str(tmp_path / 'm')!r})) as index:\n"
        "        index.add([{'id': str(i), 'text': f'dog number {i}'} for i in range(300)], workers=2)\n"
        "        index.commit()\n"
    )
    small.save(tmp_path / "m")
    (tmp_path / "run.py").write_text(code)
    subprocess.run([sys.executable, str(tmp_path / "run.py")], check=True)
    with Index.open(tmp_path / "i") as index:
        assert len(index) == 300
        assert index.search("dog")


def test_a_rolled_back_add_leaves_the_sum_unsettled(small: Learned, tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", Balanced((Part(1.0, BM25()), Part(0.5, small)))) as index:
        index.add(documents_of(60))
        index.rollback()
        index.refresh()
        assert index.model.settles
        index.commit()


def test_impacts_are_bm25_in_eight_bits(tmp_path: Path) -> None:
    contents = [{"text": d["text"] + " and more" * (i % 7)} for i, d in enumerate(documents_of(60))]
    bm25, impacts = BM25(), Impacts(BM25())
    assert impacts.freezes
    with pytest.raises(VizslaError, match="settle it on all of them first"):
        impacts.encode_documents(contents)
    with pytest.raises(VizslaError, match="freezes statistics"):
        Index.create(tmp_path / "i", impacts)
    settled = impacts.settled(contents)
    statistics = bm25.fit(contents)
    scores = [
        m.encode_queries(["dog bark river"], m.fit(contents)).dot(m.encode_documents(contents))[0]
        for m in (bm25, settled)
    ]
    assert np.corrcoef(scores)[0, 1] > 0.98
    made = settled.encode_documents(contents).values
    assert (made.min(), made.max()) == (1, 256)
    assert statistics["words"].documents == 60
    with Index.create(tmp_path / "i", settled + 1.0 * BM25()) as index:
        index.add([{"id": str(i), **c} for i, c in enumerate(contents[:40])])
        index.commit()
        index.add([{"id": "new", "text": "dog dog unheard-of " * 50}])
        index.commit()
        assert index.search("unheard-of dog")[0].id == "new"
        assert index.verify() == []
    with Index.open(tmp_path / "i") as index:
        assert index.model.parts[0].component == settled
        assert index.run({"q": "dog"}, model=settled)["q"].scores.max() <= 256 * 256


def test_the_papers_sum_is_of_whole_numbers(small: Learned) -> None:
    whole = replace(small, whole=True)
    assert all(w == round(w) for w in whole.query_terms("the dog barks").values())
    contents = [{"text": t} for t in TEXTS]
    assert set(whole.encode_documents(contents).values) <= set(range(1, 256))
    paper = parse_model("bm51-paper")
    assert (paper.freezes, paper.namespaces) == (True, ("impacts", "bm26"))
    assert not paper.settled(contents).freezes
    both = parse_model("bm25-prime-paper").settled(contents)
    assert [p.component.name for p in both.parts] == ["bm25", "bm25-wp"]


def test_models_run_where_torch_is_not(tmp_path: Path) -> None:
    """The shipped BM51, on a machine with onnxruntime and none of the packages that training needs."""
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'transformers', 'sentence_transformers', 'accelerate', 'onnx')))\n"
        "from vizsla.index import Index\n"
        f"with Index.create({str(tmp_path / 'i')!r}, 'bm51') as index:\n"
        "    index.add([{'id': '1', 'text': 'The dog barks.'}, {'id': '2', 'text': 'A cat on the mat.'}])\n"
        "    index.commit()\n"
        "    assert [hit.id for hit in index.search('the barking of dogs')][0] == '1'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_shipped_network_knows_what_matters() -> None:
    bm26 = parse_model("bm26")
    terms = bm26.query_terms("what is the height of the tallest volcano in the world")
    assert set(sorted(terms, key=terms.__getitem__)[-2:]) == {"tallest", "volcano"}
    assert terms["the"] < terms["volcano"] / 2
    folder = bm26.parts[0].component.network.folder  # type: ignore[attr-defined]
    assert sum(f.stat().st_size for f in folder.iterdir()) < 25_000_000


def test_a_runtime_that_is_none_is_refused(small: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIZSLA_RUNTIME", "jax")
    fresh = replace(small, network=Network.open(small.network.folder))
    with pytest.raises(VizslaError, match="VIZSLA_RUNTIME"):
        fresh.query_terms("dogs")


# Training, from documents to a saved model


@pytest.fixture(scope="module")
def start(small: Learned, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("start") / "model"
    small.save(folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "documents.jsonl"
    lines = [json.dumps({"_id": d["id"], "text": d["text"]}) for d in documents_of(40)]
    file.write_text("\n".join([*lines, json.dumps({"_id": "short", "text": "dog"})]) + "\n")
    return file


SETTINGS = ("batch=16", "steps=4", "warmup=1", "keep=2", "precision=float32", "span=40", "chunk=200")


def trained(cli: Cli, corpus: Path, start: Path, output: Path, *more: str) -> str:
    changes = [part for setting in (f"start={start}", *SETTINGS) for part in ("--set", setting)]
    code, _, said = cli("train", "bm26", "--corpus", corpus, "-o", output, *changes, *more)
    assert code == 0, said
    return said


def test_train_makes_a_model_to_index_with(cli: Cli, corpus: Path, start: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    told = trained(cli, corpus, start, tmp_path / "m")
    assert "step     4" in told
    assert "4 steps in" in told
    assert cli("index", corpus, "-o", tmp_path / "i", "--model", f"bm51(network={tmp_path / 'm'})")[0] == 0
    with Index.open(tmp_path / "i") as index:
        assert index.model.namespaces == ("words", "bm26")
        assert index.search("dog bark")
    code, _, said = cli("train", "bm26", "--corpus", corpus, "-o", tmp_path / "m")
    assert (code, "there is a model here already" in said) == (2, True)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set in BEIR's layout whose queries are stretches of its documents."""
    folder = tmp_path_factory.mktemp("judged") / "set"
    (folder / "qrels").mkdir(parents=True)
    documents = documents_of(40)
    lines = [json.dumps({"_id": d["id"], "text": d["text"]}) for d in documents]
    (folder / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    queries = [{"_id": f"q{i}", "text": " ".join(d["text"].split()[3:8])} for i, d in enumerate(documents)]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)) + "\n")
    for split, part in (("train", range(30)), ("dev", range(30, 35)), ("test", range(35, 40))):
        rows = [f"q{i}\t{i}\t1" for i in part]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *rows]) + "\n")
    return folder


@pytest.mark.parametrize("recipe", ["unicoil", "splade"])
def test_training_on_judged_queries(cli: Cli, judged: Path, start: Path, tmp_path: Path, recipe: str) -> None:
    pytest.importorskip("torch")
    changes = (f"start={start}", "batch=8", "steps=2", "warmup=1", "group=3", "precision=float32", "calm=20",
               "masked.steps=2", "masked.batch=16", "masked.precision=float32")  # fmt: skip
    asked = [part for c in changes[: None if recipe == "splade" else -4] for part in ("--set", c)]
    code, _, said = cli("train", recipe, "--dataset", judged, "--dev", judged, "-o", tmp_path / "m", *asked)
    assert code == 0, said
    assert "Best at step 2" in said
    assert ("masked     2" in said) == (recipe == "splade")
    model = parse_model(str(tmp_path / "m"))
    assert isinstance(model, Learned)
    assert model.network.kind == recipe
    with Index.create(tmp_path / "i", model) as index:
        index.add(documents_of(5))
        index.commit()
        assert index.verify() == []
    code, _, said = cli("train", recipe, "--corpus", judged / "corpus.jsonl", "-o", tmp_path / "n", *asked)
    assert (code, "name a data set with --dataset" in said) == (2, True)


def test_training_starts_from_an_encoder_of_transformers(tmp_path: Path, corpus: Path, cli: Cli) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    folder = tmp_path / "encoder"
    transformers.BertModel(config).save_pretrained(folder)
    arguments = ("train", "bm26-fresh", "--corpus", corpus, "-o", tmp_path / "m", "--set", f"start={folder}")
    small = [part for s in SETTINGS for part in ("--set", s)]
    code, _, said = cli(*arguments, *small)
    assert (code, "tokenizer" in said) == (2, True)
    pieces = json.loads((Path(vizsla.__file__).parent / "text" / "data" / "bert-uncased.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(pieces))
    code, _, said = cli(*arguments, *small)
    assert code == 0, said
    pieces["added_tokens"].append({**pieces["added_tokens"][0], "id": VOCABULARY, "content": "[MORE]"})
    (folder / "tokenizer.json").write_text(json.dumps(pieces))
    code, _, said = cli(*arguments[:4], "-o", tmp_path / "n", *arguments[6:], *small)
    assert (code, "knows 30,522 word pieces and its tokenizer gives 30,523" in said) == (2, True), said


def test_a_stopped_run_goes_on_with_what_it_was_started_with(
    cli: Cli, judged: Path, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command needs nothing but the folder; the model is that of a run that was never stopped."""
    pytest.importorskip("torch")
    from vizsla.cli import train as verb

    documents, show = judged / "corpus.jsonl", verb.show_line
    trained(cli, documents, start, tmp_path / "whole", "--dev", str(judged), "--set", "evaluate=1")

    def stop(line: dict[str, object]) -> None:
        if line["step"] == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(verb, "show_line", stop)
    changes = [p for s in (f"start={start}", *SETTINGS, "evaluate=1") for p in ("--set", s)]
    begun = ("train", "bm26", "--corpus", documents, "-o", tmp_path / "half", *changes, "--dev", judged)
    assert cli(*begun)[0] == 130
    monkeypatch.setattr(verb, "show_line", show)
    code, _, said = cli(*begun)
    assert (code, "a run has been stopped here; go on with --resume" in said) == (2, True), said
    code, _, said = cli("train", "bm26", "-o", tmp_path / "half", "--resume", "--set", "rate=1")
    assert (code, "the run began with rate 5e-05, not 1.0" in said) == (2, True), said
    code, _, said = cli("train", "bm26", "-o", tmp_path / "half", "--resume")
    assert code == 0, said
    networks = [parse_model(str(tmp_path / name)).parts[0].component.network for name in ("whole", "half")]
    assert networks[0] == networks[1]
    code, _, said = cli("train", "bm26", "-o", tmp_path / "half", "--resume")  # there is nothing left to do
    assert code == 0, said


def test_bad_input_to_training_is_one_sentence(cli: Cli, corpus: Path, start: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    empty = tmp_path / "empty.jsonl"
    empty.write_text('{"_id": "1", "text": ""}\n')
    documents, out, at = ("--corpus", corpus), ("-o", tmp_path / "m"), ("--set", f"start={start}")
    for arguments, expected in (
        (("bm26", *documents, *out, *at), "a batch of 2,048 needs as many documents, and the corpus has 40"),
        (("bm26", "-o", tmp_path / "x", *at, "--resume"), "no run here to go on with"),
        (("bm26", *out, *at, "--resume"), "no checkpoint to go on from"),
        (("bm26", *out), "name the documents"),
        (("bm26", *documents), "name a folder"),
        (("bm26", *documents, *out, "--set", "batch=x"), "no whole number"),
        (("bm26", *documents, *out, "--set", "bach=1"), "did you mean"),
        (("bm26", *documents, *out, "--set", "keep=0"), "keep must be more than 0"),
        (("bm27", *documents, *out), "training recipe"),
        (("bm26", "--corpus", empty, "-o", tmp_path / "n", *at), "no document with 20 tokens"),
        (("bm26", *documents, "-o", tmp_path / "n", "--set", f"start={tmp_path}"), "tokenizer"),
    ):
        code, printed, said = cli("train", *arguments)
        assert (code, printed) == (2, ""), arguments
        assert expected in said, said
