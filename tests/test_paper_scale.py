"""What training and evaluation hold of a corpus: some bytes a passage, and no object for each."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from vizsla import BM25, BeirDataset, Document
from vizsla.evaluation import fit_to_dataset
from vizsla.index.storage.corpus_store import CorpusStore
from vizsla.models import parse_model
from vizsla.scratch import GrowingArray, StoredTexts, blocks_of
from vizsla.text import Analyzer
from vizsla.vectors import SparseVectors

WORDS = ["dog", "cat", "bark", "purr", "house", "garden", "river", "stone", "cloud", "bread", "milk", "night"]
SMALL, LARGE = 1500, 6000
CHOSEN = np.random.default_rng(0).integers(len(WORDS), size=(2 * LARGE, 25))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large in a test is large: blocks are small and arrays go to files early."""
    import vizsla.models.components as components
    import vizsla.scratch as scratch

    monkeypatch.setattr(scratch, "_HELD", 1 << 12)
    monkeypatch.setattr(scratch, "_BLOCK", 1 << 10)
    monkeypatch.setattr(components.batches_of, "__defaults__", (500,))


def passage(number: int) -> str:
    return " ".join([WORDS[i] for i in CHOSEN[number]])


def corpus(count: int) -> Iterator[Document]:
    """Passages whose ids are no consecutive numbers."""
    return (Document(f"p{i * 7919 % 99_991}", {"title": "", "text": passage(i)}) for i in range(count))


def dataset(folder: Path, count: int) -> BeirDataset:
    """A data set of so many passages, with forty judged queries in each split whatever its size."""
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w") as file:
        for document in corpus(count):
            file.write(json.dumps({"_id": document.id, **document.content}) + "\n")
    with (folder / "queries.jsonl").open("w") as file:
        for i in range(40):
            file.write(json.dumps({"_id": f"q{i}", "text": " ".join(passage(i).split()[:3])}) + "\n")
    rows = "".join(f"q{i}\tp{i * 7919 % 99_991}\t1\n" for i in range(40))
    for split in ("train", "dev"):
        (folder / "qrels" / f"{split}.tsv").write_text("query-id\tcorpus-id\tscore\n" + rows)
    return BeirDataset.open(folder)


def bytes_a_passage(work: Callable[[int], object]) -> float:
    """How much the peak of Python's and numpy's memory grows with each passage."""
    peaks = []
    work(200)  # what is loaded once
    for count in (SMALL, LARGE):
        tracemalloc.start()
        work(count)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    return (peaks[1] - peaks[0]) / (LARGE - SMALL)


def test_a_store_holds_some_bytes_a_document() -> None:
    assert bytes_a_passage(lambda count: CorpusStore.of(corpus(count))) < 80  # ids are sorted; as objects some 600


def test_texts_and_arrays_hold_some_bytes_an_entry() -> None:
    assert bytes_a_passage(lambda count: StoredTexts.of(passage(i) for i in range(count))) < 40
    assert bytes_a_passage(numbers_in_a_file) < 4  # 400 in memory


def numbers_in_a_file(count: int) -> np.ndarray:
    return GrowingArray.of((np.arange(1000) for _ in range(count // 10)), np.int32)


def test_preparing_judged_pairs_holds_little_of_a_passage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("vizsla.training.sources.token_corpus._TEXTS", 500)
    from vizsla.training import TrainingInputs
    from vizsla.training.sources.judged import JudgedSource

    sets = {count: dataset(tmp_path / str(count), count) for count in (200, SMALL, LARGE)}
    named = [{"query-id": f"q{i}", "pos": [], "neg": ["p0", "p7919"]} for i in range(40)]  # so that no index is built
    for one in sets.values():
        (one.folder / "train_hard_negatives.jsonl").write_text("".join(json.dumps(line) + "\n" for line in named))
    pieces, source = Analyzer.parse("wordpiece"), JudgedSource(negatives_depth=20)

    def prepare(count: int) -> None:
        source.prepare(TrainingInputs(datasets=[sets[count]]), pieces, tmp_path / f"run-{count}")

    assert bytes_a_passage(prepare) < 200  # as objects 1,200


def test_fitting_a_model_holds_little_of_a_passage(tmp_path: Path) -> None:
    sets = {count: dataset(tmp_path / str(count), count) for count in (200, SMALL, LARGE)}
    assert bytes_a_passage(lambda count: fit_to_dataset(parse_model("sketch(width=64)"), sets[count])) < 120
    assert bytes_a_passage(lambda count: BM25().count(CorpusStore.of(corpus(count)).contents)) < 120


def test_a_dev_set_holds_little_of_a_passage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    monkeypatch.setattr("vizsla.training.sources.token_corpus._TEXTS", 500)
    from vizsla.training.sources.dev_set import dev_set

    sets = {count: dataset(tmp_path / str(count), count) for count in (200, SMALL, LARGE)}
    pieces = Analyzer.parse("wordpiece")
    assert bytes_a_passage(lambda count: dev_set(sets[count], pieces)) < 150


def test_a_store_gives_back_what_was_written() -> None:
    documents = list(corpus(3000))
    store = CorpusStore.of(iter(documents))
    assert list(store) == documents
    assert [store[i] for i in (0, 2999, -1)] == [documents[0], documents[2999], documents[-1]]
    assert store[10:20][3] == documents[13]
    assert CorpusStore.of(store) is store
    ids = [documents[7].id, "nobody", documents[2998].id]
    assert store.numbers(ids).tolist() == [7, -1, 2998]
    assert list(store.contents) == [d.content for d in documents]


def test_of_equal_ids_the_last_document_counts() -> None:
    store = CorpusStore.of([Document(name, {"text": name}) for name in ("a", "b", "a")])
    assert store.numbers(["a", "b"]).tolist() == [2, 1]


def test_positives_and_negatives_are_those_of_a_plain_definition(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from vizsla.training.sources.judged import positives_and_negatives

    data = dataset(tmp_path / "d", 1500)
    documents = list(data.documents())
    named = [{"query-id": "q3", "pos": [documents[9].id, "gone"], "neg": [documents[5].id, documents[3].id, "gone"]},
             {"query-id": "q1", "pos": [documents[8].id], "neg": None}]  # fmt: skip
    (data.folder / "train_hard_negatives.jsonl").write_text("".join(json.dumps(line) + "\n" for line in named))
    qrels, numbers = data.qrels("train"), {d.id: i for i, d in enumerate(documents)}
    queries = data.queries_of(qrels)
    found = positives_and_negatives(CorpusStore.of(documents), queries, data, "train", BM25(), depth=15)
    contents, bm25 = [d.content for d in documents], BM25()
    statistics = bm25.statistics(contents)
    vectors = bm25.encode_documents(contents, statistics)
    scores = bm25.encode_queries(list(queries.values()), statistics).dot(vectors)
    lines = {line["query-id"]: line for line in named}
    for row, query in enumerate(queries):
        line = lines.get(query, {"pos": [], "neg": None})
        answers = dict.fromkeys([*line["pos"], *qrels.judgements[query]])
        positives = [numbers[d] for d in answers if d in numbers]
        best = np.argsort(-scores[row].astype(np.float32), kind="stable")[:15].tolist()
        candidates = best if line["neg"] is None else [numbers[d] for d in line["neg"] if d in numbers]
        assert found[0][row].tolist() == positives
        if line["neg"] is None:
            assert sorted(found[1][row].tolist()) == sorted(d for d in candidates if d not in positives)
        else:
            assert found[1][row].tolist() == [d for d in candidates if d not in positives]


def test_bm25_rows_of_a_dev_set_give_the_scores_of_bm25(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from vizsla.training.sources.dev_set import dev_set

    data = dataset(tmp_path / "d", 1500)
    dev, contents, bm25 = dev_set(data, Analyzer.parse("wordpiece")), [d.content for d in data.documents()], BM25()
    statistics = bm25.statistics(contents)
    queries = bm25.encode_queries(list(data.queries_of(data.qrels("dev")).values()), statistics)
    assert isinstance(queries, SparseVectors)
    expected = queries.dot(bm25.encode_documents(contents, statistics))
    found = np.concatenate([dev._bm25_scores(a, a + 500, torch.device("cpu")).numpy() for a in (0, 500, 1000)], 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_figures_of_a_dev_set_do_not_depend_on_the_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    import vizsla.training.sources.dev_set as arrays
    from vizsla.training.sources.dev_set import dev_set

    dev = dev_set(dataset(tmp_path / "d", 1500), Analyzer.parse("wordpiece"))
    scores = torch.randn(40, 1500, generator=torch.Generator().manual_seed(1))
    whole = dev.figures_of([scores], torch.device("cpu"))
    assert dev.figures_of(scores.split(333, 1), torch.device("cpu")) == pytest.approx(whole)
    monkeypatch.setattr(arrays, "SPREAD", 40 * 700)  # the spread of the first blocks alone
    few = dev.figures_of(scores.split(333, 1), torch.device("cpu"))
    name = f"{dev.name} nDCG@10"
    assert few[name] == pytest.approx(whole[name])


def test_arrays_in_a_file_are_those_in_memory() -> None:
    numbers = np.arange(50_000)
    assert np.array_equal(GrowingArray.of(blocks_of(numbers), np.uint32), numbers)
    texts = [passage(i) if i % 3 else "" for i in range(2500)] + ["caf\u00e9\n", "\ud800"]
    stored = StoredTexts.of(texts)
    assert list(stored) == texts
    assert stored[1:2500:700] == texts[1:2500:700]
    with pytest.raises(IndexError):
        stored[len(texts)]
