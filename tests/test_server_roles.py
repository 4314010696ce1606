"""Which key each route of the API needs: the table of docs/serving.md, the description of the API, and what happens.

    python tests/test_server_roles.py

writes the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from served import Client, build, served
from vizsla.server.app import create_app, roles
from vizsla.server.settings import Keys, Settings

PAGE = Path(__file__).parents[1] / "docs" / "serving.md"
BEGIN, END = "<!-- routes by key -->\n", "<!-- end -->\n"
ORDER = ["none", "read", "judge", "write", "admin"]
KEYS = {role: f"a-key-that-may-{role}" for role in ORDER[1:]}


def table() -> str:
    """The routes by the key that they need at least."""
    lines = ["| at least | routes |", "|---|---|"]
    for role in ORDER:
        routes = sorted((path, method) for (method, path), needed in roles().items() if needed == role)
        told = {"none": "no key, ever", "admin": "an `admin` key"}.get(role, f"a `{role}` key")
        lines.append(f"| {told} | {', '.join(f'`{method} {path}`' for path, method in routes)} |")
    return "\n".join(lines) + "\n"


def test_the_table_of_the_docs() -> None:
    text = PAGE.read_text()
    assert text[text.index(BEGIN) + len(BEGIN) : text.index(END)] == table(), "run python tests/test_server_roles.py"


def test_the_description_of_the_api() -> None:
    schema = create_app_schema()
    assert set(schema["components"]["securitySchemes"]) == {"bearer", "key"}
    described = {(method.upper(), path): o for path, some in schema["paths"].items() for method, o in some.items()}
    assert {route: operation["x-role"] for route, operation in described.items()} == roles()
    by_key: list[dict[str, Any]] = [{"bearer": []}, {"key": []}]
    expected = {"none": [], "read": [{}, *by_key], "judge": by_key, "write": by_key, "admin": by_key}
    assert all(operation["security"] == expected[operation["x-role"]] for operation in described.values())


def test_the_description_has_each_status() -> None:
    paths = create_app_schema()["paths"]
    described = {(m.upper(), path): o["responses"] for path, some in paths.items() for m, o in some.items()}
    assert all("default" not in responses for responses in described.values())
    assert set(described["GET", "/healthz"]) == {"200"}
    assert set(described["GET", "/v1/indexes"]) == {"200", "400", "401", "421", "429", "500", "503", "504"}
    add = {"200", "400", "401", "403", "404", "408", "409", "413", "421", "422", "429", "500", "503", "504", "507"}
    assert set(described["POST", "/v1/{index}/documents"]) == add
    schemas = {s: r["content"]["application/json"]["schema"] for s, r in described["GET", "/readyz"].items()}
    assert schemas == {key: {"$ref": "#/components/schemas/StatusAnswer"} for key in ("200", "503")}


def test_a_refused_method_is_told_all_others(client: Client) -> None:
    allowed = {
        path: client.send("OPTIONS", path).headers["allow"]
        for path in ("/v1/dogs", "/v1/indexes", "/v1/dogs/search", "/docs", "/openapi.json")
    }
    assert allowed == {
        "/v1/dogs": "DELETE, GET, PATCH, PUT",
        "/v1/dogs/search": "GET, POST",
        "/docs": "GET",
        "/v1/indexes": "GET",
        "/openapi.json": "GET, HEAD",
    }


def create_app_schema() -> Any:
    from starlette.testclient import TestClient

    with TestClient(create_app(Settings(hosts=("testserver",)))) as client:
        return client.get("/openapi.json").json()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("roles")
    dogs = build(folder / "dogs.index", [{"id": "1", "text": "a dog"}])
    keys = Keys(**{role: (key,) for role, key in KEYS.items()})
    with served({"dogs": dogs}, write=True, keys=keys, collections=str(folder / "collections")) as client:
        yield client


@pytest.mark.parametrize("route", sorted(roles()), ids=" ".join)
def test_what_each_key_may_do(client: Client, route: tuple[str, str]) -> None:
    """Every route refuses those who may less than it needs, before it looks at the request, and lets others pass."""
    (method, path), needed = route, roles()[route]
    name = "coming" if needed == "admin" else "dogs"
    address = path.format(index=name, docid="1")
    for role in ORDER:
        asker = client if role == "none" else client.with_headers(x_api_key=KEYS[role])
        status = asker.send(method, address, None if method in ("GET", "DELETE") else {}).status
        if ORDER.index(role) >= ORDER.index(needed):
            assert status not in (401, 403), (role, status)
        else:
            assert status == (401 if role == "none" else 403), (role, status)
    if needed == "admin":
        client.with_headers(x_api_key=KEYS["admin"]).send("DELETE", "/v1/coming")


def write() -> None:
    text = PAGE.read_text()
    start, end = text.index(BEGIN) + len(BEGIN), text.index(END)
    PAGE.write_text(text[:start] + table() + text[end:])


if __name__ == "__main__":
    write()
