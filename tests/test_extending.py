"""A model, a fusion and a retriever of one's own: each one file outside the package, used by its name everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import vizsla
from vizsla import (
    DenseComponent,
    FusedRetriever,
    Index,
    Model,
    Run,
    SparseComponent,
    VizslaError,
    compare,
    evaluate_retriever,
    fuse,
    parse_model,
)
from vizsla.index import verify
from vizsla.models import MODELS, Fields, SearchContext, SparseDocumentEncoder, TermWeightEncoder, expression
from vizsla.runs import FUSIONS
from vizsla.spec import Registry, plugins

FILES = sorted((Path(__file__).parent / "extensions").glob("*.py"))
DOCUMENTS = [
    {"_id": "1", "text": "Dogs bark at cats."},
    {"_id": "2", "text": "Cats purr and sleep all day long, whatever dogs do."},
    {"_id": "3", "text": "Zebras graze."},
]


@pytest.fixture(autouse=True)
def extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIZSLA_PLUGINS", os.pathsep.join(map(str, FILES)))


@pytest.fixture
def dataset(tmp_path: Path) -> vizsla.BeirDataset:
    folder = tmp_path / "pets"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, DOCUMENTS)))
    queries = [{"_id": "q1", "text": "barking dogs"}, {"_id": "q2", "text": "zebras"}]
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, queries)))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq1\t1\t1\nq2\t3\t1\n")
    return vizsla.BeirDataset.open(folder)


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.create(tmp_path / "i", "bm25 + 0.1 * letters(least=2) + 0.01 * lengths") as index:
        index.add(DOCUMENTS)
        index.commit()
        yield index


def test_models_are_known_by_name_with_their_options() -> None:
    assert {"letters", "lengths"} <= set(MODELS.names())
    least = MODELS["letters"].options[0]
    assert (least.name, least.type, least.default) == ("least", "int", 1)
    assert parse_model("letters(least=3)").name == "letters(least=3)"
    with pytest.raises(VizslaError, match=r"letters does not take the option most .*; it takes least, namespace"):
        parse_model("letters(most=3)")
    with pytest.raises(VizslaError, match="'x' is not a whole number for least"):
        parse_model("letters(least=x)")


def test_models_are_indexed_searched_explained_and_saved(index: Index, tmp_path: Path) -> None:
    """The score is that of the vectors, part by part."""
    contents = [{"text": d["text"]} for d in DOCUMENTS]
    expected = np.zeros(3)
    for weight, component in index.model.parts:
        statistics = component.statistics(contents)
        queries = weight * component.encode_queries(["barking dogs"], statistics)
        expected += queries.dot(component.encode_documents(contents, statistics))[0]
    hits = index.search("barking dogs")
    assert {hit.id: pytest.approx(hit.score) for hit in hits} == {str(i + 1): s for i, s in enumerate(expected)}
    explained = index.explain("barking dogs", hits[0].id)
    assert explained.score == pytest.approx(hits[0].score)
    assert {part.name for part in explained.parts} == {"bm25", "letters(least=2)", "lengths"}
    assert [hit.id for hit in index.search("barking dogs", combine="rrf")]
    assert [h.id for h in index.search("zzz", model="letters(least=2)")] == ["3"]  # zebras graze: z twice
    index.model.save(tmp_path / "saved")
    again = Model.load(tmp_path / "saved")
    assert again == index.model
    with Index.open(index.path) as reopened:
        assert [h.id for h in reopened.search("barking dogs")] == [h.id for h in hits]


def test_several_processes_know_a_plugin(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", "letters") as index:
        index.add(DOCUMENTS, workers=2)
        index.commit()
        assert len(index.search("zebra")) == 3


def test_models_and_retrievers_are_compared(dataset: vizsla.BeirDataset, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(d["text"].rstrip(".") for d in DOCUMENTS))
    with vizsla.open(f"lines:{lines}") as retriever:
        assert [hit.id for hit in retriever.search("bark at dogs")] == ["1", "2"]
        assert retriever.explain("bark at dogs", "1").score == 3
        assert retriever.run({"q": "zebras"}, filter='text = "x"')["q"].documents == []
        models = {"bm25": parse_model("bm25"), "sum": parse_model("bm25 + letters"), "dense": parse_model("lengths")}
        result = compare([(dataset, "test")], models, retrievers={"lines": {dataset.name: retriever}})
        table = {system: result.results[dataset.name, system].evaluation.measures for system in (*models, "lines")}
        assert table["lines"] == evaluate_retriever(retriever, dataset).evaluation.measures
        assert set(table) == {"bm25", "sum", "dense", "lines"}


def test_a_fusion_is_used_wherever_fusions_are(index: Index) -> None:
    runs = [index.with_model(name).run({"q": "dogs"}) for name in ("bm25", "letters(least=2)")]
    assert "best" in FUSIONS
    fused = fuse(runs, "best")
    assert fused["q"][0] == max((pair for run in runs for pair in run["q"]), key=lambda pair: pair[1])
    retriever = FusedRetriever([index.with_model("bm25"), index.with_model("letters(least=2)")], "best")
    assert retriever.run({"q": "dogs"})["q"].documents == fused["q"].documents
    assert index.with_model("bm25 + letters(least=2)").search("dogs")
    found = index.search("dogs", model="bm25 + letters(least=2)", combine="best")
    assert [hit.id for hit in found] == fused["q"].documents


def test_the_command_line_knows_plugins(tmp_path: Path) -> None:
    source = tmp_path / "d.jsonl"
    source.write_text("\n".join(map(json.dumps, DOCUMENTS)))
    lines = tmp_path / "lines.txt"
    lines.write_text("dogs bark\ncats purr\n")

    def run(*arguments: object) -> str:
        command = [sys.executable, "-m", "vizsla", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run("index", source, "-o", tmp_path / "i", "--model", "bm25 + letters")
    assert '"1"' in run("search", tmp_path / "i", "dogs", "--json")
    assert "how often a letter must occur" in run("models", "show", "letters")
    assert '"2"' in run("search", f"lines:{lines}", "cats", "--json")


def test_without_the_plugin_the_reason_is_one_sentence(
    index: Index, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = f"from vizsla import Index; Index.open({str(index.path)!r})"
    environment = {k: v for k, v in os.environ.items() if k != "VIZSLA_PLUGINS"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert "does not know components of the kind 'toy-letters'; if a plugin has it, name the file" in done.stderr
    broken = tmp_path / "broken.py"
    broken.write_text("1 / 0\n")
    for value, message in (
        (str(tmp_path / "absent.py"), "this file does not exist"),
        (str(broken), "cannot be loaded: ZeroDivisionError"),
        ("no_such_module_of_anyone", "cannot be loaded: ModuleNotFoundError"),
    ):
        monkeypatch.setenv("VIZSLA_PLUGINS", value)
        with pytest.raises(VizslaError, match=message):
            plugins.load_plugins()


def test_a_name_is_registered_by_one_file() -> None:
    registry = Registry[Run]("thing", example="a")
    registry.register("a", help="One.")(lambda: Run({}))
    other = type("Other", (), {"__module__": "elsewhere"})
    with pytest.raises(VizslaError, match="two files register the thing 'a'"):
        registry.register("a", help="Another.")(other)
    assert expression(parse_model("0.5 * bm25(k1=1.2)")) == "0.5 * bm25(k1=1.2)"


@dataclass(frozen=True)
class Constant(SparseComponent):
    """Gives every document one term with one weight."""

    value: float = 1.0
    fields: tuple[str, ...] = ("text",)
    namespace: str = "constant"
    name: str = "constant"

    kind: ClassVar[str] = "test-constant"

    def document_encoder(self) -> SparseDocumentEncoder:
        return TermWeightEncoder(self.namespace, lambda _: {"x": VALUES.get(self.value, self.value)})

    def query_terms(self, texts: Sequence[str], context: SearchContext | None = None) -> list[dict[str, float]]:  # noqa: ARG002
        return [[][1] if text == "broken" else {"x": 1.0} for text in texts]


@dataclass(frozen=True)
class Wide(DenseComponent):
    """Says it has two dimensions, and gives three."""

    fields: tuple[str, ...] = ("text",)
    namespace: str = "wide"
    name: str = "wide"

    kind: ClassVar[str] = "test-wide"

    @property
    def dimensions(self) -> int:
        return 2

    def document_embeddings(self, documents: Sequence[Fields]) -> tuple[np.ndarray, np.ndarray]:
        return np.ones((len(documents), 3), np.float32), np.ones(len(documents), bool)

    def query_embeddings(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        return np.ones((len(texts), 3), np.float32), np.ones(len(texts), bool)


VALUES = {-7: float("nan"), -8: float("inf")}  # which no description can hold


@pytest.mark.parametrize("value", [0, -2, 0.0, -1.5, -7, -8, 1 << 40])
def test_weights_that_cannot_be_stored_are_refused_before_anything_is_written(tmp_path: Path, value: float) -> None:
    with Index.create(tmp_path / "i", Constant(value)) as index:
        with pytest.raises(VizslaError, match="constant gives a term of the document '1' the weight"):
            index.add(DOCUMENTS)
        index.commit()
        assert len(index) == 0
    assert verify(tmp_path / "i") == []


def test_vectors_of_another_width_are_refused(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", Wide()) as index:
        with pytest.raises(VizslaError, match=r"wide gives vectors of the shape \(3, 3\) .* expected \(3, 2\)"):
            index.add(DOCUMENTS)
        index.commit()
    assert verify(tmp_path / "i") == []


def test_a_mistake_of_a_plugin_is_no_damage(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i", Constant()) as index:
        index.add(DOCUMENTS)
        index.commit()
        for call in (lambda: index.search("broken"), lambda: index.explain("broken", "1")):
            with pytest.raises(IndexError):
                call()


def test_what_cannot_be_stored_leaves_no_index(tmp_path: Path) -> None:
    for options, message in (
        ({"store": "no"}, "store is True or False"),
        ({"model": 3}, "a model is a Model or its name"),
        ({"model": vizsla.BM25}, "a model is a Model or its name"),
        ({"model": Constant(value=np.float32(1))}, "cannot be stored"),
    ):
        with pytest.raises(VizslaError, match=message):
            Index.create(tmp_path / "i", **options)  # type: ignore[arg-type]
        assert not (tmp_path / "i").exists()
    for fields in ("text", (), ("",), ("text", 3)):
        with pytest.raises(VizslaError, match="fields are a tuple of names"):
            vizsla.BM25(fields=fields)  # type: ignore[arg-type]


def test_two_plugins_of_one_stem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from vizsla.models import MODELS, BM25\nMODELS.register('stem-{0}', help='.')(lambda: {1})\n"
    for folder, model in (("a", "BM25()"), ("b", "None")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(text.format(folder, model))
    files = [str(tmp_path / folder / "same.py") for folder in "ab"]
    monkeypatch.setenv("VIZSLA_PLUGINS", os.pathsep.join(files))
    assert parse_model("stem-a").name == "bm25"
    with pytest.raises(VizslaError, match="registers the model 'stem-b' gives null, not a Model"):
        parse_model("stem-b")


def test_options_that_would_clash_in_a_description_are_refused(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Clashing(Constant):
        weight: float = 2.0

        kind: ClassVar[str] = "test-clashing"

    with pytest.raises(VizslaError, match="cannot be stored: rename its option 'weight'"):
        Index.create(tmp_path / "i", Clashing())


def test_the_order_of_names_does_not_depend_on_what_was_imported_before() -> None:
    code = "import vizsla.models.spar; from vizsla.models import MODELS; print(*MODELS.names()[:8])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == MODELS.names()[:8]
    assert MODELS.names()[:2] == ["bm25", "bm25-wp"]
