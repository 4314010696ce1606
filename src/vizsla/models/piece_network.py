"""The common base of models whose network reads word pieces."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from vizsla.errors import VizslaError
from vizsla.neural.network import Network
from vizsla.plain_data import fields_from_data
from vizsla.text import Analyzer, WordPiece


class PieceNetwork:
    """A model with a network and the word pieces that it reads, both saved beside its options.

    Subclasses are dataclasses with the fields `network` and `analyzer`.
    """

    network: Network
    analyzer: Analyzer | str

    def __post_init__(self) -> None:
        if isinstance(self.analyzer, str):
            object.__setattr__(self, "analyzer", Analyzer.parse(self.analyzer))
        if not isinstance(self.analyzer, Analyzer) or not isinstance(self.analyzer.tokenizer, WordPiece):
            raise VizslaError(f"a network reads word pieces, and the analyzer {self.analyzer} does not make them")

    @property
    def pieces(self) -> WordPiece:
        assert isinstance(self.analyzer, Analyzer)
        assert isinstance(self.analyzer.tokenizer, WordPiece)
        return self.analyzer.tokenizer

    def vocabulary(self) -> Iterable[str]:
        return self.pieces.vocabulary

    @property
    def batch_size(self) -> int:
        """About a second's work on a CPU, so that progress is visible and Ctrl-C works."""
        return 2000 if self.network.runs_fast else 100

    def __getstate__(self) -> dict[str, Any]:
        """The fields alone: what is computed from them is not sent to other processes."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]

    def options(self, folder: Path) -> dict[str, Any]:
        assert isinstance(self.analyzer, Analyzer)
        return self.__getstate__() | {"analyzer": self.analyzer.save(folder), "network": self.network.save(folder)}

    @classmethod
    def from_options(cls, options: dict[str, Any], folder: Path) -> Self:
        values = fields_from_data(cls, options, network="str", analyzer="str")
        opened = {
            "network": cls.open_network(folder / values["network"]),
            "analyzer": Analyzer.parse(values["analyzer"], folder),
        }
        return cls(**{**values, **opened})

    @classmethod
    def open_network(cls, folder: Path) -> Any:
        """The network that was saved in a folder."""
        return Network.open(folder)
