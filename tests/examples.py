"""How many examples a random test tries: as many as the profile says, or a part of them where each takes long."""

from __future__ import annotations

from hypothesis import settings


def part_of_examples(part: float, **options: object) -> settings:
    """Settings for a part of the profile's examples, which are 20, and 200 in `make test-slow`."""
    return settings(max_examples=max(1, round(part * settings().max_examples)), **options)  # type: ignore[arg-type]
