"""Schemathesis over all routes of the API, as its description has them: a server of its own, with keys and collections.

    make schemathesis        # in an environment of its own
    python tests/schemathesis_api.py --schemathesis PATH --examples 50

Runs twice: with the names of an index and of a collection that are there, and with names that it thinks of itself. Ends
with 1 if an answer is a server error, has another shape or type than described, or ignores a missing key.
"""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
import tempfile
from pathlib import Path

from served import build, running

NAMES = """
[parameters]
"path.index" = "dogs"
"path.docid" = "1"

[[operations]]
include-path = "/v1/{index}"
include-method = ["PUT", "PATCH", "DELETE"]
parameters = { "path.index" = "coming" }
"""
KEY = """
[[operations]]
include-path = "/v1/{index}/documents"
[operations.checks.negative_data_rejection]  # no documents are none, and it takes unknown headers for wrong ones
enabled = false

[auth.openapi.key]
api_key = "%s"

[checks.not_a_server_error]  # 503: a commit that is asked for does not come; 507: a quota that it has set itself
expected-statuses = ["2xx", "3xx", "4xx", 503, 507]
"""
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
    "response_headers_conformance,ignored_auth,unsupported_method,allow_header_conformance,missing_required_header,"
    "negative_data_rejection"
)
DOGS = [{"id": str(n), "text": f"dog {n} barks", "title": f"Dog {n}", "year": 1990 + n} for n in range(20)]


def run(schemathesis: str, folder: Path, examples: int, seed: int) -> bool:
    """Run it; whether all is well."""
    dogs = build(folder / "dogs.index", DOGS)
    key, keys = secrets.token_hex(16), folder / "keys"
    keys.touch(0o600)
    keys.write_text(f"admin {key}\nread {secrets.token_hex(16)}\n")
    is_well = True
    given = (dogs, "--write", "--keys", keys, "--collections", folder / "collections", "--quiet")
    with running(*given, "--limits", "seconds=20") as server:
        for names in (NAMES, ""):
            config = folder / "schemathesis.toml"
            config.write_text(names + KEY % key)
            command = [
                schemathesis, "--config-file", config, "run", f"{server.client.url}/openapi.json", "--checks", CHECKS,
                "--max-examples", examples, "--seed", seed, "--phases",
                "examples,coverage,fuzzing", "--workers", 1,
            ]  # fmt: skip
            is_well &= subprocess.run(list(map(str, command)), cwd=folder, check=False).returncode == 0
        answer = server.client.send("GET", "/v1/dogs", headers={"x-api-key": key})
        is_well &= (answer.status, answer.data.get("status")) == (200, "ready")
        told = [line for line in server.log if "Traceback" in line or "unexpected" in line]
        is_well &= server.stop() == 0
    print(*told, sep="\n")
    return is_well and not told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemathesis", default="schemathesis", help="where the command is")
    parser.add_argument("--examples", type=int, default=50, help="for each route")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vizsla-schemathesis-") as folder:
        sys.exit(not run(options.schemathesis, Path(folder), options.examples, options.seed))


if __name__ == "__main__":
    main()
