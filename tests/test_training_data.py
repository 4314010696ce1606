"""Data sets as what training reads: which documents answer a query, which only look as if they did, which queries."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from vizsla import Analyzer, BeirDataset, VizslaError
from vizsla.errors import InputError
from vizsla.training.kinds.augmenter import (
    AugmenterDataSettings,
    CountedDataset,
    DatasetArrays,
    TermVocabulary,
    chosen_terms,
    sampled_queries,
)
from vizsla.training.sources.judged import judged_texts

PIECES = Analyzer.parse("wordpiece")


def test_a_data_set_may_say_what_to_tell_apart(judged: Path, tmp_path: Path) -> None:
    folder = tmp_path / "told"
    shutil.copytree(judged, folder)
    qrels = BeirDataset.open(folder).qrels("train")
    first, second = list(qrels.judgements)[:2]
    documents = [d.id for d in BeirDataset.open(folder).documents()]
    judged_right = [d for d, grade in qrels.judgements[first].items() if grade > 0]
    others = [d for d in documents if d not in judged_right]
    line = {"query-id": first, "pos": [others[0], "nowhere"], "neg": [judged_right[0], others[5], others[7]]}
    (folder / "train_hard_negatives.jsonl").write_text(json.dumps(line) + "\n")
    vocabulary, settings = TermVocabulary(size=8, max_df=1.0), AugmenterDataSettings(negatives_depth=1)
    right, wrong = [documents.index(d) for d in (others[0], *judged_right)], [documents.index(others[5])]
    for data in (folder, judged):
        dataset = BeirDataset.open(data)
        counted = CountedDataset.read(dataset, vocabulary.bm25)
        terms = chosen_terms([counted], vocabulary, PIECES)
        arrays = DatasetArrays(counted, terms, vocabulary, settings, PIECES, ["train"])
        pairs = arrays.pairs()
        number = list(arrays.queries["train"].texts).index(first)
        whole = arrays.collection.matrix(torch.device("cpu")).matrix.to_dense()
        kept = pairs.collection.matrix(torch.device("cpu")).matrix.to_dense()
        assert torch.equal(kept[pairs.positives[number]], whole[right if data == folder else right[1:]])
        if data == folder:
            assert torch.equal(kept[pairs.negatives[number]], whole[wrong])
        mined = list(arrays.queries["train"].texts).index(second)
        assert len(pairs.negatives[mined]) == 1  # what BM25 finds first
        relevant = [documents.index(d) for d, grade in qrels.judgements[second].items() if grade > 0]
        assert torch.equal(kept[pairs.positives[mined]], whole[relevant])
    for text, problem in (
        ('{"query-id": "a", "pos": "b"}', "expected a query-id, a list 'pos' and a list 'neg'"),
        ("[1, 2]", "expected"),
        ('{"query-id": "a", "pos": []}\n{"query-id": "a", "pos": []}', "appears a second time"),
        ('{"query-id": "a", "pos": []}', "none of the queries in train_hard_negatives.jsonl is judged"),
    ):
        (folder / "train_hard_negatives.jsonl").write_text(text + "\n")
        with pytest.raises(InputError, match=problem):
            list(judged_texts([BeirDataset.open(folder)], PIECES))
    assert BeirDataset.open(judged).hard_negatives() == {}


def test_hard_negatives_of_several_models_and_runs(judged: Path, tmp_path: Path) -> None:
    """The documents of each, once, those of the first before those of the others."""
    dataset = BeirDataset.open(judged)
    run = tmp_path / "run.trec"
    run.write_text("".join(f"q0 Q0 {d} {rank} {9 - rank} run\n" for rank, d in enumerate(("7", "0", "9", "11"), 1)))
    rows = {
        names: next(judged_texts([dataset], PIECES, negatives=names, negatives_depth=4)).pairs.negatives
        for names in ("bm25", "bm25-wp(b=0)", str(run), f"bm25 ; bm25-wp(b=0);{run}")
    }
    *single, joined = rows.values()
    assert [d.id for d in dataset.documents()][:12] == [str(i) for i in range(12)]  # numbers are ids here
    assert single[2][0].tolist() == [7, 9, 11]  # not its own document
    for query in range(30):
        expected = list(dict.fromkeys(np.concatenate([one[query] for one in single]).tolist()))
        assert joined[query].tolist() == expected
    assert any(len(joined[query]) > len(single[0][query]) for query in range(1, 30))
    with pytest.raises(VizslaError, match="a run belongs to one data set, not to 2"):
        next(judged_texts([dataset, dataset], PIECES, negatives=f"bm25;{run}"))


def test_some_queries_in_their_order() -> None:
    texts = {f"q{i}": str(i) for i in range(50)}
    some = sampled_queries(texts, 10)
    assert list(some) == sorted(some, key=lambda q: int(q[1:]))
    assert (len(some), sampled_queries(texts, 0), sampled_queries(texts, 50)) == (10, texts, texts)
