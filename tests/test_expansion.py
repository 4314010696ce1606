"""BM25 asked in other words: augmenters and RM3, in an index and by themselves."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from conftest import Cli
from small import HIDDEN, small_weights
from vizsla import BM25, Analyzer, Index, Model, VizslaError, parse_model
from vizsla.errors import InputError
from vizsla.index import document_vectors, verify
from vizsla.models import RM3, Augmenter, ExpandedBM25, Network, parse_expander, with_expansion
from vizsla.models import augmenter as augmenters
from vizsla.models.augmenter import read_query
from vizsla.neural.onnx_graph import Precision

DOCUMENTS = [
    {"id": "1", "title": "Dogs", "text": "Dogs bark at the postman, and the postman runs."},
    {"id": "2", "title": "Cats", "text": "Cats purr and sleep in the sun."},
    {"id": "3", "title": "Mail", "text": "The postman brings letters and parcels."},
    {"id": "4", "title": "Sun", "text": "The sun shines on letters."},
]
TERMS = ("letter", "postman", "sun", "nowher")


class Scripted:
    """A network that adds letters by 0.5 and what is nowhere, drops every third token, and doubles the second."""

    def __init__(self, added: tuple[float, ...] = (0.5, 0.25, 0.0, 0.75), weights: tuple[float, ...] = (1, 1, 2, 0)):
        self.added, self.pattern = added, weights

    def augmentations(self, ids: np.ndarray, offsets: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:  # noqa: ARG002
        sizes = np.diff(offsets).tolist()
        return [(np.resize(np.array(self.pattern, float), n), np.array(self.added)) for n in sizes]


def scripted(**options: object) -> Augmenter:
    network = Network(Path("nowhere"), "digest", kind="augmenter", length=64)
    network.__dict__["running"] = Scripted()
    words, pieces = Analyzer.parse("lucene-english"), Analyzer.parse("wordpiece")
    return Augmenter(network, TERMS, words, pieces, **options)  # type: ignore[arg-type]


@pytest.fixture
def index(tmp_path: Path) -> Index:
    made = Index.create(tmp_path / "i")
    made.add(DOCUMENTS)
    made.commit()
    return made


def test_own_terms_are_weighed_and_others_added() -> None:
    # [CLS] dogs bark loudly [SEP] have weights 1 1 2 0 1
    (terms,) = scripted().query_terms(["Dogs bark loudly"], BM25())
    assert terms == {"dog": 1.0, "bark": 2.0, "loudli": 0.0, "nowher": 0.75, "letter": 0.5, "postman": 0.25}
    (terms,) = scripted(most=1).query_terms(["the postman bark"], BM25())
    assert terms == {"postman": 2.0 * 1.25, "bark": 1.0, "nowher": 0.75}  # post and ##man weigh 2 and 0
    assert scripted().query_terms(["", "the"], BM25()) == [{}, {}]


def test_scores_are_those_of_the_weighted_terms(index: Index) -> None:
    model = BM25().expand(scripted())
    vectors = dict(document_vectors(index))
    hits = index.search("Dogs bark loudly", model=model)
    asked = {"dog": 1.0, "bark": 2.0, "letter": 0.5, "postman": 0.25}
    plain = {d: sum(w * v.get(t, 0.0) for t, w in asked.items()) for d, v in vectors.items()}
    assert {h.id: pytest.approx(h.score) for h in hits} == {d: s for d, s in plain.items() if s > 0}
    statistics = model.statistics(DOCUMENTS)
    dense = model.encode_queries(["Dogs bark loudly"], statistics).dot(model.encode_documents(DOCUMENTS, statistics))
    assert dense[0].tolist() == pytest.approx([plain[d["id"]] for d in DOCUMENTS])
    explained = index.explain("Dogs bark loudly", "1", model=model)
    assert explained.score == pytest.approx(plain["1"])
    told = {leaf.name: (leaf.facts["in_query"], leaf.facts["added"]) for leaf in explained.parts}
    assert told["loudli"] == (0.0, False)
    assert told["letter"] == (0.5, True)
    assert told["bark"] == (2.0, False)


def test_a_view_of_an_index_expands_queries(index: Index) -> None:
    before = [h.id for h in index.search("Dogs bark loudly")]
    view = index.with_model(with_expansion(index.model, scripted()))
    assert "4" in [h.id for h in view.search("Dogs bark loudly")]
    snippet = view.highlighter("Dogs bark loudly").snippet(index.get("3"))  # type: ignore[arg-type]
    assert [snippet.text[a:z] for a, z in snippet.matches] == ["postman", "letters"]
    assert [h.id for h in index.search("Dogs bark loudly")] == before


def test_other_words_in_a_sum(tmp_path: Path) -> None:
    both = parse_model("bm25 + 0.5 * bm25-wp")
    with Index.create(tmp_path / "both", both) as made:
        made.add(DOCUMENTS)
        made.commit()
        asked = with_expansion(made.model, scripted())
        assert [type(p.component) for p in asked.parts] == [ExpandedBM25, BM25]
        assert made.search("Dogs bark", model=asked)[0].id == "1"
        assert made.with_model("bm25-wp").highlighter("dogs").snippet(made.get("1")).matches  # type: ignore[arg-type]
    with pytest.raises(VizslaError, match="was trained for the analyzer lucene-english, and bm25-wp has wordpiece"):
        with_expansion(parse_model("bm25-wp"), scripted())
    with pytest.raises(VizslaError, match="expands queries for BM25, and vectors has no BM25"):
        with_expansion(parse_model("vectors"), scripted())


def test_words_are_spoken_for_by_their_pieces() -> None:
    words, pieces = Analyzer.parse("lucene-english"), Analyzer.parse("wordpiece")
    ids, own = read_query("Unfathomable dogs, dogs!", words, pieces, 64)
    tokens = [pieces.tokenizer.vocabulary[i] for i in ids]  # type: ignore[attr-defined]
    spoken = {term: [tokens[p - 1] for p in places] for term, places in own.items()}
    assert "".join(spoken["unfathom"]).replace("##", "") == "unfathomable"
    assert spoken["dog"] == ["dogs", "dogs"]
    _, cut = read_query("dogs bark " * 50, words, pieces, 12)
    assert cut["dog"] == [1, 3, 5, 7, 9]
    ids, own = read_query("dogs bark dogs", pieces, pieces, 64)
    assert own == {"dogs": [1, 3], "bark": [2]}


def test_words_beyond_what_is_read_keep_their_weight() -> None:
    (terms,) = scripted().query_terms(["dogs " * 80 + "zebra"], BM25())
    assert terms["zebra"] == 1.0


def saved(
    folder: Path, precision: Precision = "float32", tied: bool = False, rank: int = 0, weighs: bool = True
) -> Augmenter:
    """A small augmenter with random weights, over word pieces."""
    pieces, weights = Analyzer.parse("wordpiece"), small_weights(5)
    names = pieces.tokenizer.vocabulary  # type: ignore[attr-defined]
    terms = tuple(names if tied else names[2000:2050])
    rng = np.random.default_rng(5)
    weights |= {"add.out.bias": rng.normal(-0.5, 0.3, len(terms)), "add.factor": np.array([0.7])}
    if not tied:
        weights["add.out.weight"] = rng.normal(0, 0.3, (50, rank or HIDDEN))
    if rank:
        weights["add.down.weight"] = rng.normal(0, 0.3, (rank, HIDDEN))
    if not weighs:
        del weights["weigh.weight"], weights["weigh.bias"]
    network = Network.write(
        folder / "net", weights, kind="augmenter", heads=4, max_weight=1.0, length=64, precision=precision
    )
    return Augmenter(network, terms, pieces, pieces)


@pytest.mark.parametrize(
    ("tied", "rank", "weighs"), [(True, 0, True), (False, 0, True), (False, 8, True), (False, 0, False)]
)
def test_onnx_and_torch_add_the_same(tmp_path: Path, tied: bool, rank: int, weighs: bool) -> None:
    from vizsla.neural.torch_network import TorchNetwork

    made = saved(tmp_path, tied=tied, rank=rank, weighs=weighs)
    by_torch = TorchNetwork(made.network.folder, "augmenter", 4, "cpu")
    by_torch.precision = torch.float32
    ids, offsets = np.array([101, 2003, 2004, 102, 101, 3000, 102]), np.array([0, 4, 7])
    found = made.network.running.augmentations(ids, offsets)
    expected = by_torch.augmentations(ids, offsets)
    for (weights, added), (others, more) in zip(found, expected, strict=True):
        assert np.allclose(weights, others, atol=1e-4)
        assert np.allclose(added, more, atol=1e-4)
        assert 0 < (added > 0).sum() < len(added)
    small = saved(tmp_path / "small", "int8", tied, rank, weighs).network.running.augmentations(ids, offsets)
    assert np.abs(small[0][1] - found[0][1]).max() < 0.15 * max(1.0, found[0][1].max())


def test_an_augmenter_is_saved_with_a_model_and_by_itself(tmp_path: Path, cli: Cli) -> None:
    made = saved(tmp_path)
    made.save(tmp_path / "a")
    again = Augmenter.load(tmp_path / "a")
    assert again == made
    texts = ["dogs bark", "the sun"]
    assert again.query_terms(texts, BM25(analyzer="wordpiece")) == made.query_terms(texts, BM25(analyzer="wordpiece"))
    model = BM25(analyzer="wordpiece").expand(made)
    model.save(tmp_path / "m")
    assert Model.load(tmp_path / "m") == model
    with Index.create(tmp_path / "i", model) as index:
        index.add(DOCUMENTS)
        index.commit()
    with Index.open(tmp_path / "i") as index:
        assert verify(index.path) == []
        one = index.search("dogs bark")
        many = index.search_many(["dogs bark", "sun"])[0]
        assert [(h.id, h.score) for h in one] == [(h.id, pytest.approx(h.score)) for h in many]
    with Index.create(tmp_path / "plain", "bm25-wp") as index:
        index.add(DOCUMENTS)
        index.commit()
    code, out, said = cli("search", tmp_path / "plain", "dogs bark", "--expand", tmp_path / "a", "--json")
    assert code == 0, said
    assert json.loads(out)["model"] == "bm25-wp with augmenter"
    assert [r["id"] for r in json.loads(out)["results"]] == [h.id for h in one]
    code, out, said = cli("explain", tmp_path / "plain", "dogs bark", "1", "--expand", tmp_path / "a")
    assert code == 0, said
    assert "added" in out
    assert all(line.endswith(("here)", "document", "documents", "query")) for line in out.splitlines()[1:])


def test_augmenters_that_are_none(tmp_path: Path, cli: Cli, index: Index) -> None:
    path = index.path
    index.close()
    for name, content, problem in (
        ("missing", None, "there is no augmenter here (no augmenter.json)"),
        ("broken", "{", "this does not describe an augmenter"),
        ("other", '{"terms": "x"}', "this does not describe an augmenter (network is missing)"),
        ("bare", json.dumps(dict.fromkeys(("network", "terms", "analyzer", "pieces"), "x")), "terms of this augmenter"),
    ):
        folder = tmp_path / name
        if content is not None:
            folder.mkdir()
            (folder / "augmenter.json").write_text(content)
        code, _, said = cli("search", path, "dogs", "--expand", folder)
        assert (code, problem in said) == (2, True), said
    saved(tmp_path).save(tmp_path / "a")
    code, _, said = cli("search", path, "dogs", "--expand", tmp_path / "a")
    assert (code, "was trained for the analyzer wordpiece" in said) == (2, True)
    with pytest.raises(VizslaError, match="no augmenter"):
        Augmenter(Network(Path("x"), "d", kind="unicoil"), (), Analyzer.parse("wordpiece"), Analyzer.parse("wordpiece"))
    with pytest.raises(InputError, match="no augmenter here"):
        parse_model("bm25-augmented(network=nowhere)")


def test_one_augmenter_comes_with_the_package(tmp_path: Path) -> None:
    general = Augmenter.load("general")
    assert (general.name, general.most, len(general.terms)) == ("general", 8, 32_000)
    questions = ["does life insurance cover suicide", "what treats high blood pressure", ""]
    made = general.query_terms(questions, BM25())
    assert {"death", "murder"} <= set(made[0])
    assert made[0]["suicid"] > 1 > made[0]["doe"]
    assert made[2] == {}
    general.save(tmp_path)  # by itself, with what the package has only once
    copy = Augmenter.load(tmp_path)
    assert copy.query_terms(questions, BM25()) == made
    sha256 = hashlib.sha256()
    for name in ("network.onnx", "weights.safetensors"):
        sha256.update((copy.network.folder / name).read_bytes())
    assert sha256.hexdigest() == general.network.digest
    assert parse_model("bm25-augmented").name == "bm25-augmented"


def test_rm3_adds_nothing_common(index: Index) -> None:
    """With four documents every word is in more than a tenth of them."""
    with index._reading() as searcher:
        (terms,) = BM25().expand(RM3()).query_terms(["dog bark"], searcher.context(None))
    assert terms == {"dog": 0.25, "bark": 0.25}


def test_rm3_learns_nothing_from_documents_worth_nothing(tmp_path: Path) -> None:
    """Where a word is in all documents, some variants of BM25 give it no weight, or a negative one."""
    for variant in ("atire", "robertson"):
        model = BM25(variant=variant)
        with Index.create(tmp_path / variant, model) as index:
            index.add([{"id": str(i), "text": f"dog rare{i}"} for i in range(20)])
            index.commit()
            with index._reading() as searcher:
                (terms,) = model.expand(RM3()).query_terms(["dog"], searcher.context(None))
        assert terms == {"dog": 0.5}


def test_rm3_adds_words_of_what_is_found(tmp_path: Path) -> None:
    filler = [{"id": f"f{i}", "text": f"nothing here but number {i} and filler{i % 7}"} for i in range(60)]
    with Index.create(tmp_path / "i") as index:
        index.add([*DOCUMENTS, *filler])
        index.commit()
        rm3 = RM3(documents=1, terms=2, original=0.4)
        (hit,) = index.search("bark", 1)
        with index._reading() as searcher:
            (terms,) = BM25().expand(rm3).query_terms(["bark"], searcher.context(None))
        # of the one document postman and dog come twice, once in the title; of equal counts the first by name
        assert terms == pytest.approx({"bark": 0.4, "dog": 0.3, "postman": 0.3})
        found = [h.id for h in index.search("bark", model="bm25-rm3(documents=1, terms=2, original=0.4)")]
        assert found[0] == hit.id == "1"
        assert "3" in found
        assert [h.id for h in index.search_many(["bark"], model=BM25().expand(rm3))[0]] == found
    with Index.create(tmp_path / "bare", store=False) as index:
        index.add([*DOCUMENTS, *filler])
        index.commit()
        with pytest.raises(VizslaError, match="this index does not keep them"):
            index.search("bark", model="bm25-rm3")
    with pytest.raises(VizslaError, match="so it needs an index"):
        parse_model("bm25-rm3").encode_queries(["bark"], parse_model("bm25").statistics(["dogs bark"]))
    with pytest.raises(VizslaError, match="RM3 needs 1 document"):
        RM3(documents=0)
    again = with_expansion(BM25().expand(RM3()), RM3(terms=3))
    assert again == BM25().expand(RM3(terms=3))
    assert parse_expander("rm3(terms=5)") == RM3(terms=5)
    with pytest.raises(VizslaError, match="rm3 does not take the option k1"):
        parse_expander("rm3(k1=2)")


def test_a_model_that_looks_twice_is_saved(tmp_path: Path) -> None:
    model = BM25(k1=1.2).expand(RM3(terms=7))
    model.save(tmp_path / "m")
    assert Model.load(tmp_path / "m") == model


def test_rm3_sees_nothing_the_filter_excludes(tmp_path: Path, cli: Cli) -> None:
    """No word of another tenant's documents comes into a query, whichever way it is asked."""
    mine = [{"id": f"m{i}", "text": f"zebra stripes {'savanna' * (i % 2)}", "tenant": "mine"} for i in range(4)]
    secret = [{"id": f"s{i}", "text": "zebra zebra merger merger", "tenant": "other"} for i in range(4)]
    stray = {"id": "m9", "text": "a merger of rivers", "tenant": "mine"}  # found by the other tenant's word alone
    filler = [{"id": str(i), "text": "nothing of that", "tenant": "mine"} for i in range(100)]
    model = BM25().expand(RM3(documents=3, terms=4))
    with Index.create(tmp_path / "f") as index:
        index.add([*mine, *secret, stray, *filler])
        index.commit()
        assert "m9" in [hit.id for hit in index.search("zebra", 20, model=model)]
        allowed = 'tenant = "mine"'
        expected = {"m0", "m1", "m2", "m3"}
        for condition in (allowed, {"tenant": "mine"}):
            assert {hit.id for hit in index.search("zebra", 20, condition, model=model)} == expected
            assert {hit.id for hit in index.search_many(["zebra"] * 2, 20, condition, model=model)[1]} == expected
            assert set(index.run({"q": "zebra"}, 20, condition, model=model)["q"].documents) == expected
            explained = index.explain("zebra", "m1", condition, model=model)
            assert "merger" not in {part.name for part in explained.parts}
            (hit,) = [hit for hit in index.search("zebra", 20, condition, model=model) if hit.id == "m1"]
            assert explained.score == pytest.approx(hit.score)
        assert "merger" in {part.name for part in index.explain("zebra", "m1", model=model).parts}
        with pytest.raises(VizslaError, match="'s1' does not pass the filter"):
            index.explain("zebra", "s1", allowed, model=model)
        view = index.with_model(model)
        document = index.get("m9")
        assert document is not None
        assert view.highlighter("zebra", allowed).snippet(document).matches == ()
        assert view.highlighter("zebra").snippet(document).matches != ()
    told = cli("explain", tmp_path / "f", "zebra", "m1", "--filter", allowed, "--expand", "rm3(documents=3, terms=4)")
    assert (told[0], "merger" in told[1]) == (0, False)


def test_rm3_mixes_documents_by_their_scores(tmp_path: Path) -> None:
    """By hand: two documents, their words by count, each document's share in proportion to its score."""
    filler = [{"id": f"f{i}", "text": f"nothing here but filler{i}"} for i in range(100)]
    two = [{"id": "a", "text": "zebra stripes stripes"}, {"id": "b", "text": "zebra zebra zebra savanna grass grass"}]
    with Index.create(tmp_path / "i") as index:
        index.add([*two, *filler])
        index.commit()
        scores = {h.id: h.score for h in index.search("zebra")}
        with index._reading() as searcher:
            (terms,) = (
                BM25().expand(RM3(documents=2, terms=3, original=0.25)).query_terms(["zebra"], searcher.context(None))
            )
    a, b = scores["a"], scores["b"]
    model = {"zebra": a / 3 + b * 3 / 6, "stripe": a * 2 / 3, "grass": b * 2 / 6, "savanna": b / 6}
    best = sorted(model, key=lambda t: -model[t])[:3]
    total = sum(model[t] for t in best)
    expected = {t: 0.75 * model[t] / total for t in best}
    expected["zebra"] += 0.25
    assert terms == pytest.approx(expected)


def test_words_in_every_document_are_found_by_plain_bm25(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", "bm25(variant=atire)") as index:
        index.add([{"id": "1", "text": "dog"}, {"id": "2", "text": "dog"}])
        index.commit()
        assert [(h.id, h.score) for h in index.search("dog")] == [("1", 0.0), ("2", 0.0)]


def test_looking_twice_is_evaluated(cli: Cli, judged: Path) -> None:
    code, out, said = cli("eval", judged, "--model", "bm25-rm3", "--json")
    assert code == 0, said
    assert json.loads(out)["measures"]["nDCG@10"] > 0
    code, out, said = cli("compare", judged, "--model", "bm25,bm25-rm3", "--json")
    assert code == 0, said


def test_any_characters_may_be_in_the_terms_of_an_augmenter(tmp_path: Path) -> None:
    shipped = Augmenter.load("general")
    other = replace(shipped, terms=("\ud800", "a\0b", "a\n", *shipped.terms[3:]))
    other.save(tmp_path)
    assert Augmenter.load(tmp_path) == other


def test_the_augmenter_of_vizslas_own_is_found_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a checkout it lies beside the code; otherwise a package has it, and a sentence says which."""
    shipped = augmenters.SHIPPED / "general"
    monkeypatch.setattr(augmenters, "SHIPPED", tmp_path)
    with pytest.raises(VizslaError, match=r"not installed; get them \(35 MB\) with: pip install 'vizsla\[augmenter\]'"):
        Augmenter.load("general")
    package = tmp_path / "packages" / "vizsla_augmenter_general"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    shutil.copytree(shipped, package / "model")
    (package / "bm26").symlink_to(shipped.parent / "bm26")  # whose embeddings it reads
    monkeypatch.syspath_prepend(package.parent)
    assert Augmenter.load("general").network.digest == Augmenter.load(shipped).network.digest
