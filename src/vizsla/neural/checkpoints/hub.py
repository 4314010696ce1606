"""How a model of the model hub is named."""

from __future__ import annotations

HUB = "hf:"
"""What stands before a name on the model hub, as in `hf:org/name`."""
