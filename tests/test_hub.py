"""Models on the model hub, which a stand-in plays, and model cards."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from conftest import Cli
from small import small_model
from vizsla import LearnedSparse, Model, VizslaError, parse_model
from vizsla.models.card import write_card
from vizsla.models.saving import save_model

hub = pytest.importorskip("huggingface_hub")


class StandIn:
    """A hub in a folder: what snapshot_download does with it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def snapshot(self, name: str, allow_patterns: list[str]) -> str:
        if not (self.root / name).is_dir():
            raise OSError("404 Client Error\nand more")
        fetched = self.root / "fetched" / name
        for file in hub.utils.filter_repo_objects(
            [p.relative_to(self.root / name).as_posix() for p in (self.root / name).rglob("*") if p.is_file()],
            allow_patterns=allow_patterns,
        ):
            (fetched / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.root / name / file, fetched / file)
        return str(fetched)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(tmp_path / "hub")
    monkeypatch.setattr(hub, "snapshot_download", made.snapshot)
    return made


@pytest.fixture
def small(tmp_path: Path) -> LearnedSparse:
    return small_model(tmp_path / "network")


def test_opened_by_name(stand_in: StandIn, small: LearnedSparse) -> None:
    save_model(small, stand_in.root / "me" / "mine")
    there = {p.name for p in (stand_in.root / "me/mine").rglob("*")}
    assert {"model.json", "README.md", "modules.json", "unicoil_module.py"} <= there
    opened = parse_model("hf:me/mine")
    assert opened == small
    assert opened.query_terms(["dogs bark"]) == small.query_terms(["dogs bark"])  # type: ignore[attr-defined]
    assert [p.weight for p in parse_model("bm25 + 0.5 * hf:me/mine").parts] == [1.0, 0.5]


@pytest.mark.usefixtures("stand_in")
def test_what_cannot_be_opened_by_name() -> None:
    with pytest.raises(VizslaError, match=r"hf|nobody/has: no model of this name was fetched from the model hub \(404"):
        parse_model("hf:nobody/has")
    with pytest.raises(VizslaError, match="takes no options"):
        parse_model("hf:me/mine(length=3)")


def test_saved_by_the_command_line(small: LearnedSparse, tmp_path: Path, cli: Cli) -> None:
    small.save(tmp_path / "from")
    code, out, err = cli("models", "save", tmp_path / "from", "-o", tmp_path / "to", "--json")
    assert (code, json.loads(out)["sparse_encoder"]) == (0, True), err
    assert Model.load(tmp_path / "to") == small
    code, _, err = cli("models", "save", "bm25", "-o", tmp_path / "to")
    assert (code, "this exists and is not an empty folder" in err) == (2, True)
    code, _, err = cli("models", "save", "bm25(k1=1.2)", "-o", tmp_path / "bm25")
    assert (code, err) == (0, f"bm25(k1=1.2) written to {tmp_path / 'bm25'}\n")


def test_cards(small: LearnedSparse, tmp_path: Path) -> None:
    parse_model("bm25 + 2 * bm25(fields=title, namespace=title)").save(tmp_path)
    text = (tmp_path / "README.md").read_text()
    assert "| 1 | bm25 | title, text |\n| 2 | bm25 | title |" in text
    assert "SparseEncoder" not in text
    save_model(small, tmp_path / "small")
    text = (tmp_path / "small" / "README.md").read_text()
    assert 'SparseEncoder("FOLDER", trust_remote_code=True)' in text
    assert "read it before you trust it" in text
    (tmp_path / "README.md").write_text("# Written by hand\n")
    write_card(tmp_path, "me/mine")
    assert (tmp_path / "README.md").read_text() == "# Written by hand\n"


@pytest.mark.parametrize("text", ["hf:me/mine", "bm25 + hf:me/mine", "splade(checkpoint=hf:me/mine)"])
def test_a_request_to_a_server_fetches_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fastapi")
    from vizsla.server.requested_models import RequestedModels

    monkeypatch.setattr(hub, "snapshot_download", lambda *_, **__: pytest.fail("something was fetched"))
    with pytest.raises(VizslaError):
        RequestedModels(parse_model("bm25"), {}).model(text)
