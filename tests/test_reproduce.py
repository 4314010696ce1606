"""The tables of the papers: their data, and vizsla reproduce on a tiny sample."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli
from vizsla import Index, VizslaError
from vizsla.datasets import BeirDataset, Document, known_datasets
from vizsla.evaluation import evaluate_model
from vizsla.index.storage.locks import FileLock
from vizsla.models import MODELS, parse_model
from vizsla.recipes import PaperTable, Reproduction, Tiny, all_tables, load_table, paper_names, rankings
from vizsla.recipes.paper_tables import Column
from vizsla.reports import reproduced_html, reproduced_markdown
from vizsla.runs import Fusion, parse_measures
from vizsla.spec.notation import Call, parse_sum
from vizsla.training import load_training_recipe, training_recipe_names

TABLES = {table.full_name: table for table in all_tables()}
OF_OTHERS = {"latency", "added-terms", "RBO", "domain-overlap"}
"""Recipes and data sets that are named before they are registered."""


@pytest.fixture(params=sorted(TABLES))
def table(request: pytest.FixtureRequest) -> PaperTable:
    return TABLES[request.param]


def test_every_paper_has_its_tables() -> None:
    counts = {paper: sum(t.paper == paper for t in TABLES.values()) for paper in paper_names()}
    assert counts == {"beir": 5, "bm25-augmentation": 4, "bm26": 4, "repbert": 4, "spar": 8}
    assert all(sum(t.is_main for t in TABLES.values() if t.paper == paper) == 1 for paper in paper_names())
    assert load_table("spar") is load_table("spar/table-2")


def test_every_row_has_figures_or_is_ours(table: PaperTable) -> None:
    for row in table.rows:
        assert row.added == all(figure is None for figure in row.figures), row.name
        assert row.system or row.dataset or row.pair, row.name
    assert len({row.name for row in table.rows}) == len(table.rows)
    assert len({column.name for column in table.columns}) == len(table.columns)
    assert set(table.differences) <= {row.name for row in table.rows}
    assert not table.baseline or any(row.system and row.system.name == table.baseline for row in table.rows)


def test_every_system_can_be_named(table: PaperTable) -> None:
    for row in table.rows:
        for system in table.members(row.system) if row.system else ():
            assert bool(system.model) != bool(system.unavailable), system.name
            trained = [name.replace("{dataset}", "scifact") for name in system.trained]
            for call in _calls(system.model) if system.model else ():
                assert call.name in MODELS or call.name in trained, call.name
                if call.name in MODELS:
                    MODELS[call.name].read_options(call)
            assert all(name in system.model for name in system.trained), system.name
        if row.system and row.system.fusion:
            assert Fusion.parse(row.system.fusion).check_weights(row.system.weights, len(row.system.of))
    known = [*training_recipe_names()]
    for part in table.trained.values():
        assert bool(part.recipe) != bool(part.how)
        assert not part.recipe or part.recipe in known, part.recipe
        if part.recipe in known:
            changes = [c for c in part.changes("m") if not c.startswith("network.base_model=")]
            load_training_recipe(part.recipe).with_changes(changes)


def _calls(expression: str) -> Iterator[Call]:
    filled = Column("SF", dataset="scifact", mu=1.0).fill(expression)
    for _, call in parse_sum(filled, MODELS.what, MODELS.example):
        yield call
        if call.name == "spar":
            yield from _calls(call.options["dense"])
            yield from _calls(call.options["lexical"])


def test_every_column_can_be_measured(table: PaperTable) -> None:
    for name in (*table.data, *table.training_data):
        assert name in known_datasets(), name
    for column in table.columns:
        kinds = (column.measure, column.statistic, column.mean, column.difference, column.external)
        assert sum(map(bool, kinds)) == 1, column.name
        if column.measure and column.measure not in OF_OTHERS:
            parse_measures(column.measure.replace("Acc@", "Success@"))


def test_means_are_those_of_the_figures(table: PaperTable) -> None:
    """The papers round each figure to a tenth; two of the BM26 paper's means differ from its figures by 0.14."""
    for column in (c for c in table.columns if c.mean and not c.against):
        at = table.columns.index(column)
        for row in table.rows:
            figures = [row.figures[table.columns.index(c)] for c in table.sources(column)]
            printed = row.figures[at]
            if printed is None or printed.value is None or None in figures:
                continue
            values = [figure.value for figure in figures if figure and figure.value is not None]
            assert printed.value == pytest.approx(sum(values) / len(values), abs=0.14), (row.name, column.name)


def test_means_against_bm25_in_beir() -> None:
    """The paper does not say how it averages; its own figures give the same order of systems, within 4 points."""
    table = load_table("beir/table-2")
    last = table.columns[-1]
    columns = [table.columns.index(c) for c in table.sources(last)]
    assert len(columns) == 18

    def mean(name: str) -> float:
        return sum(float(figure.text) for i in columns if (figure := table.row(name).figures[i]))

    for row in table.rows:
        printed = row.figures[-1]
        if printed is not None and printed.value is not None:
            assert printed.value == pytest.approx(100 * (mean(row.name) / mean("BM25") - 1), abs=4)


def test_figures_that_two_papers_print() -> None:
    """SPAR quotes BEIR's figures of BM25, docT5query, ANCE and ColBERT, in per cent."""
    beir, spar = load_table("beir/table-2"), load_table("spar/table-4")
    by_dataset = {column.dataset: i for i, column in enumerate(beir.columns)}
    for name in ("BM25", "docT5query", "ANCE", "ColBERT"):
        for column, figure in zip(spar.columns, spar.row(name).figures, strict=True):
            if column.dataset and figure and figure.value is not None:
                theirs = beir.row(name).figures[by_dataset[column.dataset]]
                assert theirs is not None
                assert theirs.value is not None
                assert figure.value == pytest.approx(100 * theirs.value, abs=1e-6), (name, column.name)


def test_mistakes_are_refused_in_a_sentence(cli: Cli, tmp_path: Path) -> None:
    for name, hint in (("bm26/table-22", "bm26/table-2"), ("bm27", "bm26"), ("repbert/table-9", "repbert/table-")):
        code, _, err = cli("reproduce", name, "--data", tmp_path)
        assert code == 2
        assert f"unknown table '{name}'" in err
        assert hint in err
    code, _, err = cli("reproduce", "bm26/table-2", "--data", tmp_path, "--only", "SX")
    assert code == 2
    assert "unknown row or column of bm26/table-2 'SX'" in err
    code, _, err = cli("reproduce", "bm26", "--scale", "small")
    assert code == 2
    assert "'small'" in err
    code, _, err = cli("reproduce", "bm26", "--data", tmp_path, "--output", __file__)
    assert code == 2
    assert "this is a file" in err


def test_list_and_dry_run(cli: Cli, tmp_path: Path) -> None:
    code, out, _ = cli("reproduce", "--data", tmp_path, "--json")
    listed = json.loads(out)
    assert code == 0
    assert [one["table"] for one in listed] == list(TABLES)
    assert all(one["missing"] == one["data"] for one in listed)
    assert "bm26/table-2" in cli("reproduce", "--list", "--data", tmp_path)[1]
    code, out, _ = cli("reproduce", "bm26/table-4", "--data", tmp_path, "--dry-run")
    assert code == 0
    assert f"vizsla datasets fetch msmarco --data {tmp_path}" in out
    assert "vizsla train splade-bm26e-paper" in out
    assert "GPU hours" in out
    assert list(tmp_path.iterdir()) == []


def test_missing_data_and_models_are_named(cli: Cli, tmp_path: Path) -> None:
    code, out, err = cli("reproduce", "bm26/table-4", "--data", tmp_path, "--output", tmp_path / "o", "--json")
    assert code == 0
    rows = {row["name"]: row["cells"] for row in json.loads(out)["rows"]}
    reason = rows["(1) BM25"][0]["reason"]
    assert reason == f"the data set msmarco is not here: vizsla datasets fetch msmarco --data {tmp_path}"
    assert rows["(1) BM25"][0]["paper"] == 18.4
    assert all(cell["ours"] is None and cell["reason"] for cells in rows.values() for cell in cells)
    assert "model bm26e-paper: not here" in err
    tiny = Tiny(tmp_path)
    tiny.make(load_table("bm26/table-4"))
    out = cli("reproduce", "bm26/table-4", "--data", tiny.data, "--models", tmp_path / "m", "--only", "(2) BM51e",
              "--output", tmp_path / "o", "--json")[1]  # fmt: skip
    reason = json.loads(out)["rows"][0]["cells"][0]["reason"]
    assert reason.startswith("not trained: vizsla train bm26e-paper --corpus ")
    assert reason.endswith("/m/bm26e-paper")


@pytest.fixture
def tiny(tmp_path: Path) -> Tiny:
    made = Tiny(tmp_path / "tiny")
    made.make(load_table("repbert/table-3"))
    return made


def run_of(tiny: Tiny, output: Path, *, only: tuple[str, ...] = (), name: str = "repbert/table-3") -> Reproduction:
    """A run of a table on tiny data that reports to a list."""
    said: list[str] = []
    run = Reproduction(load_table(name), tiny.data, tiny.folder / "models", output, only, report=said.append)
    run.said = said  # type: ignore[attr-defined]
    return run


def measured(run: Reproduction) -> dict[tuple[str, str], object]:
    return {
        (row["name"], cell["column"]): cell["ours"]
        for row in run.as_data(whole=True)["rows"]
        for cell in row["cells"]
        if cell["ours"] is not None
    }


def test_a_run_that_is_stopped_goes_on(tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole and stopped after each cell give the same figures, and finished cells are not measured again."""
    whole = run_of(tiny, tmp_path / "whole")
    whole.run()
    figures = measured(whole)
    assert len(figures) == 4
    assert all(isinstance(value, float) and 0 < value <= 1 for value in figures.values())
    output = tmp_path / "stopped"
    for count in range(4):
        run = run_of(tiny, output)
        store, stored = run._kept.store, 0

        def stop(*arguments: object, keep: object = store) -> None:
            nonlocal stored
            if stored:
                raise KeyboardInterrupt
            stored += 1
            keep(*arguments)  # type: ignore[operator]

        monkeypatch.setattr(run._kept, "store", stop)
        if count < 3:
            with pytest.raises(KeyboardInterrupt):
                run.run()
        else:
            run.run()
        assert len(measured(run_of(tiny, output))) == count + 1
    last = run_of(tiny, output)
    assert measured(last) == figures
    last.run()
    assert not last.said  # type: ignore[attr-defined]
    assert not (output / "indexes").exists()


def test_conventions_share_a_ranking_and_differ_in_own_documents(tmp_path: Path) -> None:
    """Queries with the ids of documents: BEIR's table keeps these documents, the one of BM26 leaves them out."""
    tiny = Tiny(tmp_path / "tiny")
    tiny.make(load_table("bm26/table-2"))
    folder = tiny.data / "scifact"
    documents = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()][:30]
    queries = [{"_id": d["_id"], "text": d["title"]} for d in documents[:20]]
    for name, records in (("corpus.jsonl", documents), ("queries.jsonl", queries)):
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    judged = [f"{d['_id']}\t{other['_id']}\t1" for d in documents[:20] for other in documents if other != d][::7]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *judged]) + "\n")
    read: list[str] = []

    def documents_of(dataset: BeirDataset) -> Iterator[Document]:
        read.append(dataset.name)
        return dataset.documents()

    figures = []
    for name, only in (
        ("bm26/table-2", ("(1) BM25", "SF")),
        ("beir/table-2", ("bm25 of Vizsla (title and text as one field)", "SciFact")),
    ):
        run = replace(run_of(tiny, tmp_path / "o", only=only, name=name), documents=documents_of)
        run.run()
        (value,) = measured(run).values()
        figures.append(value)
    expected = [
        evaluate_model(parse_model("bm25"), BeirDataset.open(folder), measures="nDCG@10", convention=rules).evaluation
        for rules in ("anserini", "trec")
    ]
    values = [100 * expected[0].measures["nDCG@10"], expected[1].measures["nDCG@10"]]
    assert figures == pytest.approx(values, abs=1e-9)
    assert figures[0] != pytest.approx(100 * float(str(figures[1])))
    assert read == ["scifact"]


def test_generated_queries_may_lie_beside_the_corpus(tiny: Tiny, tmp_path: Path) -> None:
    folder = tiny.data / "msmarco"
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps({**row, "queries": None}) + "\n" for row in rows))
    only = ("docTTTTTquery", "+docTTTTTquery")
    before = run_of(tiny, tmp_path / "o", only=only).as_data()["rows"][0]["cells"][0]
    assert f"vizsla queries generate {folder}/corpus.jsonl -o {folder}/expanded.jsonl" in before["reason"]
    lines = [{"_id": row["_id"], "queries": row["queries"]} for row in rows]
    (folder / "expanded.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = run_of(tiny, tmp_path / "o", only=only)
    run.run()
    assert list(measured(run)) == [only]


def test_needs_have_sizes(cli: Cli, tmp_path: Path) -> None:
    """Checkpoints by name, an index at a time; and cells that nobody can fill are counted apart."""
    options = ("--data", tmp_path, "--dry-run", "--json", "--only", "NF")
    needs = json.loads(cli("reproduce", "spar/table-4", *options)[1])["needs"]
    by_kind = {kind: {n["name"]: n["bytes"] for n in needs if n["kind"] == kind} for kind in ("checkpoint", "room")}
    assert by_kind["checkpoint"]["spar-marco"] == 2 * 110 * 4_000_000
    assert {"ance", "contriever-msmarco", "gtr-large", "minilm"} <= by_kind["checkpoint"].keys()
    assert 10_000_000 < by_kind["room"]["for one index at a time"] < 100_000_000
    out = cli("reproduce", "spar/table-4", "--data", tmp_path, "--dry-run", "--only", "NF")[1]
    assert "0 of 13 cells can be measured now. 2 more cells can only show the paper's figure." in " ".join(out.split())
    out = cli("reproduce", "bm26/table-2", "--data", tmp_path, "--dry-run", "--only", "(b) cpt-text-S")[1]
    assert "11 more cells can only show" in out  # of 14 columns the paper fills 11
    (tmp_path / "scifact").mkdir()  # no data set: it is said when its cells are measured
    only = ("--only", "SF", "--only", "(a) Contriever")
    out = cli("reproduce", "bm26/table-2", "--data", tmp_path, "--dry-run", *only)[1]
    assert "1 of 1 cell can be measured now, 1 of them with models from the model hub." in " ".join(out.split())
    listed = {one["table"]: one for one in json.loads(cli("reproduce", "--data", tmp_path, "--json")[1])}
    assert listed["repbert/table-3"]["cells"] == 16  # of 25: doc2query was never published


def test_the_mean_over_relations_is_of_their_means(tmp_path: Path) -> None:
    """One relation of 18 questions of a tiny set and one of 6 whose answers are in no document."""
    tiny = Tiny(tmp_path / "tiny")
    tiny.make(load_table("bm25-augmentation/table-3"))
    file = tiny.data / "entityquestions" / "queries.jsonl"
    questions = [json.loads(line) for line in file.read_text().splitlines()]
    for number, question in enumerate(questions):
        lost = number % 4 == 3
        question["metadata"] |= {"relation": "P19" if lost else "P17"} | ({"answers": ["nobody"]} if lost else {})
    file.write_text("".join(json.dumps(question) + "\n" for question in questions))
    row, of_relations = "BM25 (Pyserini)", {}
    for name, column in (("bm25-augmentation/table-3", "EQ Acc@20"), ("spar/table-5", "Acc@20")):
        run = run_of(tiny, tmp_path / "o", only=(row if "aug" in name else "(s) BM25", column), name=name)
        run.run()
        (of_relations[name],) = measured(run).values()
    over_questions = float(str(of_relations["spar/table-5"])) / 100
    assert 0 < over_questions < 1
    assert of_relations["bm25-augmentation/table-3"] == pytest.approx(over_questions * 24 / 18 / 2)


def test_a_damaged_cell_is_measured_again(tiny: Tiny, tmp_path: Path) -> None:
    first = run_of(tiny, tmp_path / "o")
    first.run()
    figures = measured(first)
    files = sorted((tmp_path / "o" / "cells").iterdir())
    files[0].write_text(files[0].read_text()[:20])
    files[1].write_text('{"value": null, "by_query": {}}')
    again = run_of(tiny, tmp_path / "o")
    again.run()
    assert measured(again) == figures
    assert sum("damaged" in line for line in again.said) == 2  # type: ignore[attr-defined]


def test_other_data_means_another_cell(tiny: Tiny, tmp_path: Path) -> None:
    first = run_of(tiny, tmp_path / "o")
    first.run()
    qrels = tiny.data / "msmarco" / "qrels" / "dev.tsv"
    qrels.write_text("\n".join(qrels.read_text().splitlines()[:10]) + "\n")
    assert measured(run_of(tiny, tmp_path / "o")) == {}


def test_only_some_cells(tiny: Tiny, tmp_path: Path) -> None:
    run = run_of(tiny, tmp_path / "o", only=("docTTTTTquery", "+BM25(Anserini)"))
    run.run()
    assert list(measured(run)) == [("docTTTTTquery", "+BM25(Anserini)")]
    (row,) = run.as_data()["rows"]
    assert [cell["column"] for cell in row["cells"]] == ["+BM25(Anserini)"]
    other = next(c for r in run.as_data(whole=True)["rows"] for c in r["cells"] if c["column"] == "+docTTTTTquery")
    assert other["reason"] == "not run yet: vizsla reproduce repbert/table-3"


def test_a_second_process_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    (tmp_path / "o").mkdir()
    lock = FileLock(tmp_path / "o" / "lock")
    with pytest.raises(VizslaError, match="another process is reproducing"), run_of(tiny, tmp_path / "o").locked():
        pass
    lock.release()
    with run_of(tiny, tmp_path / "o").locked():
        pass


@pytest.mark.parametrize("seconds", [0.0, 300.0])
def test_an_unfinished_index_is_continued(
    tiny: Tiny, tmp_path: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was committed is not read into it again, and the figure is that of an index built at once."""
    monkeypatch.setattr(rankings, "COMMIT_AFTER", seconds)
    added: list[int] = []

    def stop(dataset: BeirDataset) -> Iterator[Document]:
        yield from islice(dataset.documents(), 30)
        raise KeyboardInterrupt

    def rest(index: Index, documents: Iterable[Document], keep: Any = Index.add) -> object:
        given = list(documents)
        added.append(len(given))
        return keep(index, given)

    whole = run_of(tiny, tmp_path / "whole", only=("BM25(Anserini)", "+BM25(Anserini)"))
    whole.run()
    run = replace(run_of(tiny, tmp_path / "o", only=("BM25(Anserini)", "+BM25(Anserini)")), documents=stop)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert [f.suffix for f in (tmp_path / "o" / "indexes").iterdir()] == [".building"]
    monkeypatch.setattr(Index, "add", rest)
    again = run_of(tiny, tmp_path / "o", only=("BM25(Anserini)", "+BM25(Anserini)"))
    again.run()
    assert measured(again) == measured(whole)
    assert sum(added) == (80 if seconds else 50)


def test_the_pages_say_why_for_every_cell(tiny: Tiny, tmp_path: Path) -> None:
    run = run_of(tiny, tmp_path / "o")
    run.run()
    data = run.as_data(whole=True)
    text, page = reproduced_markdown(data), reproduced_html(data)
    assert "**" in text.splitlines()[4]
    cells = [cell for line in text.splitlines() if line.startswith("| ") for cell in line.split("|")[2:-1]]
    assert all(cell.strip() for cell in cells)
    assert "1. " in text
    assert "Nogueira et al. (2019)" in page
    assert '<td class="n"></td>' not in page


@pytest.mark.parametrize(
    ("name", "only", "count"),
    [
        ("bm26/table-1", ["(1) BM25", "(2) BM25wp", "(4) BM26", "NQ top 20", "MS MARCO MRR@10"], 4),
        ("bm25-augmentation/table-1", ["BM25 (Pyserini)", "DPR", "NQ Acc@20", "NQ latency (s)"], 4),
        ("beir/table-4", ["BM25", "TAS-B", "BM25+CE"], 6),
        ("spar/table-7", ["BM25", "Wiki Lambda"], 12),
        ("repbert/table-1", ["BM25(Anserini)", "docTTTTTquery", "BM25 + BERT Large"], 9),
    ],
)
def test_a_tiny_table_of_each_paper(cli: Cli, tmp_path: Path, name: str, only: list[str], count: int) -> None:
    pytest.importorskip("torch")
    chosen = [argument for row in only for argument in ("--only", row)]
    code, out, err = cli("reproduce", name, "--scale", "tiny", "--output", tmp_path / "o", "--json", *chosen)
    assert code == 0, err
    result = json.loads(out)
    assert result["scale"] == "tiny"
    cells = [cell for row in result["rows"] for cell in row["cells"]]
    assert sum(cell["ours"] is not None for cell in cells) == count
    assert all(cell["paper"] is None for cell in cells)
    assert all(cell["reason"] for cell in cells if cell["ours"] is None)
    for ending in ("html", "md", "json"):
        assert (tmp_path / "o" / f"{name.replace('/', '-')}.{ending}").stat().st_size > 500
    assert "cannot be compared" in (tmp_path / "o" / f"{name.replace('/', '-')}.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["repbert/table-1", "bm25-augmentation/table-2", "bm26/table-1"])
def test_a_tiny_table_with_training(cli: Cli, tmp_path: Path, name: str) -> None:
    pytest.importorskip("torch")
    code, out, err = cli("reproduce", name, "--scale", "tiny", "--train", "--output", tmp_path / "o", "--json")
    assert code == 0, err
    reasons = {cell["reason"] for row in json.loads(out)["rows"] for cell in row["cells"] if cell["ours"] is None}
    assert not any(reason.startswith(("not trained", "failed")) for reason in reasons), reasons


def test_missing_data_is_fetched_where_its_files_can_be_downloaded() -> None:
    """Also data sets that are prepared from such files; others name what their owners give out."""
    from vizsla.recipes.table_data import can_be_fetched, how_to_get

    for name in ("scifact", "wiki-dpr", "openqa-nq"):
        assert can_be_fetched(name)
        assert how_to_get(name, Path("d")) == f"vizsla datasets fetch {name} --data d"
    assert not can_be_fetched("robust04")
    told = how_to_get("robust04", Path("d"))
    assert told.startswith("Apply to NIST")
    assert told.endswith(" Then: vizsla datasets prepare robust04 FILE... --data d")
    assert how_to_get("dpr-entityquestions", Path("d")).endswith(
        "mine entityquestions --index wiki.index -o ~/data/dpr-entityquestions"
    )
    assert not can_be_fetched("unknown")
