"""A few of the faults that `python tests/faults.py` tries all of."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faults import library


@pytest.mark.parametrize(("scenario", "step"), [("sparse", 31), ("plaid", 83), ("coil", 83)])
def test_what_is_said_of_a_commit_that_fails_is_true(tmp_path: Path, scenario: str, step: int) -> None:
    made = library(tmp_path)
    if made is None:
        pytest.skip("failing file operations need Linux and a C compiler")
    ran = subprocess.run(
        [sys.executable, Path(__file__).with_name("faults.py"), "--step", str(step), "--only", scenario],
        env={**os.environ, "LD_PRELOAD": str(made), "VIZSLA_FAULTS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "operations failed, and each time what was said was true" in ran.stdout
