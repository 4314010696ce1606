"""Training an augmenter: the score it learns through is the engine's, and its gradients are right."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from test_training import batch, same_in_processes, small_bert
from vizsla import BM25, Analyzer, BeirDataset, Index, VizslaError
from vizsla.errors import InputError
from vizsla.models import Augmenter, with_expansion
from vizsla.neural.chunks import packed
from vizsla.neural.encoder import encoder_of
from vizsla.neural.heads.augmenter import Adder, AugmentedQueries
from vizsla.neural.heads.augmenter import Augmenter as Network
from vizsla.training import (
    AugmenterDev,
    AugmenterLoss,
    AugmenterObjective,
    AugmenterPairs,
    BM25Rows,
    Distributed,
    MixedPairs,
    QueryTerms,
    TokenCorpus,
)
from vizsla.training.kinds.augmenter import (
    AugmenterDataSettings,
    CountedDataset,
    DatasetArrays,
    TermVocabulary,
    chosen_terms,
    freeze_embeddings,
    query_vectors,
    strongest,
    surface_pieces,
)
from vizsla.training.loop.objectives import Step
from vizsla.training.loop.products import SparseRows
from vizsla.training.networks import base_encoder

PIECES = Analyzer.parse("wordpiece")


def small_augmenter(terms: int = 9, rank: int = 0) -> Network:
    torch.manual_seed(4)
    network = Network(encoder_of(small_bert()), Adder(terms, 16, rank))
    torch.nn.init.normal_(network.weigh.weight, 0, 0.3)  # type: ignore[union-attr]
    return network.double()


def small_pairs(queries: int = 6, columns: int = 12) -> AugmenterPairs:
    rng = np.random.default_rng(3)
    sizes = rng.integers(2, 6, 20)
    terms = np.concatenate([rng.choice(columns, n, replace=False) for n in sizes])
    rows = SparseRows(np.concatenate([[0], np.cumsum(sizes)]), terms, rng.random(len(terms)))
    shares = rng.random(columns)
    shares[2] = 0.0
    collection = BM25Rows(rows, 1 + rng.random(columns), shares)
    texts = TokenCorpus.of([rng.integers(4, 100, 5) for _ in range(queries)])
    own = QueryTerms.of([[(1, 3), (2, 10), (3, 10), (5, 1)] for _ in range(queries)])
    positives = TokenCorpus.of([np.array([q, 6]) for q in range(queries)])  # document 6 answers them all
    negatives = TokenCorpus.of([np.array([(q + 1) % queries, 19]) for q in range(queries)])  # some answer others
    return AugmenterPairs(collection, texts, own, positives, negatives, negatives_per_query=2)


def test_query_vectors_by_the_formula() -> None:
    """w(q) * (bow(q) + a(q)), with w = 1 for terms that are not in the query."""
    added = torch.tensor([[0.5, 0.0, 0.25]])
    weights = torch.tensor([[9.0, 2.0, 0.5, 3.0, 9.0]])
    own = torch.tensor([[[1, 2], [2, 1], [3, 4], [2, 4], [-1, -1]]])
    made = query_vectors(AugmentedQueries(added, weights), own, 5)
    assert made.tolist() == [[0.5, 0.5, 2.0 * 1.25, 0.0, 3.0]]
    unread = torch.tensor([[[1, 2], [-2, 0], [-1, -1]]])
    assert query_vectors(AugmentedQueries(added, weights), unread, 4).tolist() == [[1.5, 0.0, 2.0 * 1.25, 0.0]]


def loss_of(network: Network, batch: Any, settings: AugmenterLoss) -> torch.Tensor:
    side = packed(*batch.texts[0], 1000)
    outputs = ([network(chunk) for chunk in side.chunks],)
    return AugmenterObjective(settings)(Step(0, network, Distributed(), batch, [side], outputs), {})


@pytest.mark.parametrize("uniform", [False, True])
def test_the_loss_by_its_definition(uniform: bool) -> None:
    pairs, network = small_pairs(), small_augmenter()
    settings = AugmenterLoss(added_cost=0.3, uniform_cost=uniform, temperature=0.8)
    drawn = pairs.batch(4, 0, 0, torch.device("cpu"))
    loss = loss_of(network, drawn, settings)
    collection, documents = pairs.collection, drawn.extra.documents.matrix.to_dense().double().numpy()
    total = cost = 0.0
    for q in range(4):
        (chunk,) = packed(*(part[q : q + 1] for part in drawn.texts[0]), 1000).chunks
        made = network(chunk).detach().numpy()
        added, weights = made[:9] * (collection.document_share[:9] > 0), made[9:]
        query = np.concatenate([added, np.zeros(3)])
        for column, weight in ((3, weights[1]), (10, max(weights[2], weights[3])), (1, weights[5])):
            query[column] = weight * (1 + query[column])
        scores = documents @ (query * collection.idf.astype(np.float32)) / 0.8
        allowed = ~drawn.false_negatives[q].numpy()
        total += np.log(np.exp(scores[allowed]).sum()) - scores[q]
        price = (collection.document_share[:9] > 0) if uniform else np.sqrt(collection.document_share[:9])
        cost += 0.3 * added @ price
    assert loss.item() == pytest.approx((total + cost) / 4, rel=1e-5)


def test_gradients_of_the_score_are_numerical_ones() -> None:
    pairs, network = small_pairs(), small_augmenter()
    drawn = pairs.batch(4, 0, 0, torch.device("cpu"))

    def loss() -> torch.Tensor:
        return loss_of(network, drawn, AugmenterLoss(added_cost=0.2))

    loss().backward()
    rng = np.random.default_rng(1)
    for parameter in (network.add.out.weight, network.add.out.bias, network.weigh.weight, network.add.factor):  # type: ignore[union-attr]
        flat, gradient = parameter.data.view(-1), parameter.grad.view(-1)
        for i in rng.permutation(len(flat))[:5]:
            value, step = flat[i].item(), 1e-5
            sides = []
            for way in (step, -step):
                flat[i] = value + way
                sides.append(loss().item())
            flat[i] = value
            assert gradient[i].item() == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-4, abs=1e-7)


def test_pairs_and_dev_sets_are_kept_in_files(tmp_path: Path) -> None:
    pairs = small_pairs()
    pairs.save(tmp_path / "p" / "pairs.npz")
    again = AugmenterPairs.open(tmp_path / "p" / "pairs.npz")
    one, two = (p.batch(4, 0, 1, torch.device("cpu")) for p in (pairs, again))
    assert torch.equal(one.texts[0][0], two.texts[0][0])
    assert torch.equal(one.extra.documents.matrix.to_dense(), two.extra.documents.matrix.to_dense())
    dev = AugmenterDev("set", pairs.collection, pairs.queries, pairs.own, np.array([[0, 1, 1], [2, 3, 2]]))
    dev.save(tmp_path / "dev.npz")
    network = small_augmenter().float()
    figures = [
        d.figures(network, network.vectors, torch.device("cpu")) for d in (dev, AugmenterDev.open(tmp_path / "dev.npz"))
    ]
    assert figures[0] == figures[1]
    assert list(figures[0]) == ["set nDCG@10"]
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "dev.npz").read_bytes()[:2000])
    none = "these are not packed queries"
    for name, problem in (("missing.npz", "no packed queries here"), ("broken.npz", none), ("cut.npz", none)):
        with pytest.raises(InputError, match=problem):
            AugmenterPairs.open(tmp_path / name)


def test_answers_of_a_query_are_never_held_against_it() -> None:
    pairs, seen = small_pairs(), 0
    for step in range(6):
        drawn = pairs.batch(3, 1, step, torch.device("cpu"))
        texts = [tuple(row[1:-1].tolist()) for row in drawn.texts[0][0]]
        queries = [next(q for q in range(6) if tuple(pairs.queries[q].tolist()) == text) for text in texts]
        rows = drawn.extra.documents.matrix.to_dense()
        every = pairs.collection.matrix(torch.device("cpu")).matrix.to_dense()
        documents = [next(d for d in range(20) if torch.equal(every[d], row)) for row in rows]
        assert len(documents) == 9
        expected = [[d in (q, 6) and i != j for j, d in enumerate(documents)] for i, q in enumerate(queries)]
        assert drawn.false_negatives is not None
        assert drawn.false_negatives.tolist() == expected
        seen += int(drawn.false_negatives.sum())
    assert seen > 0
    with pytest.raises(VizslaError, match="a batch of 7 needs as many queries"):
        pairs.batch(7, 0, 0, torch.device("cpu"))


@pytest.mark.parametrize("unit", ["words", "pieces"])
def test_training_scores_are_the_engines(
    judged: Path, tmp_path: Path, unit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same query and document, by the sparse product of training and by the index."""
    vocabulary = TermVocabulary(unit, size=8, max_df=1.0)
    counted = CountedDataset.read(BeirDataset.open(judged), vocabulary.bm25)
    terms = chosen_terms([counted], vocabulary, PIECES)
    asked_long = "dog " * 70 + "summer winter"  # beyond what is read
    monkeypatch.setattr(BeirDataset, "queries_of", lambda *_: {"q0": "dog bark night", "q1": asked_long})
    assert len(terms) == (8 if unit == "words" else 30_522)
    arrays = DatasetArrays(counted, terms, vocabulary, AugmenterDataSettings(), PIECES, ["train"])
    texts, _, own = arrays.queries["train"]
    rng = np.random.default_rng(0)
    added = np.maximum(rng.normal(-0.2, 0.5, (len(texts), len(terms))), 0) * (
        arrays.collection.document_share[: len(terms)] > 0
    )
    weights = rng.random((len(texts), 66))
    augmented = AugmentedQueries(torch.tensor(added), torch.tensor(weights))
    queries = query_vectors(augmented, torch.tensor(own.pairs), len(arrays.columns)).numpy() * arrays.collection.idf
    documents = arrays.collection.matrix(torch.device("cpu")).matrix.to_dense().numpy()

    class Scripted:
        def augmentations(self, ids: np.ndarray, offsets: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:  # noqa: ARG002
            return [(weights[self.at], added[self.at])]

        at = 0

    from vizsla.models import Network as Folder

    network = Folder(Path("nowhere"), "digest", kind="augmenter", length=64)
    running = Scripted()
    network.__dict__["running"] = running
    augmenter = Augmenter(network, tuple(terms), vocabulary.bm25.text_analyzer, PIECES)
    with Index.create(tmp_path / "i", vocabulary.bm25) as index:
        index.add(counted.documents)
        index.commit()
        model = with_expansion(index.model, augmenter)
        for number, text in enumerate(texts.values()):
            running.at = number
            scores = {h.id: h.score for h in index.search(text, 50, model=model)}
            expected = documents @ queries[number]
            found = np.array([scores.get(d.id, 0.0) for d in counted.documents])
            assert np.allclose(found, expected, atol=1e-4)


def test_with_k1_factor_scores_are_those_of_the_printed_formula(judged: Path) -> None:
    """idf * tf * (k1 + 1) / (tf + k1 * norm), which is k1 + 1 times what the index gives."""
    vocabulary = TermVocabulary(max_df=1.0, k1_factor=True)
    counted = CountedDataset.read(BeirDataset.open(judged), vocabulary.bm25)
    arrays = DatasetArrays(counted, chosen_terms([counted], vocabulary, PIECES), vocabulary,
                           AugmenterDataSettings(), PIECES, ["train"])  # fmt: skip
    contents, bm25, query = [d.content for d in counted.documents], vocabulary.bm25, "dog bark night"
    found = bm25.encode_queries([query], bm25.statistics(contents)).dot(bm25.encode_documents(contents))[0]
    row = np.zeros(len(arrays.columns), np.float32)
    for term in bm25.query_terms([query])[0]:
        row[arrays.columns[term]] = 1.0
    documents = arrays.collection.matrix(torch.device("cpu")).matrix.to_dense().numpy()
    assert found.max() > 0
    np.testing.assert_allclose(documents @ (row * arrays.collection.idf), 1.9 * found, rtol=1e-5)
    counts, lengths = bm25.document_encoder().encode(contents)
    term, row_of = counts.indices[0], np.repeat(np.arange(len(lengths)), np.diff(counts.pointers))[0]
    tf, norm = counts.values[0], 0.6 + 0.4 * lengths[row_of] / np.mean(lengths)
    column = arrays.columns[counts.vocabulary[term][1]]
    assert documents[row_of, column] == pytest.approx(1.9 * tf / (tf + 0.9 * norm), rel=1e-5)
    with pytest.raises(VizslaError, match=r"k1_factor is a factor of BM25; set vocabulary.scoring=bm25"):
        TermVocabulary(scoring="bag", k1_factor=True)


def test_a_stem_is_spelt_as_its_word(judged: Path) -> None:
    vocabulary = TermVocabulary(size=50, max_df=1.0)
    counted = CountedDataset.read(BeirDataset.open(judged), vocabulary.bm25)
    terms = chosen_terms([counted], vocabulary, PIECES)
    pieces = surface_pieces([counted], terms, vocabulary, PIECES)
    names = PIECES.tokenizer.vocabulary  # type: ignore[attr-defined]
    words = {t: "".join(names[i] for i in ids).replace("##", "") for t, ids in zip(terms, pieces, strict=True)}
    assert words["theori"] == "theory"
    assert words["summer"] == "summer"


def test_a_narrow_head_begins_near_the_whole_one() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 4)) @ rng.normal(size=(4, 16)) + 0.01 * rng.normal(size=(60, 16)) + 1.0
    words = torch.from_numpy(rows).float()
    whole, narrow = Adder(60, 16), Adder(60, 16, rank=4)
    whole.start_from(words)
    narrow.start_from(words)
    assert torch.equal(whole._logits(words).argmax(1), torch.arange(60))  # a word is most like itself
    states = torch.randn(5, 16)
    assert torch.allclose(whole._logits(states), narrow._logits(states), atol=0.2)
    whole.sparsify(states, terms=10, highest=0.5)
    made = whole(states)
    assert 5 <= (made > 0).sum(1).float().median() <= 15
    assert made.amax(1).median().item() == pytest.approx(0.5, abs=0.01)


def test_what_is_made_of_chunks_comes_back_in_order() -> None:
    network, (ids, mask) = small_augmenter(), batch(8)
    one, several = (
        network.vectors([network(c) for c in side.chunks], side)
        for side in (packed(ids, mask, 1000), packed(ids, mask, 30))
    )
    assert torch.allclose(one.added, several.added, atol=1e-12)
    assert torch.allclose(one.weights, several.weights, atol=1e-12)
    assert torch.equal(one.weights > 0, mask[:, : one.weights.shape[1]] & (one.weights > 0))


@given(seed=st.integers(0, 1000), most=st.integers(0, 12))
def test_the_strongest_are_kept_beside_a_querys_own(seed: int, most: int) -> None:
    rng = np.random.default_rng(seed)
    added = torch.from_numpy(np.maximum(rng.normal(size=(4, 10)), 0))
    own = torch.from_numpy(rng.integers(-1, 14, (4, 3, 2)))  # columns beyond 10 cannot be added
    made = strongest(added, own, most)
    for row, left, pairs in zip(added.tolist(), made.tolist(), own[..., 1].tolist(), strict=True):
        others = sorted((v for i, v in enumerate(row) if i not in pairs), reverse=True)
        least = others[most - 1] if 0 < most < len(others) else 0.0
        expected = [v if i in pairs or v >= least else 0.0 for i, v in enumerate(row)]
        assert left == expected


@functools.cache
def general() -> Augmenter:
    return Augmenter.load("general")


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 3), min_size=1),
    st.dictionaries(st.sampled_from("abcdefghxyz"), st.floats(0, 4)),
    st.floats(0.1, 1),
    st.integers(0, 8),
)
def test_weights_go_part_of_the_way(
    own: dict[str, int], learned: dict[str, float], strength: float, long_query: int
) -> None:
    augmenter = replace(general(), strength=strength, long_query=long_query)
    moved = augmenter._moved(own, learned)
    share = strength * min(1.0, long_query / len(own)) if long_query else strength
    for term in {*own, *learned}:
        expected = (1 - share) * own.get(term, 0) + share * learned.get(term, 0.0)
        assert moved.get(term, 0.0) == pytest.approx(expected, abs=1e-9)
    assert all(weight > 0 for weight in moved.values())


def test_a_long_query_stays_close_to_bm25() -> None:
    general, bm25 = Augmenter.load("general"), BM25()
    short = "can i deduct my car insurance"
    long = " ".join(
        f"{short} {word}" for word in ("dog", "river", "summer", "night", "stone", "bark", "winter", "moon")
    )
    long += " " + " ".join(f"word{i}" for i in range(100))
    for text, most in ((short, 0.9), (long, 0.1)):
        (moved,), (own,) = general.query_terms([text], bm25), bm25.query_terms([text])
        changed = sum(abs(moved.get(term, 0.0) - count) for term, count in own.items()) / sum(own.values())
        assert 0 < changed < most
    whole = replace(general, strength=1.0, long_query=0)
    assert whole.query_terms([short], bm25) != general.query_terms([short], bm25)
    with pytest.raises(VizslaError, match="strength must be above 0"):
        replace(general, strength=1.5)


def test_several_collections_come_in_turn_and_each_goes_through_its_queries() -> None:
    one, two = small_pairs(6), small_pairs(4)
    pairs = MixedPairs([one, two])
    seen: dict[int, set[tuple[int, ...]]] = {6: set(), 4: set()}
    sizes = []
    for step in range(12):
        drawn = pairs.batch(6, 3, step, torch.device("cpu"))
        sizes.append(len(drawn.texts[0][0]))  # a set of few queries has smaller batches
        seen[sizes[-1]] |= {tuple(row.tolist()) for row in drawn.texts[0][0]}
        again = pairs.batch(6, 3, step, torch.device("cpu"))
        assert torch.equal(drawn.texts[0][0], again.texts[0][0])
    assert set(sizes) == {4, 6}
    assert {size: len(rows) for size, rows in seen.items()} == {6: 6, 4: 4}


def test_half_way_to_what_was_learnt() -> None:
    network = small_augmenter()
    weigh = network.weigh
    assert weigh is not None
    states = 3 * torch.randn(40, 16, dtype=torch.float64)
    before = weigh(states)
    network.trust = 0.5
    assert torch.equal(network._weights(states), torch.relu(before[:, 0]))  # while it learns, all of it
    network.eval()
    used = network._weights(states)
    assert torch.allclose(used, torch.relu(0.5 * before[:, 0] + 0.5))
    assert (before < 0).any()
    network.settle()
    assert torch.allclose(network._weights(states), used)
    assert network.trust == 1.0


def test_embeddings_are_copied_and_frozen() -> None:
    encoder = base_encoder("bm26").network
    table = encoder.embeddings.word_embeddings.weight
    expected = table.detach().clone()
    with torch.no_grad():
        table.zero_()
    freeze_embeddings(encoder, "bm26", PIECES)
    assert torch.equal(table, expected)
    assert not table.requires_grad
    with pytest.raises(VizslaError, match="do not fit"):
        freeze_embeddings(encoder_of(small_bert()), "bm26", PIECES)
    with pytest.raises(VizslaError, match="no network called 'bm27' comes with Vizsla"):
        freeze_embeddings(encoder, "bm27", PIECES)


SHARED = """
import sys, torch
sys.path.insert(0, {tests!r})
from test_augmentation import small_augmenter, small_pairs
from vizsla.training import AugmenterLoss, AugmenterObjective, Distributed, Trainer, TrainingSettings
distributed = Distributed.start("cpu")
torch.set_num_threads(1)
settings = TrainingSettings(steps=3, batch_size=5, precision="float32", learning_rate=1e-2, warmup_steps=1)
objective = AugmenterObjective(AugmenterLoss(added_cost=0.2))
network = small_augmenter()
frozen = network.encoder.embeddings.word_embeddings.weight.requires_grad_(False)
before = frozen.clone()
trainer = Trainer(network, small_pairs(), settings, objective=objective, distributed=distributed)
trainer.run()
assert torch.equal(frozen, before)
if distributed.is_main:
    torch.save([p.detach() for p in trainer.network.parameters()], {file!r})
"""


@pytest.mark.slow
def test_two_processes_learn_what_one_learns(tmp_path: Path) -> None:
    made = same_in_processes(SHARED, Path(__file__).parent, tmp_path)
    for a, b in zip(*made, strict=True):
        assert torch.allclose(a, b, rtol=0, atol=1e-9)
