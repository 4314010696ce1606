"""What users rely on, written down in tests/snapshots: names and signatures, help, HTTP API, index format, figures.

A test fails when one of them changes. If the change is meant, say so in CHANGELOG.md, then run `make snapshots`.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import importlib
import inspect
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer

import vizsla
from vizsla import Index
from vizsla.cli.app import application
from vizsla.recipes import load_recipe, recipe_names
from vizsla.server.app import create_app
from vizsla.server.settings import Settings

FOLDER = Path(__file__).parent / "snapshots"
PACKAGES = ("datasets", "evaluation", "index", "models", "recipes", "reports", "retrievers", "runs", "text", "training")
"""Packages whose exported names are public, beside those of `vizsla` itself."""


def signature(value: object) -> str:
    try:
        text = str(inspect.signature(value)) if callable(value) else ""
    except ValueError:
        return ""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def members(cls: type) -> Iterator[str]:
    """The public methods and properties of a class, those it inherits from our own classes, too."""
    for name in sorted(n for n in dir(cls) if not n.startswith("_")):
        value = inspect.getattr_static(cls, name)
        owner = next(c for c in cls.__mro__ if name in vars(c))
        if not owner.__module__.startswith("vizsla"):
            continue
        plain = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        kind = type(value).__name__ if isinstance(value, (classmethod, staticmethod)) else ""
        if isinstance(plain, property):
            plain, kind = plain.fget, "property"
        elif not inspect.isfunction(plain):
            continue
        yield f"    {kind or 'def'} {name}{signature(plain)}"


def public_names() -> Iterator[str]:
    for package in ("vizsla", *(f"vizsla.{name}" for name in PACKAGES)):
        yield f"{package}:"
        module = importlib.import_module(package)
        for name in sorted(module.__all__):
            value = getattr(module, name)
            if inspect.isclass(value):
                yield f"  class {name}{signature(value)}"
                yield from members(value) if package == "vizsla" else ()
            else:
                yield f"  {name}{signature(value) if inspect.isfunction(value) else ''}"


def command_help() -> Iterator[str]:
    def texts(command: Any, words: str) -> Iterator[str]:
        context = typer.Context(command, info_name=words)
        context.terminal_width = context.max_content_width = 100
        yield command.get_help(context)
        yield ""
        for name, inner in sorted(getattr(command, "commands", {}).items()):
            yield from texts(inner, f"{words} {name}")

    yield from texts(typer.main.get_command(application()), "vizsla")


def type_of(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words, without what versions of FastAPI say differently."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " | ".join(sorted(type_of(s) for s in schema["anyOf"]))
    kind = str(schema.get("type", "any"))
    return f"{kind}[{type_of(schema['items'])}]" if "items" in schema else kind


def openapi() -> dict[str, Any]:
    """The description that a server without indexes gives."""
    sent: list[Any] = []

    async def request() -> None:
        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"127.0.0.1")]
        scope = {"type": "http", "method": "GET", "path": "/openapi.json", "raw_path": b"/openapi.json"}
        about = {"query_string": b"", "headers": headers, "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}
        await create_app(Settings())({**scope, **about, "scheme": "http", "http_version": "1.1"}, receive, send)

    asyncio.run(request())
    return dict(json.loads(b"".join(message.get("body", b"") for message in sent)))


def http_api() -> Iterator[str]:
    api = openapi()
    for path, methods in sorted(api["paths"].items()):
        for method, route in sorted(methods.items()):
            yield f"{method.upper()} {path} -> {' '.join(sorted(route['responses']))}"
            for parameter in sorted(route.get("parameters", []), key=lambda p: str(p["name"])):
                needed = "" if parameter.get("required") else "?"
                yield f"    {parameter['in']} {parameter['name']}{needed}: {type_of(parameter['schema'])}"
            for kind, body in sorted(route.get("requestBody", {}).get("content", {}).items()):
                yield f"    body {kind}: {type_of(body.get('schema', {}))}"
    for name, schema in sorted(api["components"]["schemas"].items()):
        yield f"{name}:"
        for field, inner in schema.get("properties", {}).items():
            yield f"    {field}{'' if field in schema.get('required', ()) else '?'}: {type_of(inner)}"


def stored_bytes() -> Iterator[str]:
    """An index of fixed documents: its files by their digests, its tables by their rows."""
    for model, options in (
        ("bm25", {"positions": True}),
        ("bm25(fields=title, namespace=titles) + 2 * bm25(fields=text)", {}),
    ):
        with TemporaryDirectory() as folder:
            with Index.create(Path(folder, "i"), model, passages=None, **options) as index:  # type: ignore[arg-type]
                for first in (0, 250):
                    index.add(
                        {
                            "id": f"d{i}",
                            "title": f"Dog {i % 17}",
                            "text": " ".join(f"word{i % n}" for n in range(1, 40)),
                            "year": 2000 + i % 7,
                        }
                        for i in range(first, first + 250)
                    )
                    index.commit()
                index.delete(["d3", "d300"])
                index.commit()
            yield f"{model}:"
            yield from stored_tables(Path(folder, "i"))


def stored_tables(folder: Path) -> Iterator[str]:
    db = sqlite3.connect(folder / "index.db")
    for table, sql in db.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name"):
        yield f"  {table}: {re.sub(r' +', ' ', re.sub(r'--.*', '', sql)).replace(chr(10), '')}"
        if table == "segments":
            for row in db.execute("SELECT * FROM segments ORDER BY generation, documents, id"):
                yield f"    {row[1]} {row[2]} {row[3]}"
                for name, file in json.loads(row[4]).items():
                    yield f"      {name}: {json.dumps(file)}"
        elif table == "meta":
            unlike = ("created", "uuid", "checksums", "vizsla")  # differ from index to index
            rows = db.execute("SELECT key, value FROM meta ORDER BY key").fetchall()
            yield from (f"    {key} {value}" for key, value in rows if key not in unlike)
        else:
            rows = sorted(map(repr, db.execute(f"SELECT * FROM {table}")))
            yield f"    {len(rows)} rows, {hashlib.sha256(''.join(rows).encode()).hexdigest()[:16]}"
    db.close()


def recipe_figures() -> Iterator[str]:
    for name in recipe_names():
        recipe = load_recipe(name)
        yield f"{name}: {recipe.model}"
        for target in recipe.targets:
            yield f"    {target.dataset} {target.split}: {target.all_figures} within {target.tolerance}"


SNAPSHOTS: dict[str, Callable[[], Iterator[str]]] = {
    "names.txt": public_names,
    "help.txt": command_help,
    "http.txt": http_api,
    "index.txt": stored_bytes,
    "recipes.txt": recipe_figures,
}


@pytest.mark.parametrize("name", SNAPSHOTS)
def test_what_users_rely_on_is_as_written_down(name: str) -> None:
    before = (FOLDER / name).read_text().rstrip().splitlines()
    now = "\n".join(SNAPSHOTS[name]()).rstrip().splitlines()
    changes = [line for line in difflib.unified_diff(before, now, lineterm="", n=0) if line[:3] not in ("---", "+++")]
    assert changes == [], "if this is meant, say so in CHANGELOG.md and run `make snapshots`"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for file, lines in SNAPSHOTS.items():
        (FOLDER / file).write_text("\n".join(lines()).rstrip() + "\n")
        print(os.path.relpath(FOLDER / file), file=sys.stderr)
    print(f"snapshots of Vizsla {vizsla.__version__} written", file=sys.stderr)
