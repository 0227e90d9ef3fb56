"""Tuner rules for NCCL: the CSV file, its checks, and the C plugin that applies it (2.22+)."""

from __future__ import annotations

from advisor.tune.plugin.build import build_plugin, source_path
from advisor.tune.plugin.rules import Rule, Winner, check_rules, format_rules, parse_rules, ranges

__all__ = [
    "Rule",
    "Winner",
    "build_plugin",
    "check_rules",
    "format_rules",
    "parse_rules",
    "ranges",
    "source_path",
]
