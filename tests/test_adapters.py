"""What adapters do without their frameworks: say what to install, read filters, search what a framework brings.

The frameworks themselves are tested in tests/adapters, where they are installed: make test-adapters.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from test_forking import fork
from vizsla import BM25, BeirDataset, Document, Filter, Hit, Index, VizslaError, read_documents
from vizsla.adapters.common import CollectionSearch, opened, text_and_metadata
from vizsla.adapters.filters import haystack_condition, llama_index_condition
from vizsla.adapters.store import Store, record
from vizsla.datasets import DatasetGroup
from vizsla.errors import MissingPackageError
from waiting import LIMIT

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


values = st.one_of(st.integers(-3, 3), st.sampled_from(["en", 'd"e', "a or b"]))
maybe = st.one_of(st.none(), values)
names = st.sampled_from(["a", "b", "odd name"])


def comparisons(name: str, field: st.SearchStrategy[str], lists: list[str], single: list[str]) -> Any:
    """Comparisons of a field with a value or a list of them; `name`: how the framework calls a field."""
    some = st.fixed_dictionaries({name: field, "operator": st.sampled_from(single), "value": maybe})
    listed = st.fixed_dictionaries({name: field, "operator": st.sampled_from(lists), "value": st.lists(maybe)})
    return st.one_of(some, listed)


_ORDERED = [">", ">=", "<", "<="]
haystack_filters = st.recursive(
    comparisons("field", st.one_of(names, names.map("meta.".__add__)), ["in", "not in"], ["==", "!=", *_ORDERED]),
    lambda inner: st.fixed_dictionaries(
        {"operator": st.sampled_from(["AND", "OR", "NOT"]), "conditions": st.lists(inner, min_size=1, max_size=3)}
    ),
    max_leaves=5,
)
llama_index_filters = st.recursive(
    comparisons("key", names, ["in", "nin", "any", "all"], ["==", "!=", "contains", "is_empty", *_ORDERED]),
    lambda inner: st.fixed_dictionaries(
        {"condition": st.sampled_from(["and", "or", "not", None]), "filters": st.lists(inner, max_size=3)}
    ),
    max_leaves=5,
)
fields = st.dictionaries(names, maybe)
lists = st.dictionaries(names, st.one_of(maybe, st.lists(values, min_size=1)))


def ordered(value: Any, how: str, other: Any) -> bool:
    """Where types differ, or something is missing, no order holds."""
    if type(value) is not type(other) or value is None:
        return False
    return bool({">": value > other, ">=": value >= other, "<": value < other, "<=": value <= other}[how])


def meets(document: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    """What Haystack's documentation says, word for word."""
    if "conditions" in condition:
        each = [meets(document, inner) for inner in condition["conditions"]]
        return {"AND": all(each), "OR": any(each), "NOT": not all(each)}[condition["operator"]]
    value = document.get(condition["field"].removeprefix("meta."))
    other, how = condition["value"], condition["operator"]
    if how in ("==", "in"):
        return value in other if how == "in" else value == other
    if how in ("!=", "not in"):
        return value not in other if how == "not in" else value != other
    return ordered(value, how, other)


@given(haystack_filters, fields)
def test_filters_of_haystack(condition: dict[str, Any], document: dict[str, Any]) -> None:
    assert Filter.parse(haystack_condition(condition)).accepts(document) == meets(document, condition)


def passes(document: Mapping[str, Any], filters: Mapping[str, Any]) -> bool:
    """What LlamaIndex's types say. A list passes a comparison with one value if one of its elements does."""
    if "filters" in filters:
        each = [passes(document, inner) for inner in filters["filters"]]
        joined = {"or": any(each), "not": not any(each)}.get(filters["condition"], all(each))
        return joined if each else True
    value, other, how = document.get(filters["key"]), filters["value"], str(filters["operator"])
    elements: list[Any] = value if isinstance(value, list) else [value]
    if how == "is_empty":
        return value is None
    if how in ("==", "contains", "!="):
        return (other in elements) == (how != "!=")
    if how in ("in", "any", "nin"):
        return any(each in other for each in elements) == (how != "nin")
    if how == "all":
        return all(each in elements for each in other)
    return any(ordered(each, how, other) for each in elements)


@given(llama_index_filters.filter(lambda made: "filters" in made), lists)
def test_filters_of_llama_index(filters: dict[str, Any], document: dict[str, Any]) -> None:
    condition = llama_index_condition(filters)
    assert (condition is None or Filter.parse(condition).accepts(document)) == passes(document, filters)


def test_filters_that_are_none() -> None:
    for wrong, message in (
        ({"operator": "XOR", "conditions": [{}]}, "AND, OR or NOT over conditions"),
        ({"operator": "AND", "conditions": []}, "AND, OR or NOT over conditions"),
        ({"operator": "AND", "conditions": ["a"]}, "a filter of Haystack is an object, not the text 'a'"),
        ({"field": "a", "operator": "~", "value": 1}, "a filter compares by ==, !="),
        ({"field": "a", "operator": "=="}, "the filter on a has no value"),
        ({"field": "a", "operator": "in", "value": "abc"}, "the filter on a needs a list of values, not the text"),
        ({"field": "", "operator": "==", "value": 1}, "a filter cannot name the field ''"),
        ({"field": "a", "operator": ">", "value": [1]}, "a filter compares with texts, numbers"),
    ):
        with pytest.raises(VizslaError, match=message):
            haystack_condition(wrong)
    with pytest.raises(VizslaError, match="filters are joined by and, or or not, not by 'xor'"):
        llama_index_condition({"condition": "xor", "filters": []})


# What stores of frameworks write to


def test_a_store_commits_each_change_and_discards_one_that_fails(tmp_path: Path) -> None:
    store = Store(tmp_path / "i", "bm25")
    assert isinstance(store.collection, Index)
    for change in (
        lambda: store.add([record("1", "Dogs.", {"n": 1}), record("2", "Cats.", {"n": 2})]),
        lambda: store.delete(["2", "3"]),
        lambda: store.delete_matching("n > 1"),
    ):
        before = store.collection.generation
        change()
        with Index.open(tmp_path / "i") as other:
            assert other.generation == store.collection.generation == before + 1
    for change in (
        lambda: store.add([record("3", "Fish.", {}), record("4", None, {})]),  # type: ignore[arg-type]
        lambda: store.delete([1.5]),  # type: ignore[list-item]
        lambda: store.delete_matching("no > 1"),
    ):
        with pytest.raises(VizslaError):
            change()
    store.add([])
    assert store.delete([]) == 0
    with store.collection.writer(timeout=0):  # nobody holds the lock
        assert store.collection.generation == before + 1
    assert [document.id for document in store.documents()] == ["1"]
    assert store.delete_matching(None) == 1
    assert (store.count("n = 1"), store.documents("n = 1"), store.delete_matching("n = 1")) == (0, [], 0)
    assert store.search("dogs", 1, "n = 1").ids == []
    with pytest.raises(VizslaError, match="the filter ends too early"):
        store.search("dogs", 1, "n =")
    store.collection.close()


def test_where_a_store_is(tmp_path: Path) -> None:
    with pytest.raises(VizslaError, match="does not exist"):
        Store(tmp_path / "i")
    with Store(f"file:{tmp_path}/i", "bm25(k1=1.2)").collection as index:
        assert (index.name, Store(index).collection) == ("bm25(k1=1.2)", index)
        with pytest.raises(VizslaError, match=r"the index has the model bm25\(k1=1.2\), not bm25; leave the model out"):
            Store(index, "bm25")
        Store(tmp_path / "i", BM25(k1=1.2, name="bm25(k1=1.2)")).collection.close()
        with pytest.raises(VizslaError, match=r"expected a Collection, as vizsla\.open"):
            Store(index.with_model("bm25"))  # type: ignore[arg-type]
    with Store(tmp_path / "other", create=True).collection as index:
        assert index.name == "bm25"
    with Store(tmp_path / "auto", "auto(bm25, bm25-wp)").collection as index:
        index.add(DOCUMENTS * 2)
        index.commit()
        Store(tmp_path / "auto", "auto(bm25, bm25-wp)").collection.close()
    for wrong in ("nowhere:x", 7, None):
        with pytest.raises(VizslaError):
            Store(wrong, "bm25")  # type: ignore[arg-type]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["auto", "i", "other"]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent(folder: Path) -> None:
    store, held, go_on = Store(folder), threading.Event(), threading.Event()

    def hold() -> None:
        with store.turns:
            held.set()
            assert go_on.wait(LIMIT)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(LIMIT)
    assert fork(lambda: store.delete(["1", "none"])) == "1"
    go_on.set()
    thread.join()
    store.collection.refresh()
    assert len(store) == 4
    store.collection.close()
