"""Tuner rules for NCCL: the CSV file, its checks, and the C plugin that applies it (2.22+)."""

from __future__ import annotations

from advisor.tune.plugin.build import build_plugin, source_path
from advisor.tune.plugin.parse import parse_rules
from advisor.tune.plugin.rules import (
    TUNERS_SINCE,
    Rule,
    check_rules,
    format_rules,
    one_of,
)

__all__ = [
    "TUNERS_SINCE",
    "Rule",
    "build_plugin",
    "check_rules",
    "format_rules",
    "one_of",
    "parse_rules",
    "source_path",
]
