"""What adapters do without their frameworks: say what to install, read filters, search what a framework brings.

The frameworks themselves are tested in tests/adapters, where they are installed: make test-adapters.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vizsla import BM25, BeirDataset, Document, Filter, Hit, Index, VizslaError, read_documents
from vizsla.adapters.common import CollectionSearch, opened, text_and_metadata
from vizsla.adapters.haystack_filters import condition_of
from vizsla.datasets import DatasetGroup
from vizsla.errors import MissingPackageError

PACKAGES = {
    "beir": ("beir", "beir"),
    "haystack": ("haystack", "haystack"),
    "langchain": ("langchain_core", "langchain"),
    "llama_index": ("llama_index", "llama-index"),
    "mteb": ("mteb", "mteb"),
    "pyterrier": ("pyterrier", "pyterrier"),
}
DOCUMENTS = [{"_id": "1", "text": "Dogs bark."}, {"_id": "2", "text": "A cat and a dog."}, {"_id": "3", "text": "Tax."}]


@pytest.mark.parametrize("adapter", PACKAGES)
def test_a_missing_framework_is_one_sentence_with_the_command(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, extra = PACKAGES[adapter]
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, f"vizsla.adapters.{adapter}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, "pandas", sys)  # which PyTerrier brings
    with pytest.raises(MissingPackageError, match=rf'install it with: pip install "vizsla\[{extra}\]"$') as error:
        importlib.import_module(f"vizsla.adapters.{adapter}")
    assert isinstance(error.value, ImportError)


def test_extras_have_the_names_that_the_sentences_have() -> None:
    project = (Path(__file__).parents[1] / "pyproject.toml").read_text()
    for extra in [*(extra for _, extra in PACKAGES.values()), "ir-datasets", "hub"]:
        assert f"\n{extra} = [" in project


def test_ir_datasets_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    with pytest.raises(MissingPackageError, match=r'irds:beir/scifact: .*pip install "vizsla\[ir-datasets\]"$'):
        read_documents("irds:beir/scifact")


def test_the_only_split_is_the_one_that_is_meant(tmp_path: Path) -> None:
    (tmp_path / "qrels").mkdir()
    (tmp_path / "queries.jsonl").write_text('{"_id": "q", "text": "dog"}\n')
    group = DatasetGroup("pets", (BeirDataset(tmp_path),))
    assert group.split(None) == "test"
    (tmp_path / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    assert (group.split(None), group.split("train")) == ("dev", "train")
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq\t1\t1\n")
    assert group.split(None) == "test"


def test_what_can_be_searched(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index:
        assert opened(index) is index
        with opened(tmp_path / "i") as again, opened(f"file:{tmp_path}/i") as named:
            assert (len(again), len(named)) == (0, 0)
    with pytest.raises(VizslaError, match="this must be a Retriever"):
        opened(7)  # type: ignore[arg-type]


def test_text_and_metadata() -> None:
    hit = Hit(2, 1.5, Document("7", {"text": 4, "year": 1999}), passage=3)
    assert text_and_metadata(hit, "text") == ("4", {"year": 1999, "id": "7", "score": 1.5, "rank": 2, "passage": 3})
    assert text_and_metadata(hit, "body")[0] == ""


@pytest.mark.slow
def test_documents_that_a_framework_brings(tmp_path: Path) -> None:
    search = CollectionSearch(BM25())
    with pytest.raises(VizslaError, match="there is nothing to search yet"):
        search.search({"q": "dog"}, 10)
    search.index(DOCUMENTS)
    with Index.create(tmp_path / "i") as index:
        index.add(DOCUMENTS)
        index.commit()
        found = search.search({"q": "dog", "none": "zebra"}, 10)
        expected = {hit.id: hit.score for hit in index.search("dog")}
        assert found == {"q": pytest.approx(expected, rel=1e-6), "none": {}}
        assert list(search.search({"q": "dog"}, 1)["q"]) == list(expected)[:1]
        assert list(search.search({"q": "dog tax"}, 9, {"q": ["3", "2", "nowhere"]})["q"]) == ["3", "2"]
        given = CollectionSearch(retriever=index)
        given.index([{"_id": "9", "text": "never read"}])
        assert (given.name, given.search({"q": "dog"}, 10)) == ("bm25", {"q": found["q"]})
    search.index(DOCUMENTS[2:])
    assert search.search({"q": "dog"}, 10) == {"q": {}}


values = st.one_of(st.integers(-3, 3), st.sampled_from(["en", 'd"e', "a b"]))
comparisons = st.one_of(
    st.fixed_dictionaries(
        {
            "field": st.sampled_from(["meta.a", "b"]),
            "operator": st.sampled_from(["==", "!=", ">", ">=", "<", "<="]),
            "value": values,
        }
    ),
    st.fixed_dictionaries(
        {
            "field": st.sampled_from(["a", "meta.b"]),
            "operator": st.sampled_from(["in", "not in"]),
            "value": st.lists(values, min_size=1, max_size=3),
        }
    ),
    st.fixed_dictionaries({"field": st.just("a"), "operator": st.sampled_from(["==", "!="]), "value": st.none()}),
)
filters = st.recursive(
    comparisons,
    lambda inner: st.fixed_dictionaries(
        {"operator": st.sampled_from(["AND", "OR", "NOT"]), "conditions": st.lists(inner, min_size=1, max_size=3)}
    ),
    max_leaves=5,
)
fields = st.dictionaries(st.sampled_from(["a", "b"]), values)


def meets(document: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """What Haystack's documentation says, word for word; where types differ, an order does not hold."""
    if "conditions" in condition:
        each = [meets(document, inner) for inner in condition["conditions"]]
        return {"AND": all(each), "OR": any(each), "NOT": not all(each)}[condition["operator"]]
    value, other, how = (
        document.get(condition["field"].removeprefix("meta.")),
        condition["value"],
        condition["operator"],
    )
    if how in ("==", "in"):
        return value in other if how == "in" else value == other
    if how in ("!=", "not in"):
        return value not in other if how == "not in" else value != other
    if type(value) is not type(other):
        return False
    return {">": value > other, ">=": value >= other, "<": value < other, "<=": value <= other}[how]  # type: ignore[operator]


@given(filters, fields)
def test_filters_of_haystack(condition: dict[str, Any], document: dict[str, Any]) -> None:
    assert Filter.parse(condition_of(condition)).accepts(document) == meets(document, condition)


def test_filters_that_are_none() -> None:
    for wrong, message in (
        ({"operator": "XOR", "conditions": [{}]}, "AND, OR or NOT over conditions"),
        ({"operator": "AND", "conditions": []}, "AND, OR or NOT over conditions"),
        ({"field": "a", "operator": "~", "value": 1}, "a filter compares by ==, !="),
        ({"field": "a", "operator": ">", "value": None}, "the filter on a compares with null"),
    ):
        with pytest.raises(VizslaError, match=message):
            condition_of(wrong)
