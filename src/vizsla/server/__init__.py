"""The server: an HTTP API, a page to search with, and tools for agents."""

from __future__ import annotations
