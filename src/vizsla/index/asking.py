"""A model as it is asked of a collection: its own, or another that reads the same postings in another way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from vizsla.engine import Weightings
from vizsla.errors import VizslaError
from vizsla.models import Component, Model, Part, Statistics


@dataclass(frozen=True, eq=False)
class BoundModel:
    """The parts of a model, the place of each in the collection's namespaces, and how stored values are weighed."""

    parts: tuple[tuple[int, Part], ...]
    weightings: Weightings

    @property
    def dense(self) -> bool:
        """Whether dense vectors are among what is asked."""
        return any(part.component.dimensions for _, part in self.parts)

    @classmethod
    def make(cls, asked: Model, own: Model, statistics: Mapping[str, Statistics]) -> BoundModel:
        """How a collection with a model of its own can be asked with another.

        What is stored are counts and lengths, so k1, b, the variant and the weights of a sum are free, and parts can
        be left out; the analyzer and the fields are not.
        """
        components = [p.component for p in own.parts]
        parts: list[tuple[int, Part]] = []
        for part in asked.parts:
            place = _find(part.component, components, [place for place, _ in parts])
            settled = part.component.with_frozen_statistics(components[place])
            named = replace(settled, namespace=components[place].namespace)  # type: ignore[type-var]
            parts.append((place, Part(part.weight, named)))
        for place, part in parts:
            components[place] = part.component
        weightings = Weightings.pack([c.weighting(statistics[c.namespace]) for c in components])
        return cls(tuple(parts), weightings)


def _find(component: Component, held: list[Component], taken: list[int]) -> int:
    """Where the index has what a component needs and no other part of the model has taken.

    Of several places the one with its namespace.
    """
    places = [
        i for i, other in enumerate(held) if other.index_signature == component.index_signature and i not in taken
    ]
    if not places:
        free = "other weights" if component.dimensions else "other k1, b, variants and weights"
        fixed = "other dense vectors" if component.dimensions else "another analyzer or other fields"
        widths = {other.dimensions for other in held if other.dimensions}
        if component.dimensions and widths and component.dimensions not in widths:
            fixed += f": its own have {' and '.join(map(str, sorted(widths)))} numbers, these {component.dimensions}"
        raise VizslaError(
            f"this index does not have what {component.name!r} reads; it can be asked with {free}, but not with {fixed}"
        )
    return next((i for i in places if held[i].namespace == component.namespace), places[0])
