"""What a server writes to standard error: lines of text, or a JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

from vizsla.harmless import harmless

log = logging.getLogger("vizsla.server")


class JsonLines(logging.Formatter):
    """Formats what is logged as a JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of a record."""
        facts = {"message": record.getMessage()}
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        return json_line(record.levelname.lower(), facts, record.created)


def json_line(level: str, facts: dict[str, Any], moment: float | None = None) -> str:
    """A line of the log as JSON; the time is that of UTC.

    >>> json_line("info", {"message": "Serving."}, 0)
    '{"time": "1970-01-01T00:00:00.000Z", "level": "info", "message": "Serving."}'
    """
    moment = time.time() if moment is None else moment
    written = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))
    return json.dumps({"time": f"{written}.{int(moment * 1000) % 1000:03d}Z", "level": level, **facts})


def set_up(log_format: str) -> None:
    """Let this process log in a format."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else logging.Formatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    log.setLevel(logging.INFO)


def access_line(log_format: str, facts: dict[str, Any]) -> str:
    """The line of a request in the access log; `facts`: client, method, path, status, milliseconds."""
    if log_format == "json":
        return json_line("info", facts)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S")
    asked = f"{facts['client']} {facts['method']} {harmless(facts['path'])}"
    return f"{moment} {asked} {facts['status']} {facts['milliseconds']:.1f} ms"
