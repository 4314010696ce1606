"""Search engines side by side, on the same documents and queries, alternating in one run.

    python bench/engines.py DATA... --peers PYTHON [--k 10,100,1000] [--rounds 5] [--out FOLDER]

DATA: folders made by bench/prepare.py. PYTHON: the peers' interpreter (bench/peers/requirements.txt).
Each engine is a process of its own (bench/peers/serve.py) that keeps its index open; round after round each answers
the same queries, in an order that changes. Our results are compared with exhaustive scoring in every round.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
Answer = dict[str, Any]


class EngineProcess:
    """An engine in a process of its own; it is told what to do and says what came of it."""

    def __init__(self, name: str, python: str, log: Path) -> None:
        self.name = name
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [python, str(HERE / "peers" / "serve.py"), name],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip

    def tell(self, **command: Any) -> Answer:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            return {"ok": False, "reason": f"the process of {self.name} ended with {self._process.wait()}"}
        answer: Answer = json.loads(line)
        return answer

    def quit(self) -> None:
        self.tell(do="quit")
        self._process.wait()
