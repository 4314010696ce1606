"""JSON and YAML from others: what is nested too deeply is told in one sentence that names the file."""

from __future__ import annotations

import ast
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import vizsla
from vizsla import Index, Model, VizslaError, parse_model
from vizsla.errors import CollectionError, InputError
from vizsla.index import verify
from vizsla.neural.network import Network
from vizsla.plain_data import MAX_LEVELS, parse_json, parse_settings, parse_yaml
from vizsla.recipes import load_recipe
from vizsla.text import WordPiece
from vizsla.training import load_training_recipe

LEVELS = [MAX_LEVELS + 1, 960, 20_000]  # Python itself reads some of them, or none, as its stack is


def nested(levels: int) -> str:
    return f'{{"x": {"[" * levels}{"]" * levels}}}'


def written(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file.parent


def modules(folder: Path, text: str) -> object:
    written(folder / "config.json", '{"model_type": "bert"}')
    return parse_model(str(written(folder / "modules.json", text)))


READERS: dict[str, Callable[[Path, str], object]] = {
    "config.json": lambda folder, text: parse_model(str(written(folder / "config.json", text))),
    "modules.json": modules,
    "model.json": lambda folder, text: Model.load(written(folder / "model.json", text)),
    "tokenizer.json": lambda folder, text: WordPiece(text.encode(), str(folder / "tokenizer.json")),
    "network.json": lambda folder, text: Network.open(written(folder / "network.json", text)),
    "recipe.yaml": lambda folder, text: load_recipe(str(written(folder / "recipe.yaml", text) / "recipe.yaml")),
    "training.yaml": lambda folder, text: load_training_recipe(
        str(written(folder / "training.yaml", text) / "training.yaml")
    ),
}


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("reader", READERS)
def test_a_deeply_nested_file_is_refused(reader: str, levels: int, tmp_path: Path) -> None:
    with pytest.raises(VizslaError) as caught:
        READERS[reader](tmp_path / "model", nested(levels))
    assert str(tmp_path) in str(caught.value)
    assert len(str(caught.value)) < 400


def test_levels() -> None:
    inside = "[" * (MAX_LEVELS - 1) + "]" * (MAX_LEVELS - 1)
    assert parse_settings(f'{{"x": {inside}}}')
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_settings(nested(MAX_LEVELS + 1))
    assert parse_json(nested(MAX_LEVELS + 1))
    with pytest.raises(InputError, match=r"x.yaml: this is not YAML \(nested too deeply\)"):
        parse_yaml("a: &a [*a]", "x.yaml")  # a list that is in itself


@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("place", ["meta", "segments"])
def test_a_deeply_nested_description_of_an_index_is_damage(place: str, levels: int, tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": "1", "text": "dogs"}])
        index.commit()
    db = sqlite3.connect(tmp_path / "i" / "index.db")
    change = (
        "UPDATE meta SET value = ? WHERE key = 'model'" if place == "meta" else "UPDATE segments SET statistics = ?"
    )
    db.execute(change, (nested(levels),))
    db.commit()
    db.close()
    with pytest.raises(CollectionError, match="is damaged"):
        Index.open(tmp_path / "i")
    assert verify(tmp_path / "i") != []


def test_no_other_module_parses_json_or_yaml() -> None:
    """Others would have to think of deep nesting, too. Two decoders for many small texts do, and are tested for it."""
    root = Path(vizsla.__file__).parent
    parsers = {"json.loads", "json.load", "yaml.safe_load", "yaml.load"}
    for file in sorted(root.rglob("*.py")):
        if not any(name in file.read_text("utf-8") for name in parsers):
            continue
        names = {
            f"{node.value.id}.{node.attr}"
            for node in ast.walk(ast.parse(file.read_text("utf-8")))
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
        }
        if file != root / "plain_data.py":
            assert not names & parsers, file


# Numbers of documents


def explained(index: Index) -> object:
    return [index.explain("dogs", str(n)) for n in range(9)]


@pytest.mark.parametrize(
    "ask",
    [
        explained,
        lambda index: [index.explain("dogs -cats", str(n), syntax="lucene") for n in range(9)],
        lambda index: [index.explain("dogs", str(n), "year = 1999") for n in range(9)],
    ],
)
def test_numbers_of_documents_that_are_damaged_are_told(ask: Callable[[Index], object], tmp_path: Path) -> None:
    with Index.create(tmp_path / "i") as index:
        index.add([{"id": str(n), "text": "dogs", "year": 1999} for n in range(9)])
        index.commit()
    (file,) = (tmp_path / "i" / "segments").rglob("numbers*.npy")
    data = bytearray(file.read_bytes())
    data[-4 * 7 : -4 * 6] = (1000).to_bytes(4, "little")  # the third of nine, now behind all that follow
    file.write_bytes(data)
    with Index.open(tmp_path / "i") as index, pytest.raises(CollectionError, match="a segment is damaged"):
        ask(index)
