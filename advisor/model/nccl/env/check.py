"""Lint of NCCL_* settings: leftovers of debugging, values that break, unknown and dead names.

What a setting does depends on the release, so every statement carries the releases it holds for;
without a release all of them are reported. The guide's class tells whether a variable may stay
in scripts (S) or is for debugging only (D).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase

from advisor.model.nccl.env.choices import check_choices
from advisor.model.nccl.env.issue import EnvIssue
from advisor.model.nccl.env.limits import check_limits
from advisor.model.nccl.env.ranges import check_ranges, debugging_only
from advisor.model.nccl.env.statements import statements
from advisor.model.nccl.env.table import NEWEST, value_read, variables
from advisor.model.nccl.env.words import check_words
from advisor.model.nccl.version import NcclVersion, format_version, parse_version

__all__ = ["EnvIssue", "check_env"]

_ORDER = {"error": 0, "warning": 1, "info": 2}


def check_env(
    env: Mapping[str, str],
    nccl_version: NcclVersion | str | None = None,
    *,
    nodes: int | None = None,
    lines: Mapping[str, int] | None = None,
) -> list[EnvIssue]:
    """Everything worth saying about the settings, worst first.

    Only NCCL_* and a few torch and CUDA variables are looked at. Values with an unexpanded `$`
    are checked by name only. `nodes` is how many the job has, if known; `lines` gives the line
    each variable was set in. Raises AdvisorError on a version that is none.
    """
    version = parse_version(nccl_version) if isinstance(nccl_version, str) else nccl_version
    found: list[EnvIssue] = []
    for name, value in env.items():
        if name.upper().startswith("NCCL_"):
            found += (replace(issue, effect="dead") for issue in _names(name, value, version))
        if "$" not in value:
            found += _costs(name, value.strip(), version, nodes)
            found += _redundant(name, value.strip(), version)
    plain = {name: value.strip() for name, value in env.items() if "$" not in value}
    found += check_choices(plain, version)
    found += check_limits(plain, version)
    found += check_words(plain, version)
    found += check_ranges(plain)
    found += debugging_only(found, plain)
    known = variables()
    complete = [
        replace(
            issue,
            category=issue.category
            or (known[issue.variable].category if issue.variable in known else ""),
            line=lines.get(issue.variable) if lines else None,
        )
        for issue in found
    ]
    return sorted(complete, key=lambda issue: (_ORDER[issue.severity], issue.variable))


def _names(name: str, value: str, version: NcclVersion | None) -> Iterator[EnvIssue]:
    known_names, known = statements(), variables()
    renamed = known_names.renamed.get(name)
    if renamed is not None:
        since = parse_version(renamed.since) if renamed.since else None
        if version is None or since is None or version >= since:
            still = name in known and (version is None or known[name].exists_in(version))
            yield EnvIssue(
                name,
                value,
                "info" if still and known[name].until is None else "warning",
                f"{name} has been replaced",
                f"{renamed.to} took its place ({renamed.source}).",
                f"Use {renamed.to}.",
                since=renamed.since or "",
            )
            return
    if any(fnmatchcase(name, pattern) for pattern in known_names.foreign) or (
        name in known_names.renamed
    ):
        return
    if name not in known:
        close = get_close_matches(name.upper(), known, n=1, cutoff=0.8)
        yield EnvIssue(
            name,
            value,
            "warning",
            "NCCL does not know this variable",
            f"No release from 2.3 to {format_version(NEWEST)} reads it, so it does nothing.",
            f"Did you mean {close[0]}?" if close else "Remove it, or check its spelling.",
        )
        return
    variable = known[name]
    if version is not None and variable.since is not None and version < variable.since:
        yield EnvIssue(
            name,
            value,
            "warning",
            f"NCCL {format_version(version)} does not read this variable",
            f"It exists from {format_version(variable.since)} on.",
            "Remove it, or update NCCL.",
            until=format_version(variable.since),
        )
    if variable.until is not None and (version is None or version > variable.until):
        yield EnvIssue(
            name,
            value,
            "warning",
            "newer NCCL releases do not read this variable",
            f"The last release that did is {format_version(variable.until)}.",
            "Remove it.",
            since=format_version(variable.until),
        )


def _costs(
    name: str, value: str, version: NcclVersion | None, nodes: int | None
) -> Iterator[EnvIssue]:
    for cost in statements().costs:
        if cost.variable != name:
            continue
        if not re.fullmatch(cost.when, value_read(name, value), re.IGNORECASE):
            continue
        if cost.several_nodes and nodes == 1:
            continue
        if version is not None and (
            (cost.since and version < parse_version(cost.since))
            or (cost.until and version >= parse_version(cost.until))
        ):
            continue
        yield EnvIssue(
            name,
            value,
            cost.severity,
            cost.title,
            cost.why,
            cost.action,
            since=cost.since or "",
            until=cost.until or "",
            source=cost.source,
        )


def _redundant(name: str, value: str, version: NcclVersion | None) -> Iterator[EnvIssue]:
    variable = variables().get(name)
    if version is None or variable is None or variable.default(version) is None:
        return
    if value_read(name, value) == str(variable.default(version)):
        yield EnvIssue(
            name,
            value,
            "info",
            "sets what is the default anyway",
            f"{value} is the default in NCCL {format_version(version)}; written down, it stays "
            "behind when a later release finds a better one.",
            "Remove it.",
        )
