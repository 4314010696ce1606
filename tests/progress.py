"""Where a long check is: a line every few seconds, also into a pipe."""

from __future__ import annotations

import time


class Progress:
    """Prints where the work is, at most once in some seconds."""

    def __init__(self, seconds: float = 3) -> None:
        self._seconds = seconds
        self._started = self._checkpoint_options = time.monotonic()

    def tell(self, where: str) -> None:
        now = time.monotonic()
        if now - self._checkpoint_options >= self._seconds:
            self._checkpoint_options = now
            print(f"{now - self._started:6.0f} s  {where}", flush=True)
