"""The vectors of an index for other engines."""

from __future__ import annotations

from vizsla.backends.export import export_vectors

__all__ = ["export_vectors"]
