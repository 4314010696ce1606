"""The API holds what its description says, and garbage does not bring it down."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case

from fuzz import fuzz
from served import Client, build, served
from vizsla.server.settings import Limits
from waiting import eventually

DOCUMENTS = [
    {"id": str(n), "title": f"Dog {n}", "text": f"a dog number{n} barks", "year": 1990 + n % 3} for n in range(30)
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = build(tmp_path_factory.mktemp("fuzz") / "dogs.index", DOCUMENTS)
    with served({"dogs": folder}, write=True, limits=Limits(seconds=0.5)) as client:
        yield client


def test_garbage(client: Client) -> None:
    seen, wrong = fuzz(client.url, 600, seed=7)
    assert wrong == []
    assert seen["200"] > 10
    assert seen["400"] > 50
    eventually(lambda: client.get("/v1/dogs/search", query="dog").status == 200)


@pytest.fixture(scope="module")
def api(client: Client) -> schemathesis.Schema:
    return schemathesis.openapi.from_url(f"{client.url}/openapi.json")


READS = ("/search", "/explain", "/terms", "/suggest", "/{index}", "/indexes", "/healthz", "/readyz", "/{docid}")


def test_answers_are_as_described(api: schemathesis.Schema) -> None:
    """Requests that follow the description get answers that follow it; no answer is a mistake of the server."""
    tried = set()
    for result in api.get_all_operations():
        operation = result.ok()
        if operation.method.upper() not in ("GET", "POST") or not operation.path.endswith(READS):
            continue
        tried.add((operation.method, operation.path))

        @given(case=operation.as_strategy(), known=st.booleans())
        @settings(
            max_examples=25, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        def check(case: Case, known: bool) -> None:
            if known and case.path_parameters and "index" in case.path_parameters:
                case.path_parameters["index"] = "dogs"
            response = case.call()
            assert response.status_code != 500, response.text
            case.validate_response(
                response,
                checks=[
                    schemathesis.checks.response_schema_conformance,
                    schemathesis.checks.content_type_conformance,
                ],
            )

        check()
    assert len(tried) >= 9


def test_the_fuzzer_sees_mistakes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that cannot fail is worth nothing: with a broken engine the fuzzer finds 500."""
    from vizsla import Index

    folder = build(tmp_path / "x.index", DOCUMENTS)
    with served({"x": folder}, limits=Limits(seconds=0.5)) as client:
        monkeypatch.setattr(Index, "search_many", lambda *_, **__: 1 / 0)
        _, wrong = fuzz(client.url, 300, seed=1)
    assert wrong
