"""JSON as bytes, written at once."""

from __future__ import annotations

import json
from typing import Any

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode
_encode_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def json_bytes(value: Any) -> bytes:
    """A value as JSON in UTF-8; halves of surrogate pairs, which UTF-8 does not have, are escaped.

    >>> json_bytes({"a": "\\u00e9"}).decode()
    '{"a":"é"}'
    """
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        return _encode_ascii(value).encode()
