"""Cross-encoders: how they are trained, what they give, and runs that they rank anew."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from conftest import Cli  # noqa: E402
from vizsla.datasets import BeirDataset  # noqa: E402
from vizsla.errors import VizslaError  # noqa: E402
from vizsla.evaluation import at_depths, evaluate  # noqa: E402
from vizsla.index import Index, pair_scores, rerank, rerank_hits, reranked  # noqa: E402
from vizsla.models import Reranker  # noqa: E402
from vizsla.networks import cross_encoder, packed  # noqa: E402
from vizsla.networks.cross import segments_of  # noqa: E402
from vizsla.networks.joint import joint_ids  # noqa: E402
from vizsla.recipes.cross import cross_dev, cross_material, cross_network  # noqa: E402
from vizsla.recipes.training import load_training_recipe  # noqa: E402
from vizsla.runs import Qrels, Run  # noqa: E402
from vizsla.training import (  # noqa: E402
    CrossDev,
    CrossMaterial,
    CrossPairs,
    MinedPairs,
    Settings,
    Team,
    TokenCorpus,
    Trainer,
    answered_first,
    group_loss,
)

SMALL = ["steps=2", "batch=8", "evaluate=2", "chunk=2000", "keep=2", "query_length=16", "document_length=48", "depth=8"]


def options(changes: list[str]) -> list[str]:
    return [part for change in changes for part in ("--set", change)]


@pytest.fixture(scope="module")
def trained(start: Path, judged: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder that two steps have made of a small network."""
    from vizsla.recipes.training import train

    folder = tmp_path_factory.mktemp("trained") / "cross"
    recipe = load_training_recipe("cross-encoder").changed([*SMALL, f"start={start}"])
    dataset = BeirDataset.open(judged)
    made, outcome = train(recipe, [], folder, datasets=[dataset], dev=[dataset])
    assert isinstance(made, Reranker)
    assert set(outcome.figures) == {"set nDCG@10", "set MRR@10"}
    return folder


def by_hand(folder: Path, pairs: list[list[int]]) -> Any:
    """Scores as transformers gives them, one text after another."""
    from transformers import BertForSequenceClassification

    model = BertForSequenceClassification.from_pretrained(folder).eval()
    found = []
    for ids in pairs:
        behind = ids.index(102) + 1
        segments = [0] * behind + [1] * (len(ids) - behind)
        with torch.no_grad():
            found.append(model(torch.tensor([ids]), token_type_ids=torch.tensor([segments])).logits[0].tolist())
    return np.array(found)


TEXTS = (([7, 8, 9], [10, 11]), ([2000], list(range(3000, 3060))), ([], [5]), ([6], []))
PAIRS = [joint_ids(query, document, 16, 48) for query, document in TEXTS]


def torch_scores(network: Any, rows: list[list[int]], tokens: int = 60) -> np.ndarray:
    ids = torch.zeros(len(rows), max(map(len, rows)), dtype=torch.long)
    mask = torch.arange(ids.shape[1]) < torch.tensor([len(row) for row in rows])[:, None]
    ids[mask] = torch.tensor([i for row in rows for i in row])
    batch = packed(ids, mask, tokens)
    with torch.no_grad():
        return network.vectors([network(chunk) for chunk in batch.chunks], batch).squeeze(1).numpy()


def test_scores_are_those_of_transformers(trained: Path) -> None:
    expected = by_hand(trained, PAIRS)[:, 0]
    assert np.ptp(expected) > 1e-3
    np.testing.assert_allclose(torch_scores(cross_encoder(trained).eval(), PAIRS), expected, atol=1e-5)
    reranker = Reranker.open(trained, "float32")
    offsets = np.cumsum([0, *map(len, PAIRS)])
    flat = np.array([i for row in PAIRS for i in row])
    np.testing.assert_allclose(reranker.network.running.scores(flat, offsets), expected, atol=1e-5)


def test_two_labels_score_by_the_second_less_the_first(trained: Path, tmp_path: Path) -> None:
    from transformers import BertForSequenceClassification

    model = BertForSequenceClassification.from_pretrained(trained, num_labels=2, ignore_mismatched_sizes=True)
    with torch.no_grad():
        model.classifier.weight.normal_()
        model.classifier.bias.normal_()
    model.save_pretrained(tmp_path)
    (tmp_path / "tokenizer.json").write_bytes((trained / "tokenizer.json").read_bytes())
    first, second = by_hand(tmp_path, PAIRS).T
    reranker = Reranker.open(tmp_path, "float32")
    assert (reranker.query_length, reranker.length) == (64, 64)  # as many as the network has places for
    offsets = np.cumsum([0, *map(len, PAIRS)])
    made = reranker.network.running.scores(np.array([i for row in PAIRS for i in row]), offsets)
    np.testing.assert_allclose(made, second - first, atol=1e-5)
    np.testing.assert_allclose(torch_scores(cross_encoder(tmp_path).eval(), PAIRS), second - first, atol=1e-5)


@settings(max_examples=40)
@given(
    query=st.lists(st.integers(1000, 1100) | st.just(102), max_size=30),
    document=st.lists(st.integers(1000, 1100) | st.just(102), max_size=60),
    query_length=st.integers(3, 20),
    more=st.integers(2, 30),
)
def test_pairs_are_cut_where_they_are_too_long(
    query: list[int], document: list[int], query_length: int, more: int
) -> None:
    length = query_length + more
    ids = joint_ids(query, document, query_length, length)
    behind = ids.index(102)
    plain = [i for i in query if i != 102]
    assert ids[0] == 101
    assert ids[-1] == 102
    assert ids[1:behind] == plain[: query_length - 2]
    assert len(ids) <= length
    assert ids[behind + 1 : -1] == document[: length - behind - 2]


def test_segments_begin_behind_the_first_separator_of_each_text() -> None:
    rows = [[101, 102, 102], [101, 5, 102, 6, 102, 7, 102], [101, 5, 6, 102, 7, 102]]
    corpus = TokenCorpus.of([np.array(row) for row in rows])
    ids = torch.tensor([[*row, *[0] * (7 - len(row))] for row in rows])
    batch = packed(ids, torch.arange(7) < torch.tensor(np.diff(corpus.offsets))[:, None], 10)
    found = [segments_of(chunk).tolist() for chunk in batch.chunks]
    assert found == [[0, 0, 1, 0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1, 1]]


def small_pairs(group: int = 3) -> CrossPairs:
    """Queries of one word, whose documents have it, among documents that have it not."""
    words = [[1000 + i] for i in range(12)]
    documents = [[1000 + i, 2000, 2001] for i in range(12)]
    right = [np.array([i]) for i in range(12)]
    wrong = [np.array([j for j in range(12) if j != i]) for i in range(12)]
    mined = MinedPairs(*map(TokenCorpus.pack, (words, documents)), *map(TokenCorpus.of, (right, wrong)), group=group)
    return CrossPairs(mined, query_length=8, length=16)


def test_a_group_is_a_document_and_its_negatives() -> None:
    pairs = small_pairs()
    (texts,), _, group = pairs.sides(4, 0, 5, torch.device("cpu"))
    ids, mask = texts
    assert group == 3
    assert ids.shape == mask.shape == (12, 7)
    same = (ids[:, 1] == ids[:, 3]).view(4, 3)
    assert same.tolist() == [[True, False, False]] * 4
    again = pairs.sides(4, 0, 5, torch.device("cpu")).texts[0][0]
    assert torch.equal(ids, again)
    with pytest.raises(VizslaError, match="a query cannot have 30"):
        CrossPairs(pairs.mined, query_length=30, length=16)


@pytest.mark.parametrize("loss", ["contrast", "margins", "binary"])
def test_losses_are_what_they_say(loss: str) -> None:
    scores = torch.tensor([[0.5, 1.0, -2.0], [3.0, 0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    rows = scores.detach().numpy()
    expected = {
        "contrast": np.mean([-np.log(np.exp(row[0]) / np.exp(row).sum()) for row in rows]),
        "margins": np.mean([[max(0.0, 1 - row[0] + other) for other in row[1:]] for row in rows]),
        "binary": np.mean([[np.log1p(np.exp(-row[0])), *np.log1p(np.exp(row[1:]))] for row in rows]),
    }[loss]
    assert group_loss(scores, loss).item() == pytest.approx(expected)
    assert torch.autograd.gradcheck(lambda x: group_loss(x, loss), scores)


@pytest.mark.parametrize("kept", [0, 9])
def test_gradients_of_chunks_are_those_of_the_whole(start: Path, kept: int) -> None:
    network, _ = cross_network(str(start))
    network = network.double()
    with torch.no_grad():
        network.classifier.weight.normal_()
    pairs, chosen = small_pairs(), Settings(steps=1, batch=4, chunk=30, kept=kept, clip=1e9, precision="float32")
    trainer = Trainer(network, pairs, chosen, objective=answered_first, team=Team())
    grown: dict[str, Any] = {}
    trainer.optimiser.step = lambda *_: grown.update({n: p.grad.clone() for n, p in network.named_parameters()})  # type: ignore[method-assign]
    line = trainer.step()
    drawn = pairs.sides(4, 0, 0, torch.device("cpu"))
    network.zero_grad()
    whole = packed(*drawn.texts[0], 10_000)
    loss = group_loss(network.vectors([network(whole.chunks[0])], whole).view(-1, 3))
    loss.backward()
    assert line["loss"] == pytest.approx(loss.item())
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(grown[name], parameter.grad, msg=name)


@pytest.mark.parametrize("loss", ["contrast", "binary"])
def test_training_learns_what_an_answer_is(start: Path, loss: str) -> None:
    torch.manual_seed(0)
    network, _ = cross_network(str(start))
    pairs = small_pairs()
    candidates = TokenCorpus.of([np.roll(np.arange(12), -i - 1) for i in range(12)])  # the right one is last
    judgements = np.array([[i, i, 1] for i in range(12)])
    dev = CrossDev.of(
        "small", pairs.mined.queries, pairs.mined.documents, candidates, judgements, query_length=8, length=16
    )
    assert dev.judged()["small MRR@10"] == 0
    chosen = Settings(steps=80, batch=12, chunk=4000, kept=9, rate=3e-3, warmup=5, loss=loss, evaluate=40)
    outcome = Trainer(network, pairs, chosen, dev=[dev], objective=answered_first, team=Team()).run()
    losses = [line["loss"] for line in outcome.log]
    assert np.mean(losses[-5:]) < 0.7 * np.mean(losses[:5])
    assert outcome.figures["small MRR@10"] > 0.5
    with pytest.raises(VizslaError, match="loss=binary, which is for cross-encoders"):
        Trainer(network, pairs.mined, chosen.changed("loss=binary", "batch=4"), team=Team()).step()


def test_dev_figures_are_those_of_an_evaluation(judged: Path, trained: Path, tmp_path: Path) -> None:
    dataset = BeirDataset.open(judged)
    recipe = load_training_recipe("cross-encoder").changed([*SMALL, f"start={trained}"])
    network, analyzer = cross_network(recipe.start)
    dev = cross_dev(dataset, analyzer, recipe)
    dev.save(tmp_path / "dev-0")
    dev = CrossDev.open(tmp_path / "dev-0")
    with Index.create(tmp_path / "ix", "bm25") as index:
        index.add(dataset.documents())
        index.commit()
        queries = dataset.queries_of(dataset.qrels("dev"))
        run = index.run(queries, 8)
        reranker = Reranker.open(trained, "float32")
        found = rerank(index, run, queries, reranker, 8)
    network.eval()
    figures = dev.figures(network, network.vectors, torch.device("cpu"))
    for ranking, made in ((run, dev.judged()), (found, figures)):
        expected = evaluate(ranking, dataset.qrels("dev"), "nDCG@10 RR@10").measures
        assert list(made.values()) == pytest.approx(list(expected.values()))


def test_negatives_come_from_another_first_stage(cli: Cli, start: Path, judged: Path, tmp_path: Path) -> None:
    dataset = BeirDataset.open(judged)
    recipe = load_training_recipe("cross-encoder").changed([*SMALL, f"start={start}"])
    _, analyzer = cross_network(recipe.start)
    lines = [f"q{q} Q0 {(q + j) % 40} {j} {9 - j} mine" for q in range(40) for j in range(6)]
    run = tmp_path / "mine.trec"
    run.write_text("\n".join(lines) + "\n")
    material = cross_material(recipe.changed([f"negatives={run}", "depth=4"]), analyzer, [dataset], [dataset])
    material.save(tmp_path / "material")
    material = CrossMaterial.open(tmp_path / "material", group=2)
    numbers = [material.pairs.negatives[q].tolist() for q in range(30)]
    assert numbers == [[q + 1, q + 2, q + 3] for q in range(30)]
    assert [len(material.dev[0].candidates[q]) for q in range(5)] == [4] * 5
    assert material.dev[0].judged() == {"set nDCG@10": 1, "set MRR@10": 1}
    by_model = cross_material(recipe.changed(["negatives=bm25(k1=2)"]), analyzer, [dataset], [])
    plain = cross_material(recipe, analyzer, [dataset], [])
    assert by_model.pairs.negatives.ids.tolist() != plain.pairs.negatives.ids.tolist()
    told = ["--dataset", str(judged), *options([*SMALL, f"start={start}"])]
    folder = tmp_path / "trained"
    assert cli("train", "cross-encoder", *told, "--negatives", run, "--dev", judged, "-o", folder)[0] == 0
    other = tmp_path / "other.trec"
    other.write_text("x Q0 y 1 1 z\n")
    for more, message in (
        (["--negatives", other], "none of the queries"),
        (["--negatives", "nonsense"], "nonsense"),
        (["--negatives", run, "--dataset", judged], "belongs to one data set"),
        (["--set", "document_length=10"], "a query cannot have 16"),
    ):
        code, _, said = cli("train", "cross-encoder", *told, *more, "-o", tmp_path / "x")
        assert code == 2
        assert message in said
    code, _, said = cli("train", "cross-encoder", *told, "-o", folder)
    assert (code, "already" in said) == (2, True)
    code, _, said = cli("train", "cross-encoder", "--corpus", judged / "corpus.jsonl", "-o", tmp_path / "x")
    assert (code, "--dataset" in said) == (2, True)


WORDS = ("dog", "cat", "river", "stone", "bark", "night")


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("indexed") / "ix"
    rng = np.random.default_rng(1)
    with Index.create(folder, "bm25") as index:
        index.add({"id": str(i), "title": WORDS[i % 6], "text": " ".join(rng.choice(WORDS, 9))} for i in range(30))
        index.add([{"id": "empty", "text": ""}])
        index.commit()
    return folder


QUERIES = {"a": "dog bark", "b": "river of stone", "c": "cat"}


def first_stage(seed: int) -> Run:
    rng = np.random.default_rng(seed)
    ids = [*map(str, range(30)), "empty"]
    return Run({q: [(ids[i], float(31 - r // 2)) for r, i in enumerate(rng.permutation(31))] for q in QUERIES}, "first")


def test_a_run_is_ranked_anew_down_to_a_depth(indexed: Path, trained: Path) -> None:
    run, reranker = first_stage(0), Reranker.open(trained)
    assert reranker.name == "cross-encoder"
    assert (reranker.query_length, reranker.length) == (16, 48)
    with Index.open(indexed) as index:
        found = rerank(index, run, QUERIES, reranker, 7)
        for query, text in QUERIES.items():
            before = run[query].documents
            contents = index.contents(before[:7])
            texts = ["\n".join(filter(None, (contents[d].get("title"), contents[d]["text"]))) for d in before[:7]]
            scores = reranker.scores(text, texts)
            order = np.argsort(-scores, kind="stable")
            assert found[query].documents == [*(before[i] for i in order), *before[7:]]
            np.testing.assert_allclose(found[query].scores[:7], scores[order])
            assert found[query].scores[7] < found[query].scores[6]
            np.testing.assert_allclose(np.diff(found[query].scores[7:]), np.diff(run[query].scores[7:]))
        whole = rerank(index, run, QUERIES, reranker, 1000)
        assert [sorted(whole[q].documents) for q in QUERIES] == [sorted(run[q].documents) for q in QUERIES]
        hits = rerank_hits(index.search("dog", 5), "dog", reranker)
        assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5]
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_eight_bits_rank_about_as_floats_do(trained: Path) -> None:
    texts = [" ".join(np.random.default_rng(i).choice(WORDS, 12)) for i in range(20)]
    small, large = (Reranker.open(trained, p).scores("dog bark", texts) for p in ("int8", "float32"))  # type: ignore[arg-type]
    assert not np.array_equal(small, large)
    assert np.corrcoef(small, large)[0, 1] > 0.95


def test_torch_and_onnxruntime_agree(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["dog", "", "cat " * 100]
    by_onnx = Reranker.open(trained, "float32").scores("a dog", texts)
    monkeypatch.setenv("VIZSLA_RUNTIME", "torch")
    by_torch = Reranker.open(trained, "float32").scores("a dog", texts)
    np.testing.assert_allclose(by_torch, by_onnx, atol=0.02)  # torch may have run it in 16 bits
    assert len(Reranker.open(trained).scores("a dog", [])) == 0


def test_depths_are_those_of_reranking_each_by_itself(indexed: Path, trained: Path) -> None:
    runs, reranker = {"one": first_stage(0), "two": first_stage(1)}, Reranker.open(trained)
    rng = np.random.default_rng(3)
    qrels = Qrels({q: {str(i): int(g) for i, g in enumerate(rng.integers(0, 3, 30))} for q in QUERIES})
    with Index.open(indexed) as index:
        scores = pair_scores(index, list(runs.values()), QUERIES, reranker, 20)
        pairs = {(q, d) for run in runs.values() for q in QUERIES for d in run[q].documents[:20]}
        assert scores.pairs == len(pairs)
        found = at_depths(runs, scores, qrels, "nDCG@10 RR@10", [3, 10, 20])
        assert [(row.run, row.depth) for row in found] == [(n, d) for n in runs for d in (0, 3, 10, 20)]
        for row in found:
            run = runs[row.run]
            again = rerank(index, run, QUERIES, reranker, row.depth) if row.depth else run
            assert row.measures == evaluate(again, qrels, "nDCG@10 RR@10").measures
            if row.depth:
                assert row.recall == evaluate(run, qrels, f"R@{row.depth}").measures[f"R@{row.depth}"]
                assert row.seconds == pytest.approx(scores.seconds / scores.pairs * row.depth)


def test_ties_stay_in_the_order_of_the_run() -> None:
    run = Run({"q": [("c", 5.0), ("a", 4.0), ("b", 3.0), ("z", 2.0), ("y", 2.0)], "none": []})
    found = reranked(run, {"q": {"c": 1.0, "a": 1.0, "b": 2.0}, "none": {}}, 3)
    assert found["q"].documents == ["b", "c", "a", "z", "y"]
    assert found.untied(by_id=False)["q"].documents == ["b", "c", "a", "z", "y"]
    assert len(found["none"]) == 0


def test_the_command_writes_runs_and_tables(
    cli: Cli, judged: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    ix, run, out = tmp_path / "ix", tmp_path / "bm25.trec", tmp_path / "out.trec"
    assert cli("index", judged / "corpus.jsonl", "-o", ix)[0] == 0
    assert cli("search", ix, "--queries", judged / "queries.jsonl", "--output", run, "-k", 20)[0] == 0
    told = ["rerank", ix, "--run", run, "--reranker", trained]
    asked = ["--queries", judged / "queries.jsonl"]
    assert cli(*told, *asked, "--depth", 5, "-o", out)[0] == 0
    before, after = Run.read(run), Run.read(out)
    assert all(before[q].documents[5:] == after[q].documents[5:] for q in before)
    assert any(before[q].documents[:5] != after[q].documents[:5] for q in before)
    again = tmp_path / "again.trec"
    assert cli("search", ix, *asked, "--output", again, "-k", 20, "--rerank", trained, "--depth", 5)[0] == 0
    assert [Run.read(again)[q].documents for q in after] == [after[q].documents for q in after]
    code, shown, _ = cli("search", ix, "dog bark", "--rerank", trained, "-k", 2, "--json")
    assert code == 0
    assert len(json.loads(shown)["results"]) == 2
    assert cli("search", ix, "dog bark", "--rerank", trained)[0] == 0
    other = tmp_path / "other.trec"
    assert cli("search", ix, *asked, "--output", other, "-k", 20, "--augment", "rm3")[0] == 0
    code, shown, _ = cli(*told, "--run", other, "--dataset", judged, "--depths", "10,5", "--csv", tmp_path / "t.csv")
    assert code == 0
    assert "nDCG@10 at depth" in shown
    assert "first stage" in shown
    assert len((tmp_path / "t.csv").read_text().splitlines()) == 7
    code, shown, _ = cli(*told, "--dataset", judged, "--depths", "5,10", "--json")
    figures = json.loads(shown)["figures"]
    assert [one["depth"] for one in figures] == [0, 5, 10]
    assert figures[1]["recall"] <= figures[2]["recall"]


def test_what_is_wrong_is_said_in_a_sentence(
    cli: Cli, judged: Path, start: Path, trained: Path, tmp_path: Path
) -> None:
    ix, run = tmp_path / "ix", tmp_path / "run.trec"
    assert cli("index", judged / "corpus.jsonl", "-o", ix)[0] == 0
    bare = tmp_path / "bare"
    assert cli("index", judged / "corpus.jsonl", "-o", bare, "--no-store")[0] == 0
    run.write_text("q1 Q0 3 1 2.0 x\nq1 Q0 4 2 1.0 x\n")
    strange, unknown = tmp_path / "strange.trec", tmp_path / "unknown.trec"
    strange.write_text("q1 Q0 nowhere 1 2.0 x\n")
    unknown.write_text("zz Q0 3 1 2.0 x\n")
    empty, plain = tmp_path / "empty", tmp_path / "plain"
    empty.mkdir()
    save_plain(trained, plain)
    asked, out = ["--queries", judged / "queries.jsonl"], ["-o", tmp_path / "o.trec"]
    good = ["--reranker", trained]
    for more, message in (
        ([ix, "--run", run, *good, *out], "texts are needed"),
        ([ix, "--run", run, *good, *asked], "-o FILE"),
        ([ix, "--run", run, *good, *asked, "--depths", "5"], "--dataset"),
        ([ix, "--run", run, *good, "--dataset", judged, "--depths", "5,x"], "no depths"),
        ([ix, "--run", run, *good, "--dataset", judged, "--depths", "5"], "none of the judged"),
        ([ix, "--run", run, "--run", run, *good, *asked, *out], "one run"),
        ([ix, "--run", run, *good, *asked, *out, "--depth", "0"], "must be 1 or more"),
        ([ix, "--run", strange, *good, *asked, *out], "'nowhere'"),
        ([ix, "--run", unknown, *good, *asked, *out], "'zz'"),
        ([bare, "--run", run, *good, *asked, *out], "--no-store"),
        ([ix, "--run", run, *good, *asked, *out, "--precision", "int4"], "int4"),
        ([ix, "--run", run, "--reranker", empty, *asked, *out], "no encoder here"),
        ([ix, "--run", run, "--reranker", plain, *asked, *out], "no reranker"),
        ([ix, "--run", run, "--reranker", start, *asked, *out], "no reranker"),
    ):
        code, _, said = cli("rerank", *more)
        assert code == 2, message
        assert message in said
        assert said.count("\n") == 1
    for more, message in ((["dog"], "--no-store"), ([], "prompt"), (["dog", "--depth", "0"], "1 or more")):
        code, _, said = cli("search", bare, *more, "--rerank", trained)
        assert (code, message in said) == (2, True)


def save_plain(trained: Path, folder: Path) -> None:
    """The encoder of a reranker, without its head."""
    from transformers import BertModel

    BertModel.from_pretrained(trained, add_pooling_layer=False).save_pretrained(folder)


def test_training_needs_no_numba() -> None:
    code = "import sys; sys.modules['numba'] = None; from vizsla.networks import cross_encoder; import vizsla.training"
    code += "; from vizsla.networks.layout import save_reranker"
    subprocess.run([sys.executable, "-c", code], check=True)
