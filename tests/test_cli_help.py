"""The help of the command line: commands under headings, one name for one thing, what can be named with its options."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from conftest import Cli
from vizsla.cli import models
from vizsla.cli.app import application
from vizsla.cli.commands import COMMANDS
from vizsla.spec import Option, Registry

OWNED_BY_OTHERS = ("recipes", "train")
"""Verbs whose options say what a recipe is, which nothing else takes."""


def commands() -> Iterator[tuple[str, Any]]:
    """Every verb, and every verb of a group, with the command behind it."""
    for name, command in typer.main.get_command(application()).commands.items():  # type: ignore[attr-defined]
        yield name, command
        for inner, other in getattr(command, "commands", {}).items():
            yield f"{name} {inner}", other


def parameters() -> dict[str, list[tuple[str, Any]]]:
    """The options of all verbs by their long names."""
    by_name = defaultdict(list)
    for verb, command in commands():
        for parameter in command.params:
            if parameter.param_type_name == "option" and verb.split()[0] not in OWNED_BY_OTHERS:
                by_name[max(parameter.opts, key=len)].append((verb, parameter))
    return by_name


def test_the_help_lists_all_verbs_in_groups_with_one_whole_line_each(cli: Cli) -> None:
    code, out, err = cli("--help")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    positions = [lines.index(f"{heading}:") for heading in COMMANDS]
    assert positions == sorted(positions)
    shown = [line.split()[0] for line in lines[positions[0] :] if line.startswith("  ")]
    assert shown == [name for commands in COMMANDS.values() for name in commands]
    assert [line for line in lines[positions[0] :] if line.endswith("...")] == []


@pytest.mark.parametrize("verb", [name for name, _ in commands()])
def test_every_verb_has_help(cli: Cli, verb: str) -> None:
    code, out, _ = cli(*verb.split(), "--help")
    assert code == 0
    assert out.startswith(f"Usage: vizsla {verb} ")


def test_every_option_has_help_and_the_same_short_name_everywhere() -> None:
    for name, uses in parameters().items():
        assert all(parameter.help for _, parameter in uses), name
        assert len({tuple(sorted(parameter.opts)) for _, parameter in uses}) == 1, name


@pytest.mark.parametrize(
    "name",
    [
        "--json",
        "--data",
        "--filter",
        "--convention",
        "--test",
        "--regex",
        "--limit",
        "--memory",
        "--workers",
        "--expand",
    ],
)
def test_an_option_of_several_verbs_means_the_same(name: str) -> None:
    uses = parameters()[name]
    others = {"serve"}  # its processes answer requests
    assert len(uses) > 1
    assert len({parameter.help for verb, parameter in uses if verb not in others}) == 1


def test_an_index_is_called_index() -> None:
    named = {verb: [p.metavar for p in command.params if p.name == "index"] for verb, command in commands()}
    assert {metavar for metavars in named.values() for metavar in metavars} == {"INDEX"}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("serach", "search"), ("fuse", "run fuse"), ("uplaod", "qdrant upload"), ("run fuze", "run fuse")],
)
def test_a_command_that_does_not_exist_is_refused_with_the_closest(cli: Cli, typed: str, meant: str) -> None:
    code, out, err = cli(*typed.split())
    assert (code, out, err) == (2, "", f"vizsla: there is no command '{typed}'; did you mean 'vizsla {meant}'?\n")


@pytest.mark.parametrize(
    ("typed", "others"),
    [("xyzzy", "'vizsla --help' lists all"), ("qdrant xyzzy", "'vizsla qdrant' has upload, reweigh and revert")],
)
def test_a_command_unlike_any_other_is_refused_with_all_there_are(cli: Cli, typed: str, others: str) -> None:
    code, out, err = cli(*typed.split())
    assert (code, out, err) == (2, "", f"vizsla: there is no command '{typed}'; {others}\n")


@pytest.mark.parametrize("group", [name for name, command in commands() if hasattr(command, "commands")])
def test_the_help_of_a_group_has_one_whole_line_for_each_command(cli: Cli, group: str) -> None:
    _, out, _ = cli(group, "--help")
    assert [line for line in out.partition("Commands:")[2].splitlines() if line.endswith("...")] == []


def test_a_group_alone_shows_its_help(cli: Cli) -> None:
    code, out, err = cli("qdrant")
    assert code in (0, 2)
    assert "Usage: vizsla qdrant" in out + err


TOYS = Registry[str]("toy", example="ball(size=2)")


@TOYS.register(
    "ball",
    help="A ball to fetch.",
    options=(
        Option("size", "float", 2.0, "how large it is"),
        Option("colours", "tuple[str, ...]", ("red", "blue"), "what it looks like"),
        Option("name", "str | None", None, "what it is called"),
    ),
    needs=("numpy|no_such_package", "no_such_package"),
)
def ball(size: float = 2.0, colours: tuple[str, ...] = ("red", "blue"), name: str | None = None) -> str:
    return f"{name} {size} {colours}"


@TOYS.register("stick", help="A stick.", needs=("numpy",))
def stick() -> str:
    return "stick"


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.KINDS, "toy", f"{__name__}:TOYS")


@pytest.mark.usefixtures("toys")
def test_models_lists_what_can_be_named(cli: Cli) -> None:
    code, out, err = cli("models", "--kind", "toy")
    assert code == 0
    _, first, second = (line.split("  ") for line in out.splitlines())
    assert (first[0], second[0]) == ("ball", "stick")
    assert "A ball to fetch." in out
    assert "not installed: no_such_package" in out
    assert "vizsla models show NAME --kind toy" in err
    listed = json.loads(cli("models", "--kind", "toy", "--json")[1])
    assert listed["kind"] == "toy"
    assert [entry["name"] for entry in listed["entries"]] == ["ball", "stick"]


@pytest.mark.usefixtures("toys")
def test_models_shows_the_options_of_one(cli: Cli) -> None:
    code, out, err = cli("models", "show", "ball", "--kind", "toy")
    assert code == 0
    assert "ball: A ball to fetch." in out
    assert "needs numpy or no_such_package and no_such_package (not installed: no_such_package)" in out
    rows = [line.split() for line in out.splitlines()]
    assert ["size", "a", "number", "2", "how", "large", "it", "is"] in rows
    assert "red/blue" in out
    assert "ball(size=2)" in err
    shown = json.loads(cli("models", "show", "ball", "--kind", "toy", "--json")[1])
    assert shown["options"][1] == {
        "name": "colours",
        "type": "tuple[str, ...]",
        "default": ["red", "blue"],
        "help": "what it looks like",
    }
    assert shown["needs"] == ["numpy|no_such_package", "no_such_package"]
    assert "It has no options." in cli("models", "show", "stick", "--kind", "toy")[1]


@pytest.mark.parametrize("kind", models.KINDS)
def test_everything_with_a_name_and_options_can_be_listed(cli: Cli, kind: str) -> None:
    code, out, err = cli("models", "--kind", kind, "--json")
    assert code == 0, err
    listed = json.loads(out)["entries"]
    assert listed
    assert all(entry["name"] and entry["help"] for entry in listed)
    assert cli("models", "show", listed[0]["name"], "--kind", kind)[0] == 0


@pytest.mark.usefixtures("toys")
def test_models_refuses_what_it_does_not_know_in_a_sentence(cli: Cli) -> None:
    code, out, err = cli("models", "show", "bal", "--kind", "toy")
    assert (code, out) == (2, "")
    assert "did you mean 'ball'?" in err
    code, out, err = cli("models", "--kind", "toyy")
    assert (code, out) == (2, "")
    assert "unknown kind 'toyy'" in err
