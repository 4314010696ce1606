"""Checks of what one request asks for."""

from __future__ import annotations

from collections.abc import Sequence

from vizsla.server.errors import RequestError
from vizsla.server.settings import Limits


def check_page(limits: Limits, k: int, offset: int) -> None:
    """Refuse more results than the server gives."""
    if k < 0:
        raise RequestError(f"k, the number of results, must be 0 or more, not {k}")
    if k > limits.k:
        raise RequestError(f"k is {k}, and this server gives at most {limits.k} results")
    if offset < 0:
        raise RequestError(f"offset must be 0 or more, not {offset}")
    if offset > limits.offset:
        raise RequestError(f"offset is {offset}, and this server goes to at most {limits.offset}")


def check_query_text(limits: Limits, query: str) -> str:
    """Refuse a query that is too long or has no word."""
    if len(query) > limits.query_characters:
        raise RequestError(f"the query has {len(query)} characters, and this server reads {limits.query_characters}")
    if not query.strip():
        raise RequestError("the query is empty; give at least one word")
    return query.encode("utf-8", "replace").decode() if not query.isprintable() else query


def check_queries_count(limits: Limits, queries: Sequence[str], results: int) -> None:
    """Refuse more queries than one request may have, and more results over all of them."""
    if not queries:
        raise RequestError("there is no query; give query, queries or like")
    if len(queries) > limits.queries:
        raise RequestError(f"there are {len(queries)} queries, and this server answers {limits.queries} a request")
    if len(queries) > 1 and len(queries) * results > limits.results:
        raise RequestError(
            f"{len(queries)} queries with {results} results each are {len(queries) * results}, and this server gives "
            f"at most {limits.results} a request; send fewer queries at a time"
        )
