"""Systems side by side: the shared index, the cache, tables, the page, the verb."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from conftest import Cli
from vizsla import BeirDataset, Run, VizslaError, compare, parse_model
from vizsla.evaluation import Cache, evaluate_model, tune
from vizsla.evaluation.systems import shared_index_model
from vizsla.reports import as_markdown, write_report
from vizsla.reports.charts import Axis, number
from vizsla.runs import parse_measures
from waiting import LIMIT

pytestmark = pytest.mark.usefixtures("own_cache")

MODELS = ("bm25", "bm25(k1=2, b=0.9)", "bm25-multifield", "0.5 * bm25 + bm25(fields=title, namespace=t)")
MEASURES = parse_measures("nDCG@10 R@100")


def test_one_index_answers_as_each_models_own(data: Path, tmp_path: Path) -> None:
    """What is found through the shared index is what each model finds in an index of its own."""
    part = Path(shutil.copytree(data / "nfcorpus", tmp_path / "nfcorpus"))
    lines = (part / "corpus.jsonl").read_text().splitlines(keepends=True)
    (part / "corpus.jsonl").write_text("".join(lines[:600]))
    dataset = BeirDataset.open(part)
    models = {name: parse_model(name) for name in MODELS}
    assert len(shared_index_model(models.values()).parts) == 3  # title and text together, title, text
    found = compare([(dataset, "test")], models, MEASURES)
    for name, model in models.items():
        alone = evaluate_model(model, dataset, "test", ["nDCG@10", "R@100"])
        result = found.results["nfcorpus", name]
        assert result.run == alone.run
        assert result.evaluation.measures == alone.evaluation.measures
        assert result.facts["milliseconds"] > 0
    sizes = {name: found.results["nfcorpus", name].facts["bytes"] for name in MODELS}
    assert sizes["bm25"] == sizes["bm25(k1=2, b=0.9)"] < sizes["bm25-multifield"] < sizes[MODELS[3]] * 2


def test_runs_are_kept_by_content(dataset: Path, tmp_path: Path) -> None:
    cache, opened = Cache(tmp_path / "kept"), BeirDataset.open(dataset)

    def cached(**models: str) -> list[bool]:
        found = compare([(opened, "test")], {n: parse_model(m) for n, m in models.items()}, MEASURES, cache=cache)
        return [found.results["pets", name].cached for name in models]

    assert cached(a="bm25") == [False]
    assert cached(a="bm25", b="bm25(k1=2)") == [True, False]
    for file in (tmp_path / "kept").glob("*.npz"):
        file.write_bytes(b"broken")
    assert cached(a="bm25") == [False]
    assert cached(a="bm25") == [True]
    (dataset / "corpus.jsonl").write_text((dataset / "corpus.jsonl").read_text() + '{"_id": "d5", "text": "dog"}\n')
    assert cached(a="bm25") == [False]


class Page(HTMLParser):
    """Counts tags, and that they close."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: dict[str, int] = {}
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1
        self.links += [v or "" for k, v in attrs if k in ("href", "src")]
        if tag not in ("meta", "line", "circle", "rect", "br") or (tag == "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, _: list[tuple[str, str | None]]) -> None:
        self.seen[tag] = self.seen.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(dataset: Path, tmp_path: Path) -> None:
    hostile = '<script>alert("&")</script>'
    (dataset / "queries.jsonl").write_text(
        (dataset / "queries.jsonl").read_text().replace("barking dogs", "barking dogs <script>alert(1)</script>")
    )
    opened = BeirDataset.open(dataset)
    models = {"bm25": parse_model("bm25"), hostile: parse_model("bm25(k1=0, b=1)")}
    runs = {"other": {"pets": Run({"q1": [("d3", 2.0), ("unknown", 1.0)], "q9": [("d1", 1.0)]})}}
    found = compare([(opened, "test")], models, MEASURES, runs=runs)
    write_report(found, tmp_path / "r.html", [opened], models)
    text = (tmp_path / "r.html").read_text()
    page = Page(text)
    assert page.open == []
    assert "<script" not in text
    assert all(link.startswith("#") for link in page.links)
    assert page.seen["svg"] >= 3
    assert "<mark>" in text
    assert "not judged" in text


def test_tables_in_every_format(dataset: Path, tmp_path: Path) -> None:
    opened = BeirDataset.open(dataset)
    models = {"bm25": parse_model("bm25"), "a|b_c": parse_model("bm25(k1=0)")}
    found = compare([(opened, "test")], models, MEASURES)
    for ending in (".md", ".csv", ".tex", ".json"):
        write_report(found, tmp_path / f"r{ending}", [opened], models)
    assert "| data set | measure | bm25 | a\\|b_c |" in (tmp_path / "r.md").read_text()
    assert "a|b\\_c" in (tmp_path / "r.tex").read_text()
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert len(rows) == 4
    assert json.loads((tmp_path / "r.json").read_text())["figures"][0]["value"] == float(rows[0]["value"])
    with pytest.raises(VizslaError, match=r"a report ends in \.html"):
        write_report(found, tmp_path / "r.pdf", [opened], models)


@pytest.mark.parametrize("width", [1280, 800, 500])
def test_a_page_shows_all_columns(dataset: Path, tmp_path: Path, width: int) -> None:
    """On a screen every table fits, however long names are; on a phone those that do not can be scrolled."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("a page is laid out by a browser, and there is none here")
    opened = BeirDataset.open(dataset)
    models = {
        "bm25": parse_model("bm25"),
        "bm25 + 0.5 * bm25-wp": parse_model("2 * bm25"),
        "x" * 150: parse_model("bm25"),
    }
    page = tmp_path / "r.html"
    write_report(compare([(opened, "test")], models, MEASURES), page, [opened], models)
    text = page.read_text("utf-8")
    assert "nDCG@10 minus nDCG@10 of bm25" in text
    script = """<script>document.querySelectorAll("details").forEach(d => d.open = true);
    let wide = [...document.querySelectorAll(".wide")].map(e => e.scrollWidth - e.clientWidth);
    document.title = JSON.stringify([document.documentElement.scrollWidth, ...wide])</script></body>"""
    page.write_text(text.replace("</body>", script), "utf-8")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--window-size={width},900",
        "--dump-dom",
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT)
    found = re.search(r"<title>(.*?)</title>", done.stdout)
    assert found
    whole, *tables = json.loads(found[1])
    assert whole <= width
    if width >= 1280:
        assert tables == [0] * len(tables)


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.31, 0.33), (5.0, 5.0), (-2.0, 30_000.0)])
def test_axes_hold_their_ticks(low: float, high: float) -> None:
    for log in (False, True) if low > 0 else (False,):
        axis = Axis.fitted([low, high], 0, 100, log=log)
        assert all(-1e-9 <= axis.at(t) <= 100 + 1e-9 for t in axis.ticks())
        assert axis.ticks()
    assert [number(v) for v in (0.5, 1234, 2.5e6)] == ["0.5", "1,234", "2.5 M"]


def test_comparing_from_the_shell(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    run = tmp_path / "mine.trec"
    run.write_text("q1 Q0 d1 1 2 t\nq7 Q0 d1 1 2 t\n")
    code, out, err = cli(
        "compare", dataset, "-m", "bm25,bm25(k1=0, b=1)", "--run", f"mine={run}", "--report", tmp_path / "r.html"
    )
    assert code == 0
    assert re.search(r"data set +measure +bm25 +bm25\(k1=0, b=1\) +mine", out)
    assert "mine on pets: 1 of 2 judged queries are not in the run; 1 query without judgements left out" in err
    assert (tmp_path / "r.html").is_file()
    assert "kept from before" in cli("compare", dataset, "-m", "bm25")[2]
    data = json.loads(cli("compare", dataset, "--json", "--no-cache")[1])
    assert data["systems"] == ["bm25"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-m", "bm25,bm25"], "the model 'bm25' is named twice"),
        (["--report", "x.pdf"], "a report ends in"),
        (["--test", "t"], "unknown significance test 't'"),
        (["--split", "train"], "unknown split 'train'; known: dev, test"),
        (["--run", "nowhere.trec"], "nowhere.trec: this file does not exist"),
        (["--measures", "nDGC@10"], "unknown measure 'nDGC'; did you mean 'nDCG'"),
        (["--report", "/nowhere/r.html"], "its folder does not exist"),
        (["-k", "5", "--measures", "R@10"], "R@10 needs more than the 5 documents"),
    ],
)
def test_comparisons_that_cannot_be(cli: Cli, dataset: Path, arguments: list[str], message: str) -> None:
    code, _, err = cli("compare", dataset, *arguments)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


def test_names_that_would_hide_each_other_are_refused(cli: Cli, dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    again = tmp_path / "other" / "pets"
    again.symlink_to(dataset)
    cars = tmp_path / "cars"
    cars.symlink_to(dataset)
    run = tmp_path / "bm25.trec"
    run.write_text("q1 Q0 d1 1 2 t\n")
    copied = tmp_path / "cars2"
    shutil.copytree(dataset, copied)
    for arguments, message in (
        ([dataset, again], "two data sets are called 'pets'"),
        ([dataset, "-m", "bm25", "--run", run], "two systems are called 'bm25'"),
        ([dataset, "--run", run, "--run", run], "two runs on one data set are called 'bm25'"),
        ([dataset, copied, "--run", f"x={run}"], "which data set is"),
        ([dataset, copied, "--run", f"x@pets={run}"], "the baseline x has no results on cars2"),
        ([dataset, copied, "--run", f"x@trucks={run}"], "unknown data set in this comparison 'trucks'"),
    ):
        code, _, err = cli("compare", *arguments)
        assert (code, message in err) == (2, True), err
    assert cli("compare", dataset, copied, "--run", f"x@pets={run}", "--run", f"x@cars2={run}")[0] == 0


def of_ranks(*ranks: int) -> Run:
    """A run on queries q0, q1, ... whose one relevant document, `yes`, has these ranks; 0 for nowhere."""
    rankings = {}
    for i, rank in enumerate(ranks):
        ids = [f"no{j}" for j in range(9)]
        ids[rank - 1 : rank - 1] = ["yes"] if rank else []
        rankings[f"q{i}"] = [(d, 100.0 - j) for j, d in enumerate(ids)]
    return Run(rankings)


@pytest.fixture
def judged(tmp_path: Path) -> list[BeirDataset]:
    """Three data sets with six queries each, and no text."""
    made = []
    for name in ("ants", "bees", "cats"):
        (tmp_path / name / "qrels").mkdir(parents=True)
        lines = ["query-id\tcorpus-id\tscore", *(f"q{i}\tyes\t1" for i in range(6))]
        (tmp_path / name / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
        (tmp_path / name / "queries.jsonl").write_text("".join(f'{{"_id": "q{i}", "text": "t"}}\n' for i in range(6)))
        (tmp_path / name / "corpus.jsonl").write_text('{"_id": "yes", "text": "t"}\n')
        made.append(BeirDataset.open(tmp_path / name))
    return made


BASE, HIGHER, MIXED = of_ranks(2, 2, 2, 2, 2, 2), of_ranks(1, 1, 1, 1, 1, 2), of_ranks(1, 2, 2, 2, 2, 2)
LOWER = of_ranks(4, 4, 4, 4, 4, 2)  # by RR: base 0.5, higher 0.9167, mixed 0.5833, lower 0.2917


def test_the_average_against_the_baseline(judged: list[BeirDataset]) -> None:
    """BEIR's last row: the mean difference from BM25, and on how many data sets a system is better and worse."""
    runs = {
        "base": {d.name: BASE for d in judged},
        "good": {"ants": HIGHER, "bees": MIXED, "cats": LOWER},
        "same": {d.name: BASE for d in judged},
    }
    found = compare([(d, "test") for d in judged], {}, "RR@10", runs=runs, correction="none")
    good = found.against_baseline("good", "RR@10")
    assert (good.datasets, good.better, good.equal, good.worse) == (3, 2, 0, 1)
    assert (good.significantly_better, good.significantly_worse) == (1, 1)
    assert good.mean == pytest.approx((11 / 12 + 7 / 12 + 7 / 24) / 3)
    assert good.difference == pytest.approx(good.mean - 0.5)
    assert good.relative == pytest.approx(good.mean / 0.5 - 1)
    same = found.against_baseline("same", "RR@10")
    assert (same.better, same.equal, same.worse, same.difference, same.relative) == (0, 3, 0, 0.0, 0.0)
    table = as_markdown(found)
    assert "| mean against base | RR@10 | – | +0.0972 (+19.4%) | +0.0000 (+0.0%) |" in table
    assert "| better / worse than base | RR@10 | – | 2 (1) / 1 (1) | 0 (0) / 0 (0) |" in table


def test_a_measure_where_less_is_better_counts_the_other_way(judged: list[BeirDataset]) -> None:
    full, short = of_ranks(1, 1, 1, 1, 1, 1), Run({f"q{i}": [("yes", 1.0)] for i in range(6)})
    runs = {"full": {d.name: full for d in judged}, "short": {d.name: short for d in judged}}
    found = compare([(d, "test") for d in judged], {}, "Hole(judged='query')@5", runs=runs)
    assert found.against_baseline("short", found.measures[0]).better == 3
    assert found.against_baseline("short", found.measures[0]).difference < 0


def test_a_mean_leaves_out_what_is_missing(judged: list[BeirDataset], tmp_path: Path, cli: Cli) -> None:
    """A system without results on a data set is compared with the baseline on the others only."""
    runs = {
        "base": {"ants": BASE, "bees": HIGHER, "cats": BASE},
        "part": {"ants": HIGHER, "cats": MIXED},
        "all": {"ants": MIXED, "bees": MIXED, "cats": MIXED},
    }
    found = compare([(d, "test") for d in judged], {}, "RR@10", runs=runs, correction="none")
    part = found.against_baseline("part", "RR@10")
    assert (part.datasets, part.better, part.worse) == (2, 2, 0)
    assert part.mean == pytest.approx(0.75)
    assert part.difference == pytest.approx(0.25)  # bees would have raised the baseline's mean
    assert found.differences("bees", "RR@10").keys() == {"all"}
    assert found.notes == ("part has no results on bees; its mean does not include that",)
    for ending in (".html", ".md", ".csv", ".tex", ".json"):
        write_report(found, tmp_path / f"r{ending}", judged, {})
    table = (tmp_path / "r.md").read_text("utf-8")
    assert "| bees | RR@10 | **0.9167** | – | 0.5833- |" in table
    assert "| mean | RR@10 | **0.6389** | 0.7500 (2 of 3) | 0.5833 |" in table
    assert "| mean against base | RR@10 | – | +0.2500 (+50.0%) | -0.0556 (-8.7%) |" in table
    assert r"-- & +0.2500 (+50.0\%) & -0.0556 (-8.7\%) \\" in (tmp_path / "r.tex").read_text("utf-8")
    rows = csv.DictReader((tmp_path / "r.csv").read_text("utf-8").splitlines())
    lines = {(row["dataset"], row["system"]): row for row in rows}
    assert ("bees", "part") not in lines
    summary = lines["mean", "part"]
    assert (summary["datasets"], summary["better"], summary["significantly_better"]) == ("2", "2", "1")
    assert float(summary["difference"]) == pytest.approx(0.25)
    assert lines["mean", "base"]["difference"] == ""
    data = json.loads((tmp_path / "r.json").read_text())
    assert [(e["system"], e["datasets"]) for e in data["summary"]] == [("base", 3), ("part", 2), ("all", 3)]
    page = (tmp_path / "r.html").read_text("utf-8")
    assert Page(page).open == []
    assert "<td>better / worse than base</td><td>RR@10</td>" in page
    assert "<b>base</b> with RR@10 0.6389 on average (all 0.5833)" in page
    files = {}
    for system, by_dataset in runs.items():
        for name, run in by_dataset.items():
            files[system, name] = tmp_path / f"{system}-{name}.trec"
            run.write(files[system, name])
    given = [part for (s, d), file in files.items() for part in ("--run", f"{s}@{d}={file}")]
    code, out, err = cli("compare", *(d.folder for d in judged), *given, "--measures", "RR@10")
    assert code == 0
    assert re.search(r"better / worse than base +RR@10 +– +2 \(1\) / 0 \(0\) +2 \(0\) / 1 \(1\)", out)
    assert "part has no results on bees" in err


def test_a_group_counts_once_and_needs_all_members(judged: list[BeirDataset]) -> None:
    runs = {"base": {d.name: BASE for d in judged}, "part": {"ants": HIGHER, "bees": HIGHER}}
    groups = {"insects": ["ants", "bees"]}
    found = compare([(d, "test") for d in judged], {}, "RR@10", runs=runs, groups=groups)
    part = found.against_baseline("part", "RR@10")
    assert (part.datasets, part.better, part.significantly_better) == (1, 1, 0)
    groups = {"insects": ["bees", "cats"]}
    found = compare([(d, "test") for d in judged], {}, "RR@10", runs=runs, groups=groups)
    assert not found.has("insects", "part")
    assert found.mean("part", "RR@10") == pytest.approx(11 / 12)
    with pytest.raises(VizslaError, match="part has no results on any of these data sets: cats"):
        compare([(judged[2], "test")], {}, "RR@10", runs=runs)


def test_measures_where_less_is_better(dataset: Path) -> None:
    opened = BeirDataset.open(dataset)
    holes = parse_measures("Hole(judged='query')@1")
    runs = {name: {"pets": Run({q: [(d, 1.0)] for q in ("q1", "q2")})} for name, d in (("a", "d2"), ("b", "d4"))}
    found = compare([(opened, "test")], {}, holes, runs=runs)
    assert "| **0.5000** | 1.0000 |" in as_markdown(found)
    assert found.results["pets", "a"].evaluation.facts["unknown"] == 0
    with pytest.raises(VizslaError, match="does not measure quality"):
        tune(None, parse_model("bm25"), {}, opened.qrels(), holes[0], [])  # type: ignore[arg-type]


def test_a_cache_that_cannot_be_written_is_told(dataset: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = Cache(tmp_path / "file")
    found = compare([(BeirDataset.open(dataset), "test")], {"bm25": parse_model("bm25")}, MEASURES, cache=cache)
    assert "runs could not be cached" in found.notes[0]
