"""The weights of doc2query-small, in the folder model. Vizsla reads them by name: vizsla expand."""

from __future__ import annotations
