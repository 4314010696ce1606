"""The weights of doc2query-small, in the folder model. Vizsla reads them by name: vizsla queries generate."""

from __future__ import annotations
