"""Getting a browser for the tests of the page, on machines that are not here."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest

import browser

Runs = list[list[str]]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    """A machine without a browser, where root may install one; the commands that are run."""
    commands: Runs = []

    def run(command: list[str], **_: Any) -> Any:
        commands.append(command)
        return subprocess.CompletedProcess(command, 100 if "apt-get" in command else 0, "", "E: no network\n")

    monkeypatch.setattr(browser.subprocess, "run", run)
    monkeypatch.setattr(browser, "_playwrights_own", lambda: iter(()))
    monkeypatch.setattr(browser.os, "geteuid", lambda: 0)
    on_the_machine(monkeypatch, "apt-get")
    monkeypatch.delenv("CI", raising=False)
    return commands


def on_the_machine(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}" if name in names else None)


def test_a_browser_that_is_there_is_taken(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    on_the_machine(monkeypatch, "google-chrome", "apt-get")
    browser.main()
    assert runs == [["/usr/bin/google-chrome", "--version"]]


def test_root_gets_debians(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    run = browser.subprocess.run

    def installs(command: list[str], **options: Any) -> Any:
        run(command, **options)
        if "install" in command:
            on_the_machine(monkeypatch, "apt-get", "chromium")
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(browser.subprocess, "run", installs)
    browser.main()
    assert [command[-1] for command in runs] == ["update", "chromium", "--version"]
    assert {command[0] for command in runs[:2]} == {"apt-get"}


@pytest.mark.parametrize("root", [True, False])
def test_others_get_playwrights_own(runs: Runs, root: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browser.os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(
        browser, "_playwrights_own", lambda: iter(["/own/chrome"] if any("playwright" in c for c in runs) else [])
    )
    browser.main()
    assert [command[-1] for command in runs] == [*(["update"] if root else []), "chromium", "--version"]
    assert "playwright" in runs[-2]


def test_none_can_be_had(runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Then the tests of the page are skipped, and fail in CI, where nothing may be left out."""
    browser.main()
    assert [command[-1] for command in runs] == ["update", "chromium"]
    said = capsys.readouterr().err
    assert said.startswith("There is no Chromium, so the tests of the page cannot run: apt-get ")
    assert "E: no network" in said
    with pytest.raises(pytest.skip.Exception, match="there is no Chromium"), browser.chromium():
        pass
    monkeypatch.setenv("CI", "true")
    with pytest.raises(SystemExit, match="1"):
        browser.main()
    with pytest.raises(pytest.fail.Exception, match="there is no Chromium"), browser.chromium():
        pass
