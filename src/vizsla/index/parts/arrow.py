"""The optional package pyarrow, which writes and reads parts."""

from __future__ import annotations

from typing import Any

from vizsla.errors import VizslaError


def pyarrow() -> Any:
    """The package with its modules for Parquet, streams and computing; raises an error if it is not installed."""
    try:
        import pyarrow as package
        import pyarrow.compute
        import pyarrow.ipc
        import pyarrow.parquet
    except ImportError:
        raise VizslaError(
            "parts are Parquet files, which need pyarrow; get it with: pip install 'vizsla[parquet]'"
        ) from None
    return package
