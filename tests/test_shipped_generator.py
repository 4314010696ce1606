"""The query generator of Vizsla's own, and what is said where its weights, or the augmenter's, are not installed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType

import pytest

from conftest import Cli
from vizsla import Analyzer, VizslaError
from vizsla.models import Augmenter, augmenter, generator
from vizsla.models.generator import SHIPPED_GENERATOR, Sampling, open_generator

PASSAGES = {
    "1": "The vizsla is a hunting dog from Hungary. It points at birds and retrieves them, on land and from water. Its "
    "coat is short and golden. The breed nearly died out after the Second World War.",
    "2": "Homeowners insurance usually covers damage by fire, wind and theft. It does not cover floods, for which a "
    "separate policy is needed.",
}


@pytest.fixture(autouse=True)
def _onnx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIZSLA_RUNTIME", "onnx")


def test_its_queries_are_about_their_document() -> None:
    generator, analyze = open_generator(), Analyzer.parse("lucene-english")
    assert generator.name == SHIPPED_GENERATOR
    texts = list(PASSAGES.values())
    generated = generator.generate(texts, Sampling(texts=20, max_tokens=24), keys=list(PASSAGES))
    words = [set(analyze(text)) for text in texts]
    for queries, own, other in zip(generated, words, reversed(words), strict=True):
        shared = sum(len(own & set(analyze(query))) for query in queries)
        foreign = sum(len(other & set(analyze(query))) for query in queries)
        assert shared > 20, "at least one word of the document a query"
        assert shared > 4 * foreign
        assert len(set(queries)) > 5, "queries differ"


def test_expand_uses_it_by_default(tmp_path: Path, cli: Cli) -> None:
    source, output = tmp_path / "documents.jsonl", tmp_path / "expanded.jsonl"
    source.write_text("".join(json.dumps({"_id": key, "text": text}) + "\n" for key, text in PASSAGES.items()))
    code, _, err = cli("queries", "generate", source, "-o", output, "--queries", 3, "--max-tokens", 16)
    assert code == 0, err
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [len(row["queries"]) for row in rows] == [3, 3]
    assert all(query.strip() for row in rows for query in row["queries"])


@pytest.mark.parametrize("module", [generator, augmenter], ids=["generator", "augmenter"])
def test_the_error_names_what_to_install_from_a_clone(
    module: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHIPPED", tmp_path)
    with pytest.raises(VizslaError, match="are not installed") as said:
        open_generator() if module is generator else Augmenter.load("general")
    (folder,) = re.findall(r"\(in a clone of Vizsla: pip install \./(\S+) onnxruntime\)", str(said.value))
    assert (Path(__file__).parents[1] / folder / "pyproject.toml").is_file()
