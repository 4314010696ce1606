"""Names with options: one notation for all of them, and registries of what there is."""

from __future__ import annotations

from vizsla.spec.notation import Call, WeightedCall, format_call, parse_call, parse_options, parse_sum, split_options
from vizsla.spec.plugins import code_digest, is_plugin, load_plugins
from vizsla.spec.registry import Entry, Option, Registry, options_of, with_defaults

__all__ = [
    "Call",
    "Entry",
    "Option",
    "Registry",
    "WeightedCall",
    "code_digest",
    "format_call",
    "is_plugin",
    "load_plugins",
    "options_of",
    "parse_call",
    "parse_options",
    "parse_sum",
    "split_options",
    "with_defaults",
]
