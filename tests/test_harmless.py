"""Foreign text reaches terminals and reports harmless, wherever a user's string can come out."""

from __future__ import annotations

import csv
import json
import re
import unicodedata
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conftest import Cli
from vizsla import BM25
from vizsla.evaluation.judging import Unjudged, quote_formula, read_sheet, unquote_formula, write_sheet
from vizsla.harmless import harmless, harmless_json
from vizsla.reports.formats import escape_csv, escape_html, escape_latex, escape_markdown

ACTS = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LIVE = re.compile(r"<\s*/?(script|img|b)\b", re.IGNORECASE)
EVIL = "=e\x1b[31mv\x9b2J\u202e\x07\r<img src=x onerror=a><script>|`*x*`[b](u)[red]r[/]\u2066"
"""What stands for a name from outside: it moves cursors, turns text round, and is live in HTML, Markdown and rich."""
LINES = EVIL + "\n# forged"
NAME = EVIL.replace("/", "")
"""The same as the name of a file."""


def assert_harmless(*texts: str) -> None:
    for text in texts:
        assert not ACTS.search(text), ascii(text)
        assert "\n# forged" not in text


@given(st.text(st.characters(blacklist_categories=())))
@example(LINES)
def test_no_character_acts(text: str) -> None:
    shown = harmless(text)
    assert not ACTS.search(shown)
    assert "\n" not in shown
    assert not {unicodedata.category(c) for c in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert json.loads(harmless_json(json.dumps(text, ensure_ascii=False))) == text
    assert not ACTS.search(harmless_json(json.dumps(text, ensure_ascii=False)))
    kept = harmless(text, lines=True)
    assert kept.count("\n") == text.count("\n")


def test_texts_of_all_scripts_stay_as_they_are() -> None:
    for text in ("Tokio – 東京", "می‌خواهم", "👩‍🔬 naïve\u00a0Ω", "עברית", "हिन्दी"):
        assert harmless(text) == text


@given(st.text())
@example(LINES)
def test_formats_escape_what_is_live_in_them(text: str) -> None:
    class Tags(HTMLParser):
        seen: list[str]

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.seen.append(f"{tag} {attrs}")

    parser = Tags()
    parser.seen = []
    parser.feed(f"<p>{escape_html(text)}</p>")
    assert parser.seen == ["p []"]
    assert not re.search(r"<[A-Za-z/!?]", escape_markdown(text))
    assert not re.search(r"(?<!\\)(\\\\)*[|`*]", re.sub(r"\\\\", "", escape_markdown(text)))
    assert not re.search(r"(?<!\\)[&%$#_{}]", re.sub(r"\\textbackslash\{\}|\\\^\{\}|\\~\{\}", "", escape_latex(text)))
    assert not escape_csv(text).lstrip().startswith(tuple("=+-@"))
    assert unquote_formula(quote_formula(text)) == text


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which every name is hostile: documents, a data set, runs, queries, a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    corpus = [
        {"_id": f"{EVIL} {i}", "title": LINES, "text": f"a dog {LINES} barks {i}", EVIL: EVIL, "year": i}
        for i in range(3)
    ]
    lines = "".join(json.dumps(d) + "\n" for d in corpus)
    (tmp_path / f"{NAME}.jsonl").write_text(lines)
    folder = tmp_path / NAME
    (folder / "qrels").mkdir(parents=True)
    beir = [{**d, "_id": f"d{EVIL.replace(' ', '')}{i}".replace("\r", "")} for i, d in enumerate(corpus)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in beir))
    queries = [{"_id": f"q{EVIL.replace(' ', '')}{i}".replace("\r", ""), "text": f"{LINES} dog {i}"} for i in range(2)]
    (folder / "queries.jsonl").write_text("".join(json.dumps(q) + "\n" for q in queries))
    judged = [f"{q['_id']}\t{beir[i]['_id']}\t1\n" for i, q in enumerate(queries)]
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(judged), newline="")
    for name in ("", "two"):
        rows = [
            f"{q['_id']} Q0 {d['_id']} {r} {9 - r} {EVIL.replace(' ', '')}\n".replace("\r", "")
            for q in queries for r, d in enumerate(beir if name else beir[::-1], 1)
        ]  # fmt: skip
        (tmp_path / f"{name}{NAME}.trec").write_text("".join(rows))
    BM25(name=EVIL).save(tmp_path / f"model{NAME}")
    return tmp_path


INDEX, RUNS = f"i{NAME}", [f"{NAME}.trec", f"two{NAME}.trec"]
FINE = [
    ("index", f"{NAME}.jsonl", "-o", INDEX),
    ("index", f"{NAME}.jsonl", "-o", "m", "-m", f"model{NAME}"),
    ("info", "m"),
    ("search", "m", "dog"),
    ("explain", "m", "dog", f"{EVIL} 1"),
    ("search", INDEX, "dog"),
    ("search", INDEX, "dog", "--json"),
    ("search", INDEX, f"{EVIL} xyzzy"),
    ("index", NAME, "-o", "b"),
    ("search", "b", "--queries", f"{NAME}/queries.jsonl", "--output", f"o{NAME}.trec"),
    ("explain", INDEX, f"dog {LINES}", f"{EVIL} 1"),
    ("explain", INDEX, "dog", f"{EVIL} 1", "--json"),
    ("info", INDEX, "--terms", LINES),
    ("info", INDEX, "--json"),
    ("analyze", LINES, "-a", "whitespace"),
    ("add", INDEX, f"{NAME}.jsonl"),
    ("verify", INDEX),
    ("compact", INDEX),
    ("export", INDEX, "-o", f"v{NAME}.jsonl"),
    ("eval", NAME),
    ("eval", NAME, "--run", RUNS[0]),
    ("eval", NAME, "--json"),
    ("eval", NAME, "--index", "b"),
    ("tune", NAME, "--split", "test", "--set", "k1=0.9"),
    ("run", "fuse", *RUNS, "-o", f"f{NAME}.trec"),
    ("run", "overlap", *RUNS),
    ("run", "overlap", *RUNS, "--json"),
    ("run", "word-order", NAME, "--index", "b", "--shuffles", "1"),
    ("datasets", "--data", "."),
    ("datasets", "stats", NAME),
    ("qrels", "pool", NAME, *RUNS, "-o", f"s{NAME}.csv"),
    ("qrels", "eval", NAME, f"s{NAME}.csv", *RUNS),
    ("delete", INDEX, f"{EVIL} 1", EVIL),
]
"""Commands that find nothing wrong."""
WRONG = [
    ("search", f"no{NAME}", "dog"),
    ("search", INDEX, "dog", "--filter", f"{EVIL} = 1"),
    ("search", INDEX, "dog", "-m", EVIL),
    ("search", INDEX, "dog", "--search-params", EVIL),
    ("search", INDEX, "dog", "--combine", EVIL),
    ("search", INDEX, "dog", "--expand", EVIL),
    ("search", INDEX, "--queries", f"no{NAME}", "--output", "x"),
    ("explain", INDEX, "dog", LINES),
    ("index", f"no{NAME}", "-o", "x"),
    ("index", f"{NAME}.jsonl", "-o", INDEX),
    ("index", f"{NAME}.jsonl", "-o", "x", "--format", EVIL),
    ("index", f"{NAME}.jsonl", "-o", "x", "--memory", EVIL),
    ("index", f"{NAME}.jsonl", "-o", "x", "-m", EVIL),
    ("analyze", "x", "-a", EVIL),
    ("eval", f"no{NAME}"),
    ("eval", NAME, "--split", EVIL),
    ("eval", NAME, "--measures", EVIL),
    ("eval", NAME, "--convention", EVIL),
    ("compare", NAME, "--run", f"x{NAME}@y{NAME}={RUNS[0]}"),
    ("compare", NAME, "--report", f"r{NAME}"),
    ("run", "fuse", *RUNS, "-o", "x", "--combine", EVIL),
    ("run", "interleave", *RUNS, "--qrels", f"no{NAME}"),
    ("recipes", "check", EVIL),
    ("datasets", "show", EVIL),
    (EVIL,),
    (f"--{EVIL}",),
    ("search", INDEX, "dog", "-k", EVIL),
    ("search", INDEX, "dog", f"--x{EVIL}"),
]
"""Commands that refuse what they are given."""
EITHER = [("index", f"{NAME}.jsonl", "-o", "x", "--text-field", f"no{NAME}")]
"""Commands that may do either."""


@pytest.mark.usefixtures("evil")
def test_nothing_of_a_users_reaches_the_terminal_live(cli: Cli) -> None:
    for codes, commands in (((0,), FINE), ((2,), WRONG), ((0, 2), EITHER)):
        for command in commands:
            code, out, err = cli(*command)
            assert code in codes, (command[0], ascii(err))
            assert_harmless(out, err)
            assert "Traceback" not in err
    out = cli("search", INDEX, "dog")[1]
    assert "[red]r[/]" in out  # as it is, not in red
    assert "\\x1b[31m" in out


def test_reports_carry_nothing_live(cli: Cli, evil: Path) -> None:
    runs = [f"{NAME}.trec", f"two{NAME}.trec"]
    ends = (".html", ".md", ".csv", ".tex", ".json")
    given = [each for run in runs for each in ("--run", run)]
    written = [each for end in ends for each in ("--report", f"r{end}")]
    code, out, err = cli("compare", NAME, "-m", "bm25,2*bm25", *given, "--no-cache", *written)
    assert code == 0, ascii(err)
    assert_harmless(out, err)
    others = [each for end in ends if end != ".tex" for each in ("--report", f"i{end}")]
    code, out, err = cli("run", "interleave", *runs, "--qrels", NAME, *others, "--cutoffs", "1,2")
    assert code == 0, ascii(err)
    assert_harmless(out, err)
    files = [*evil.glob("r.*"), *evil.glob("i.*")]
    assert len(files) == 9
    for file in files:
        text = file.read_text("utf-8")
        assert_harmless(text if file.suffix != ".html" else text.replace("\n", ""))  # there it is white space
        if file.suffix in (".html", ".md"):
            assert not LIVE.search(re.sub(r"</?b>", "", text)), file
        if file.suffix == ".csv":
            assert not [cell for row in csv.reader(text.splitlines()) for cell in row if re.match(r"[=+@]", cell)]
    assert "&lt;img src=x" in (evil / "r.html").read_text("utf-8")


@given(st.lists(st.text(min_size=1).filter(lambda t: "\0" not in t and t.strip()), min_size=1, unique=True))
@example(["=1+1", "'=1", "'", "''", "-x", "\t=1"])
def test_a_sheet_to_be_judged_computes_nothing_and_reads_back(
    tmp_path_factory: pytest.TempPathFactory, ids: list[str]
) -> None:
    file = tmp_path_factory.mktemp("sheet") / "s.csv"
    rows = [Unjudged(i, i, ("x",)) for i in ids if "\r" not in i]
    write_sheet(file, rows, dict.fromkeys(ids, "=cmd()"), {})
    with file.open(newline="", encoding="utf-8") as sheet:
        table = list(csv.reader(sheet))
    assert not [cell for row in table[1:] for cell in row if cell.lstrip().startswith(tuple("=+-@"))]
    with file.open("w", newline="", encoding="utf-8") as sheet:
        csv.writer(sheet).writerows([table[0], *([*row[:2], "1", *row[3:]] for row in table[1:])])
    assert read_sheet(file)[0].judgements == {row.query: {row.document: 1} for row in rows}
