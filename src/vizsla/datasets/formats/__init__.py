"""The formats of files that documents are read from, one file each; see `vizsla.datasets.source_format`."""

from __future__ import annotations
