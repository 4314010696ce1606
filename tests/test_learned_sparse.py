"""Learned sparse models: a small network through onnxruntime and torch, in an index, in a sum, trained and saved."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from small import documents_of, small_model
from vizsla import BM25, Index, LearnedSparse, Model, VizslaError, parse_model
from vizsla.errors import InputError
from vizsla.index import verify
from vizsla.models import AutoWeightedSum, Network, Part, expression
from vizsla.models.sums import Impacts

TEXTS = [
    "Dogs bark at night.",
    "A cat sleeps; the dog barks, barks and barks.",
    "",
    "Quantum chromodynamics of quarks.",
]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> LearnedSparse:
    return small_model(tmp_path_factory.mktemp("network"))


def test_a_weight_is_the_highest_of_its_repeats(small: LearnedSparse) -> None:
    (terms,) = small.query_terms(["the dog barks, barks and barks."])
    assert list(terms) == list(dict.fromkeys(terms))
    assert all(weight > 0 for weight in terms.values())
    assert set(terms) <= {"the", "dog", "bark", "##s", ",", "and", "."}
    ids = np.array([101, *(small.pieces.numbers[p] for p in ("dog", "bark", "dog")), 102])
    weights = small.network.running.weights(ids, np.array([0, 5]))
    assert small.query_terms(["dog bark dog"])[0]["dog"] == pytest.approx(max(weights[1], weights[3]))


def test_texts_alone_and_together_are_the_same(small: LearnedSparse) -> None:
    assert small.query_terms(TEXTS) == [small.query_terms([t])[0] for t in TEXTS]
    assert small.query_terms([""]) == [{}]


def test_documents_and_queries_are_cut_into_the_same_pieces(small: LearnedSparse) -> None:
    """One way through the lexicon, the other through the tokenizers library."""
    texts = [*TEXTS, "naïve café — 3,5 kg?", "x" * 300, "漢字 emoji 🐕 and\ttabs", "half a pair \ud800 here"]
    rows = small.encode_documents([{"text": t} for t in texts])
    for row, terms in enumerate(small.query_terms(texts)):
        stored = {term: weight for (_, term), weight in rows[row].items()}
        step = small.network.max_weight / 255
        assert stored.keys() == {t for t, w in terms.items() if w > step / 2}
        assert all(abs(terms[t] - w) <= step / 2 + 1e-6 for t, w in stored.items())


def test_what_is_too_long_is_cut(small: LearnedSparse) -> None:
    long = " ".join(f"dog {i}" for i in range(200))
    assert small.query_terms([long]) == small.query_terms([" ".join(long.split()[:62])])
    short = replace(small, length=5)
    assert short.query_terms([long]) == short.query_terms(["dog 0 dog"])
    assert short.index_signature != small.index_signature
    with pytest.raises(VizslaError, match="reads 3 to 64 tokens"):
        replace(small, length=65)


def test_torch_makes_the_same_of_the_same_file(small: LearnedSparse) -> None:
    from vizsla.neural.torch_network import TorchNetwork

    numbers = small.pieces.numbers
    texts = [[101, *(numbers[p] for p in ("dog", "bark", "cat", "night")[:n]), 102] for n in (1, 4, 0, 3)]
    ids, offsets = np.concatenate(texts), np.cumsum([0, *map(len, texts)])
    torch_made = TorchNetwork(small.network.folder, "unicoil", 4, "cpu").weights(ids, offsets)
    made = small.network.running.weights(ids, offsets)
    spread = made[made > 0].std()
    assert np.abs(torch_made - made).max() < 0.3 * spread
    assert ((torch_made > 0) == (made > 0)).mean() > 0.9


def test_an_index_scores_as_the_vectors_do(small: LearnedSparse, tmp_path: Path) -> None:
    documents = [{"id": str(i), "text": t} for i, t in enumerate(TEXTS)]
    with Index.create(tmp_path / "i", small) as index:
        assert [d.id for d in index.add(documents).empty] == ["2"]
        index.commit()
        rows = small.encode_documents([{"text": t} for t in TEXTS])
        expected = small.encode_queries(["a barking dog"], small.statistics([{"text": t} for t in TEXTS])).dot(rows)[0]
        hits = {hit.id: hit.score for hit in index.search("a barking dog")}
        assert hits == pytest.approx({str(i): s for i, s in enumerate(expected) if s > 0}, rel=1e-6)
        index.delete(["1"])
        index.add([{"id": "0", "text": "Nothing of the kind."}])
        index.commit()
        assert "1" not in {hit.id for hit in index.search("a barking dog")}
        assert verify(index.path) == []


def test_an_index_has_its_own_copy_of_the_network(small: LearnedSparse, tmp_path: Path) -> None:
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
        assert any("weights.safetensors is damaged" in problem for problem in verify(index.path))
    weights.unlink()
    with Index.open(tmp_path / "i") as index, pytest.raises(InputError, match="no network here"):
        index.search("dogs")


def test_a_saved_model_is_the_same_again(small: LearnedSparse, tmp_path: Path) -> None:
    model = BM25() + 0.5 * small
    model.save(tmp_path / "m")
    again = Model.load(tmp_path / "m")
    assert again.parts == model.parts
    small.save(tmp_path / "alone")
    assert parse_model(f"bm25 + 0.5 * {tmp_path / 'alone'}").parts == model.parts
    (tmp_path / "m" / small.network.digest[:12] / "network.json").write_text("{")
    with pytest.raises(InputError, match="does not describe a network"):
        Model.load(tmp_path / "m")


def test_a_balanced_sum_is_settled_at_the_first_commit(small: LearnedSparse, tmp_path: Path) -> None:
    model = AutoWeightedSum((Part(1.0, BM25()), Part(0.5, small)), "both")
    documents = documents_of(80)
    with Index.create(tmp_path / "i", model) as index:
        assert index.model.needs_fit
        index.add(documents)
        index.commit()
        assert not index.model.needs_fit
        fitted = index.model.parts[1].weight
        assert fitted != 0.5
        assert fitted == model.fit([{"text": d["text"]} for d in documents]).parts[1].weight
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


def test_the_parts_of_a_settled_sum_lift_alike(small: LearnedSparse) -> None:
    contents = [{"text": d["text"]} for d in documents_of(90)]
    settled = AutoWeightedSum((Part(1.0, BM25()), Part(1.0, small))).fit(contents)
    doubled = AutoWeightedSum((Part(2.0, BM25()), Part(1.0, small))).fit(contents)
    assert doubled.parts[1].weight == pytest.approx(2 * settled.parts[1].weight, rel=1e-3)
    assert not settled.needs_fit
    few = AutoWeightedSum((Part(1.0, BM25()), Part(0.7, small))).fit(contents[:10])
    assert (few.parts[1].weight, few.needs_fit) == (0.7, True)


def test_several_adds_of_one_commit_are_fitted_together(small: LearnedSparse, tmp_path: Path) -> None:
    documents, weights = documents_of(90), []
    for name, parts in (("one", [documents]), ("three", [documents[:30], documents[30:60], documents[60:]])):
        with Index.create(tmp_path / name, AutoWeightedSum((Part(1.0, BM25()), Part(0.5, small)))) as index:
            for part in parts:
                index.add(part)
            index.commit()
            weights.append(index.model.parts[1].weight)
    assert weights[0] == weights[1] != 0.5


def test_expressions_of_learned_models(small: LearnedSparse, tmp_path: Path) -> None:
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


def test_networks_of_ones_own_by_name(small: LearnedSparse, tmp_path: Path) -> None:
    small.save(tmp_path / "m")
    assert parse_model(f"bm26e(network={tmp_path / 'm'})").parts[0].component.network == small.network
    both = parse_model(f"bm51e(network={tmp_path / 'm'}, weight=0.5)")
    assert [(part.weight, type(part.component)) for part in both.parts] == [(1.0, BM25), (0.5, LearnedSparse)]
    for name in ("bm26e", "bm51e"):
        with pytest.raises(VizslaError, match=f'train one, as in: vizsla train bm26e .* "{name}.network=DIR'):
            parse_model(name)
    (1.0 * BM25()).save(tmp_path / "words")
    with pytest.raises(VizslaError, match="needs a single network"):
        parse_model(f"bm51e(network={tmp_path / 'words'})")


def test_a_sum_waits_for_enough_documents(small: LearnedSparse, tmp_path: Path) -> None:
    documents = documents_of(70)
    with Index.create(tmp_path / "i", AutoWeightedSum((Part(1.0, BM25()), Part(0.5, small)))) as index:
        index.add(documents[:5])
        index.commit()
        assert (index.model.needs_fit, index.model.parts[1].weight) == (True, 0.5)
        assert index.search("dog")
        index.add(documents[5:])
        index.commit()
        assert not index.model.needs_fit


@pytest.mark.slow
def test_workers_have_networks_of_their_own(small: LearnedSparse, tmp_path: Path) -> None:
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


def test_a_rolled_back_add_leaves_the_sum_unsettled(small: LearnedSparse, tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", AutoWeightedSum((Part(1.0, BM25()), Part(0.5, small)))) as index:
        index.add(documents_of(60))
        index.rollback()
        index.refresh()
        assert index.model.needs_fit
        index.commit()


def test_impacts_are_bm25_in_eight_bits(tmp_path: Path) -> None:
    contents = [{"text": d["text"] + " and more" * (i % 7)} for i, d in enumerate(documents_of(60))]
    bm25, impacts = BM25(), Impacts(BM25())
    assert impacts.needs_corpus_statistics
    with pytest.raises(VizslaError, match="call fit\\(\\) with them first"):
        impacts.encode_documents(contents)
    with pytest.raises(VizslaError, match="needs the statistics of all documents"):
        Index.create(tmp_path / "i", impacts)
    settled = impacts.fit(contents)
    statistics = bm25.statistics(contents)
    scores = [
        m.encode_queries(["dog bark river"], m.statistics(contents)).dot(m.encode_documents(contents))[0]
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
        assert verify(index.path) == []
    with Index.open(tmp_path / "i") as index:
        assert index.model.parts[0].component == settled
        assert index.run({"q": "dog"}, model=settled)["q"].scores.max() <= 256 * 256


def test_the_papers_sum_is_of_whole_numbers(small: LearnedSparse) -> None:
    whole = replace(small, whole=True)
    assert all(w == round(w) for w in whole.query_terms(["the dog barks"])[0].values())
    contents = [{"text": t} for t in TEXTS]
    assert set(whole.encode_documents(contents).values) <= set(range(1, 256))
    paper = parse_model("bm51-paper")
    assert (paper.needs_corpus_statistics, paper.namespaces) == (True, ("impacts", "bm26"))
    assert not paper.fit(contents).needs_corpus_statistics
    both = parse_model("bm25-prime-paper").fit(contents)
    assert [p.component.name for p in both.parts] == ["bm25", "bm25-wp"]


def test_the_papers_sums_with_a_network_of_ones_own(small: LearnedSparse, tmp_path: Path) -> None:
    """The score is that of the index: whole numbers of BM25 plus whole numbers of the network."""
    small.save(tmp_path / "m")
    documents = [{"id": str(i), "text": t} for i, t in enumerate(TEXTS)]
    for name in ("bm51-paper", "bm51e-paper"):
        model = parse_model(f"{name}(network={tmp_path / 'm'}, k1=1.2)").fit(documents)
        impacts, learned = (part.component for part in model.parts)
        assert (impacts.bm25.k1, learned.network) == (1.2, small.network)  # type: ignore[attr-defined]
    with Index.create(tmp_path / "i", model) as index:
        index.add(documents)
        index.commit()
        hits = index.search("the dog barks")
        alone = [{h.id: h.score for h in index.search("the dog barks", model=part.component)} for part in model.parts]
    assert hits
    assert all(hit.score == sum(scores.get(hit.id, 0.0) for scores in alone) for hit in hits)
    assert all(hit.score == round(hit.score) for hit in hits)
    scaled = parse_model(f"bm51-paper(network={tmp_path / 'm'}, query_scale=3)").fit(documents)
    with Index.create(tmp_path / "scaled", scaled) as index:
        assert index.model.parts[0].component.query_terms(["dog dog dog dog barks"]) == [{"dog": 3.0, "bark": 1.0}]
    with Index.open(tmp_path / "scaled") as index:
        assert index.model.parts[0].component == scaled.parts[0].component
    for scale in (0, 257):
        with pytest.raises(VizslaError, match="query_scale must be 1 to 256"):
            parse_model(f"bm51-paper(query_scale={scale})")
    fields = parse_model(f"bm51-paper(network={tmp_path / 'm'}, fields=title)")
    assert [part.component.fields for part in fields.parts] == [("title",), ("title",)]
    with pytest.raises(VizslaError, match=r'vizsla train bm26e .*"bm51e-paper\(network=DIR\)"'):
        parse_model("bm51e-paper")


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
    terms = bm26.query_terms(["what is the height of the tallest volcano in the world"])[0]
    assert set(sorted(terms, key=terms.__getitem__)[-2:]) == {"tallest", "volcano"}
    assert terms["the"] < terms["volcano"] / 2
    folder = bm26.parts[0].component.network.folder  # type: ignore[attr-defined]
    assert sum(f.stat().st_size for f in folder.iterdir()) < 25_000_000


@pytest.mark.parametrize("name", ["vizsla-sparse", "vizsla-sparse-doc"])
def test_the_shipped_splade_finds_other_words_for_the_same(name: str) -> None:
    """A query and a document without a common word: BM25 finds nothing, vizsla-sparse does."""
    both = parse_model(name)
    told = "(inference_free=true)" if name.endswith("doc") else ""
    assert expression(both) == f"bm25 + 1.3 * vizsla-splade{told}"
    documents = [{"text": "Automobile makers cut prices."}, {"text": "A recipe for bread with olives."}]
    rows = both.encode_documents(documents)
    scores = both.encode_queries(["cheap cars"], both.statistics(documents)).dot(rows)[0]
    assert scores[0] > 2 * scores[1]
    folder = both.parts[1].component.network.folder  # type: ignore[attr-defined]
    assert sum(f.stat().st_size for f in folder.rglob("*")) < 27_000_000


@pytest.mark.parametrize("table", [False, True])
def test_added_terms_weigh_at_most_so_many_times_what_a_querys_own_weigh(table: bool) -> None:
    free = LearnedSparse.shipped("vizsla-splade", inference_free=table)
    texts = ["cheap cars", "", "zebra crossing at night", "the"]
    for limit in (0.5, 2.0):
        for text, before, after in zip(
            texts, free.query_terms(texts), replace(free, max_added=limit).query_terms(texts), strict=True
        ):
            own = {t: w for t, w in before.items() if t in free.typed_terms(text)}
            added = {t: w for t, w in before.items() if t not in own}
            factor = min(1.0, limit * sum(own.values()) / sum(added.values())) if added else 1.0
            assert after == pytest.approx(own | {t: factor * w for t, w in added.items() if factor}, rel=1e-5)
    with pytest.raises(VizslaError, match="max_added must be a number of 0 or more, not -1"):
        LearnedSparse.shipped("vizsla-splade", max_added=-1)


def test_a_runtime_that_is_none_is_refused(small: LearnedSparse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIZSLA_RUNTIME", "jax")
    fresh = replace(small, network=Network.open(small.network.folder))
    with pytest.raises(VizslaError, match="VIZSLA_RUNTIME"):
        fresh.query_terms(["dogs"])


def test_an_auto_weighted_model_takes_the_weights_of_its_index(small: LearnedSparse, tmp_path: Path) -> None:
    both = AutoWeightedSum((Part(1.0, BM25()), Part(0.5, small)), "both")
    with Index.create(tmp_path / "i", both) as index:
        before = index.with_model()
        index.add(documents_of(80))
        index.commit()
        assert index.model.parts[1].weight != 0.5
        hits = [(hit.id, hit.score) for hit in index.search("dog bark")]
        assert [(hit.id, hit.score) for hit in index.search("dog bark", model=both)] == hits
        assert [(hit.id, hit.score) for hit in before.search("dog bark")] == hits


def test_only_the_heaviest_terms_are_kept(small: LearnedSparse, tmp_path: Path) -> None:
    """An index with fewer terms scores as vectors of the heaviest terms do; queries can be cut without reindexing."""
    text = "A long text about dogs that bark at night and sleep all day in the sun"
    short = replace(small, max_terms=3, max_query_terms=2)
    all_terms, few_terms = small.query_terms([text])[0], short.query_terms([text])[0]
    assert few_terms == dict(sorted(all_terms.items(), key=lambda pair: -pair[1])[:2])
    with Index.create(tmp_path / "i", replace(small, max_terms=3)) as index:
        index.add([{"id": "1", "text": text}, {"id": "2", "text": "Sun"}])
        index.commit()
        assert index.info()["postings"] == 4
        hits = index.search(text, model=short)
        assert [hit.id for hit in hits] == ["1"]
        with pytest.raises(VizslaError):
            index.search(text, model=small)  # whose documents have more terms
    for wrong in (-1, 1.5, True):
        with pytest.raises(VizslaError, match="max_terms must be a whole number"):
            replace(small, max_terms=wrong)  # type: ignore[arg-type]
