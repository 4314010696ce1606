"""Models of plugins in comparisons and in tuning: runs follow the code, and expressions read back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import vizsla
from conftest import Cli
from vizsla import BM25, Model, VizslaError, parse_model
from vizsla.evaluation import Cache
from vizsla.evaluation.systems import cache_key
from vizsla.evaluation.tuning import with_parameter
from vizsla.models import MODELS, expression
from vizsla.spec import code_digest

DOCUMENTS = [
    {"_id": "a", "text": "bee bee bee"},
    {"_id": "b", "text": "ant bee cow"},
    {"_id": "c", "text": "ant ant dog"},
]
PLUGIN = """\
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from neighbour import FACTOR
from vizsla.models import MODELS, BM25, SparseComponent, TermWeightEncoder, field_text
from vizsla.spec import Option, options_of
from vizsla.text.filters import TOKEN_FILTERS, TokenFilter


@dataclass(frozen=True)
class Words(SparseComponent):
    '''Words, counted.'''

    power: float = 1.0
    least: int = 1
    fields: tuple[str, ...] = ("text",)
    namespace: str = "plugin-words"
    name: str = "plugin-words"

    kind: ClassVar[str] = "test-plugin-words"

    @property
    def index_signature(self):
        return self.kind, self.least, self.fields

    def document_encoder(self):
        return TermWeightEncoder(self.namespace, lambda d: Counter(field_text(d, self.fields).split()))

    def query_terms(self, texts, context=None):
        return [{"WORD": FACTOR, "dog": self.power} for text in texts]


@dataclass(frozen=True)
class OwnBM25(BM25):
    '''A BM25 of one's own.'''

    name: str = "own-bm25"

    kind: ClassVar[str] = "test-own-bm25"


MODELS.register("words-of-mine", help=".", options=options_of(Words, power="of dogs", least="words"))(Words)
MODELS.register("own-bm25", help=".", options=options_of(BM25, k1="k1", analyzer="words"))(OwnBM25)


@MODELS.register("least-words", help=".", options=[Option("least", "int", 3)])
def least_words(least=3):
    return Words(least=least, power=0.5, namespace="least", name="least-words")


@TOKEN_FILTERS.register("cut-of-mine", help=".")
def cut():
    return TokenFilter("cut-of-mine", terms=lambda terms: [t[:LETTERS] for t in terms])


LETTERS = 2
"""


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "animals"
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, DOCUMENTS)))
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "bees"}\n')
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\tc\t1\n")
    (folder / "qrels" / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq\tc\t1\n")
    return folder


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A plugin with a module beside it."""
    folder = tmp_path / "plugin"
    folder.mkdir()
    (folder / "neighbour.py").write_text("FACTOR = 1.0\n")
    (folder / "mine.py").write_text(PLUGIN.replace("WORD", "bee"))
    monkeypatch.setenv("VIZSLA_PLUGINS", str(folder / "mine.py"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # two versions within a second have the same time
    return folder / "mine.py"


def figures(dataset: Path, *models: str) -> list[tuple[float, bool]]:
    """nDCG of each model in a comparison in a process of its own, and whether its run was found in the cache."""
    code = (
        "import sys; from pathlib import Path; from vizsla import BeirDataset\n"
        "from vizsla.evaluation import compare; from vizsla.evaluation.systems import Cache\n"
        "from vizsla.models import parse_model\n"
        "models = {m: parse_model(m) for m in sys.argv[2:]}; opened = BeirDataset.open(sys.argv[1])\n"
        "found = compare([(opened, 'test')], models, 'nDCG@10', cache=Cache(Path(sys.argv[1]) / 'kept'))\n"
        "for m in models: print(found.value('animals', m, 'nDCG@10'), found.results['animals', m].cached)\n"
    )
    command = [sys.executable, "-c", code, str(dataset), *models]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return [(float(value), cached == "True") for value, cached in map(str.split, done.stdout.splitlines())]


def test_a_plugin_that_changes_is_searched_again(dataset: Path, plugin: Path) -> None:
    """Its own file and what it imports from beside it count; a model of Vizsla's own is still found."""
    models = ("bm25", "words-of-mine", "bm25(analyzer=standard | lower | cut-of-mine)")
    first = figures(dataset, *models)
    assert [cached for _, cached in first] == [False] * 3
    assert first[1][0] == pytest.approx(0.5)  # bee is three times in a, once in b; dog once in c
    assert figures(dataset, *models) == [(value, True) for value, _ in first]
    plugin.write_text(PLUGIN.replace("WORD", "ant").replace("LETTERS = 2", "LETTERS = 1"))
    second = figures(dataset, *models)
    assert [cached for _, cached in second] == [True, False, False]
    assert second[1][0] == 1.0
    (plugin.parent / "neighbour.py").write_text("FACTOR = -1.0\n")
    third = figures(dataset, *models)
    assert [cached for _, cached in third] == [True, False, False]
    assert third[1][0] != second[1][0]
    (plugin.parent / "stranger.py").write_text("A file that the plugin does not import.\n")
    assert figures(dataset, *models) == [(value, True) for value, _ in third]


def test_the_command_compares_the_plugin_as_it_is(dataset: Path, plugin: Path, tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "vizsla", "compare", str(dataset), "-m", "words-of-mine", "--json"]

    def value() -> float:
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return next(f["value"] for f in json.loads(done.stdout)["figures"] if f["measure"] == "nDCG@10")

    before = value()
    plugin.write_text(PLUGIN.replace("WORD", "ant"))
    assert (before, value()) == (pytest.approx(0.5), 1.0)


def test_a_package_is_known_by_all_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "acme_words"
    (package / "deep").mkdir(parents=True)
    files = {"__init__.py": "", "plugin.py": "from acme_words.deep import x\n", "deep/__init__.py": "x = 1\n"}
    for name, text in files.items():
        (package / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    __import__("acme_words.plugin")
    from vizsla.spec import plugins

    digests = [code_digest("acme_words.plugin")]
    for name in files:
        (package / name).write_text("y = 2\n")
        assert code_digest("acme_words.plugin") == digests[-1]  # the code that runs is the code that was loaded
        plugins.note_code("acme_words.plugin")
        digests.append(code_digest("acme_words.plugin"))
    assert len(set(digests)) == 4


def test_code_that_is_in_no_file_is_not_cached(dataset: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = type("Typed", (BM25,), {"__module__": "typed_into_a_shell"})
    assert cache_key("d", typed(), 10, False) is None
    assert cache_key("d", BM25(), 10, False) is not None
    opened, cache = vizsla.BeirDataset.open(dataset), Cache(dataset / "kept")
    monkeypatch.setattr("vizsla.evaluation.systems.cache_key", lambda *_: None)
    for _ in range(2):
        found = vizsla.compare([(opened, "test")], {"bm25": BM25()}, "nDCG@10", cache=cache)
        assert not found.results["animals", "bm25"].cached


@pytest.fixture
def loaded(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin in this process; its names go with the test."""
    from vizsla.models.model import COMPONENTS
    from vizsla.text import TOKEN_FILTERS

    monkeypatch.syspath_prepend(str(plugin.parent))
    monkeypatch.delitem(sys.modules, "neighbour", raising=False)
    monkeypatch.delenv("VIZSLA_PLUGINS")
    for registry in (MODELS, COMPONENTS, TOKEN_FILTERS):
        registry.names()
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
    monkeypatch.setenv("VIZSLA_PLUGINS", str(plugin))


@pytest.mark.usefixtures("loaded")
@pytest.mark.parametrize(
    "text",
    [
        "words-of-mine", "words-of-mine(power=2.5, least=4)", "own-bm25", "own-bm25(k1=1.5)", "least-words(least=2)",
        "own-bm25(k1=1.5) + 0.5 * words-of-mine(power=2)",
    ],
)  # fmt: skip
def test_models_of_plugins_are_expressions(text: str) -> None:
    assert expression(parse_model(text)) == text


@pytest.mark.usefixtures("loaded")
def test_what_a_plugin_gives_no_option_for_is_no_expression(tmp_path: Path) -> None:
    model = parse_model("words-of-mine")
    made: Model = type(model)(namespace="another")  # type: ignore[call-arg]
    with pytest.raises(VizslaError, match="cannot be written as an expression; save the model"):
        expression(made)
    made.save(tmp_path / "saved")
    assert Model.load(tmp_path / "saved") == made


@pytest.mark.usefixtures("loaded")
def test_a_plugin_is_tuned(cli: Cli, dataset: Path) -> None:
    code, out, err = cli("tune", dataset, "-m", "words-of-mine", "--set", "power=0.5,4", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert (result["model"], result["tried"]) == ("words-of-mine(power=4)", 2)
    assert result["before"] < result["after"] == 1.0
    summed = ("tune", dataset, "-m", "bm25 + words-of-mine(power=4)", "--json", "--set", "plugin-words.weight=0,2")
    assert json.loads(cli(*summed)[1])["model"] == "bm25 + 2 * words-of-mine(power=4)"
    assert "has neither k1 and b nor weights; name an option" in cli("tune", dataset, "-m", "words-of-mine")[2]
    refused = cli("tune", dataset, "-m", "words-of-mine", "--set", "least=1,2")
    assert "least of plugin-words changes what an index stores" in refused[2].replace("\n", " ")
    with pytest.raises(VizslaError, match=r"least of plugin-words is a whole number, not 1\.5"):
        with_parameter(parse_model("words-of-mine"), "least", 1.5)
    with pytest.raises(VizslaError, match="unknown parameter 'k1'; known: power, least, weight"):
        with_parameter(parse_model("words-of-mine"), "k1", 1.5)
