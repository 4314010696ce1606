"""How a network is trained: all there is to choose, as a value."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from vizsla.errors import UnknownNameError, VizslaError

PRECISIONS = ("bfloat16", "float32")
LOSSES = ("contrast", "margins", "binary")


@dataclass(frozen=True)
class Settings:
    """The settings of a run; `Settings().changed("steps=200", "rate=5e-5")` gives others.

    >>> Settings().changed("steps=200", "symmetric=no").steps
    200
    """

    steps: int = 600
    batch: int = 16_384
    chunk: int = 131_072
    """How many tokens are encoded at once; less needs less memory and changes nothing else."""
    kept: int = 0
    """How many chunks of a batch are not encoded twice but keep what the way back needs: faster, for memory."""
    rate: float = 1e-4
    """The highest learning rate, reached after `warmup` steps; from there it falls to `last_rate` of it."""
    warmup: int = 50
    last_rate: float = 0.02
    decay: float = 0.01
    """AdamW's weight decay, of matrices."""
    clip: float = 1.0
    """The longest a gradient may be, over all parameters."""
    loss: str = "contrast"
    """What a query's document is told from others by: a softmax, or a margin of 1 between scores, as in RepBERT;
    cross-encoders also by `binary`, a yes or no for each pair by itself."""
    temperature: float = 1.0
    symmetric: bool = True
    flops_queries: float = 0.0
    flops_documents: float = 0.0
    flops_rise: int = 0
    """Over how many steps the weights of regularisers rise, with the square."""
    added_cost: float = 0.0
    """What an augmenter pays for the terms it adds: the common ones more, unless `uniform_cost`."""
    uniform_cost: bool = False
    precision: str = "bfloat16"
    """What products are made in; processors without 16-bit floats of their own make them in 32 bits all the same."""
    compile: bool = False
    seed: int = 0
    evaluate: int = 50
    """Every how many steps the dev sets are asked."""
    patience: int = 0
    """After how many evaluations without a better one training stops; 0 for never."""
    keep: int = 100
    """Every how many steps a checkpoint is written."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "chunk", "rate", "temperature", "clip", "evaluate", "keep"):
            if not getattr(self, name) > 0:
                raise VizslaError(f"{name} must be more than 0, not {getattr(self, name)}")
        if self.precision not in PRECISIONS:
            raise UnknownNameError("precision", self.precision, PRECISIONS)
        if self.loss not in LOSSES:
            raise UnknownNameError("loss", self.loss, LOSSES)

    def changed(self, *changes: str) -> Settings:
        """The settings with some changed, each given as name=value."""
        kinds: dict[str, Any] = {f.name: type(getattr(self, f.name)) for f in fields(self)}
        new: dict[str, Any] = {}
        for change in changes:
            name, equals, text = (part.strip() for part in change.partition("="))
            if not equals:
                raise VizslaError(f"{change!r} is no setting; expected name=value, as in batch=1024")
            if name not in kinds:
                raise UnknownNameError("setting", name, tuple(kinds))
            new[name] = read_setting(text, kinds[name], name)
        return replace(self, **new)

    def halves(self, device: Any) -> bool:
        """Whether products are made in 16 bits on this device."""
        from vizsla.networks.inference import has_fast_bfloat16

        return self.precision == "bfloat16" and has_fast_bfloat16(device)

    def rate_at(self, step: int) -> float:
        """The learning rate at a step."""
        if step < self.warmup:
            return self.rate * (step + 1) / self.warmup
        past = (step - self.warmup) / max(self.steps - self.warmup, 1)
        return self.rate * max(1 - past * (1 - self.last_rate), self.last_rate)

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def read_setting(text: str, kind: type, name: str) -> Any:
    """A value of some kind from what a person wrote."""
    if kind is bool:
        if text.lower() in ("yes", "true", "1", "no", "false", "0"):
            return text.lower() in ("yes", "true", "1")
        raise VizslaError(f"{name} is yes or no, not {text!r}")
    if kind is str:
        return text
    try:
        return kind(text.replace("_", "")) if kind is int else kind(text)
    except ValueError:
        raise VizslaError(f"{text!r} is no {'whole number' if kind is int else 'number'} for {name}") from None
