"""The analyzer `code`: names in source code, whole and in parts, with their places."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vizsla
from conftest import Cli
from vizsla import Analyzer, Index
from vizsla.datasets.formats.code import LANGUAGES
from vizsla.models import detect_model

CODE = Analyzer.parse("code")


@pytest.mark.parametrize(
    ("name", "terms"),
    [
        ("fetchUserData", "fetchuserdata fetch user data"),
        ("fetch_user_data", "fetchuserdata fetch user data"),
        ("fetch-user-data", "fetchuserdata fetch user data"),
        ("FETCH_USER_DATA", "fetchuserdata fetch user data"),
        ("http_client", "httpclient http client"),
        ("HTTPServer2", "httpserver2 http server 2"),
        ("getURLsFrom", "geturlsfrom get urls from"),
        ("IDs", "ids"),
        ("__init__", "init"),
        ("sha256", "sha256 sha 256"),
        ("is_valid", "isvalid valid"),  # "is" is a stop word
        ("0xFF", "0xff"),
        ("1e5", "1e5"),
        ("2_to_3", "2to3"),
        ("a_" * 40, "a" * 40),
        ("a-1", "1"),
        ("len(x)-y", "len x y"),
        ("user.fetchData", "user fetchdata fetch data"),
        ("std::vector<int>", "std vector int"),
        ("größeÄndern", "größeändern größe ändern"),
        ("ﬁleName", "filename file name"),
        ("名前_x", "名 前 x"),
        ("_ - -- __", ""),
        ("A" * 65, "a" * 65),
        ("aB" * 40, "ab" * 40),
    ],
)
def test_names_are_kept_whole_and_in_parts(name: str, terms: str) -> None:
    assert CODE(name) == terms.split()


@given(st.lists(st.sampled_from(["a", "s", "B", "SS", "É", "e\u0301", "2", "_", "-", ".", " ", "名", "ก", "😀"])))
def test_places_are_those_of_the_text(characters: list[str]) -> None:
    text = "".join(characters)
    tokens = CODE.tokens(text)
    for token in tokens:
        letters = [c for c in text[token.start : token.end] if c not in "_-"]
        assert unicodedata.normalize("NFKC", "".join(letters)).lower() == token.term
    lexicon = CODE.lexicon()
    for _ in range(2):
        numbers, _ = lexicon.encode([text])
        assert [lexicon.terms[n] for n in numbers] == CODE(text) == [token.term for token in tokens]


@pytest.mark.parametrize("positions", [False, True])
def test_code_is_found_by_names_parts_and_phrases(tmp_path: Path, positions: bool) -> None:
    index = vizsla.Index.create(tmp_path / "i", "bm25(analyzer=code)", positions=positions)
    index.add(
        [
            {"id": "js", "text": "const data = await fetchUserData(id);"},
            {"id": "py", "text": "data = fetch_user_data(id)"},
            {"id": "no", "text": "user_fetch = data"},
        ]
    )
    index.commit()
    opened = vizsla.open(tmp_path / "i")
    assert set(opened.search("fetchUserData", 2).ids) == {"js", "py"}
    assert set(opened.search("fetch").ids) == {"js", "py", "no"}
    assert set(opened.search('"fetch user data"', syntax="lucene").ids) == {"js", "py"}
    assert set(opened.search("fetchus*", syntax="lucene").ids) == {"js", "py"}
    snippet = index.highlighter("user").snippet(index.get("js"))  # type: ignore[arg-type]
    assert [snippet.text[a:z] for a, z in snippet.matches] == ["User"]


def test_files_of_source_code_are_analysed_as_such(tmp_path: Path, cli: Cli) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "notes.txt").write_text("The notes of the code.")
    (folder / "a.py").write_text("def fetchUserData(): ...")
    assert "source code" not in cli("index", folder, "-o", tmp_path / "half")[2]
    (folder / "b.py").write_text("class HTTPServer: ...")
    code, _, said = cli("index", folder, "-o", tmp_path / "code")
    assert code == 0
    assert "2 of 3 files are source code: analysed by code, names by their parts; --language or --model" in said
    for name, chosen in (("text", ("--language", "en")), ("named", ("-m", "bm25"))):
        assert "source code" not in cli("index", folder, "-o", tmp_path / name, *chosen)[2]
    for name, ids in (("half", []), ("text", []), ("named", []), ("code", ["a.py"])):
        with Index.open(tmp_path / name) as index:
            assert index.search("user_data").ids == ids
            assert index.search("notes", filter='language = "python"').ids == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_of_source_code_is_none_that_people_speak(language: str) -> None:
    text = "Der Hund und die Katze sind nicht im Garten, sondern auf der Straße vor den alten Häusern."
    assert detect_model([{"text": text, "language": language}] * 3).languages[0].code == "de"
