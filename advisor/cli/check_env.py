"""advisor check-env: what the NCCL_* settings of this shell or a script do, and which to remove."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from advisor.cli import _options as options
from advisor.cli._options import option

if TYPE_CHECKING:
    from advisor.model.nccl.env.issue import EnvIssue

_LEVELS = {"error": 0, "warning": 1, "info": 2, "never": -1}


@options.command("check-env", epilog="Example:  advisor check-env --nccl 2.29.7 --file env.sh")
def command(
    nccl: str | None = option(metavar="VERSION", help="NCCL release, e.g. 2.29.7; default: all."),
    path: Path | None = option(
        "--file", help="A shell script, nccl.conf or env file instead of the environment."
    ),
    form: Literal["text", "json"] = option("--format", default="text"),
    fail_on: Literal["error", "warning", "info", "never"] = option(
        default="never", show_default=True, help="Exit with 1 at issues of this severity or worse."
    ),
) -> int:
    """Lint NCCL_* settings: debugging leftovers, values that break, unknown and dead names.

    Example:  advisor check-env --nccl 2.29.7 --file train.sh
    """
    from advisor.tune.env_file import read_env_file

    if path is None:
        return check(dict(os.environ), nccl, form=form, fail_on=fail_on)
    found = read_env_file(path)
    env = {name: value for name, (value, _) in found.settings.items()}
    lines = {name: line for name, (_, line) in found.settings.items()}
    status = check(env, nccl, form, fail_on, str(path), lines, found.benchmarked)
    if found.unread:
        seen = ", ".join(f"{name} (line {line})" for name, line in sorted(found.unread.items()))
        click.echo(f"names seen but not understood: {seen}", err=form == "json")
    return status


def check(
    env: Mapping[str, str],
    nccl_version: str | None,
    form: str = "text",
    fail_on: str = "never",
    where: str = "",
    lines: Mapping[str, int] | None = None,
    functions: frozenset[str] = frozenset(),
) -> int:
    """Print the issues of `env`; the exit status is 1 at `fail_on` or worse, else 0."""
    from advisor.model.nccl.env.check import check_env
    from advisor.model.nccl.env.table import NEWEST
    from advisor.model.nccl.version import format_version, parse_version

    if nccl_version and parse_version(nccl_version)[:2] > NEWEST[:2]:
        known = format_version(NEWEST)
        click.echo(
            f"NCCL {nccl_version} is newer than all releases known here (up to {known}): "
            "what it changed is not",
            err=True,
        )
    issues = check_env(env, nccl_version, lines=lines, functions=functions)
    if form == "json":
        click.echo(json.dumps([issue.to_dict() for issue in issues], indent=2))
    else:
        _print(issues, where, sum(name.upper().startswith("NCCL_") for name in env))
    worst = min((_LEVELS[issue.severity] for issue in issues), default=3)
    return 1 if worst <= _LEVELS[fail_on] else 0


def _print(issues: list[EnvIssue], where: str, count: int) -> None:
    colors = {"error": "red", "warning": "yellow", "info": "cyan"}
    for issue in issues:
        place = f"{where}:{issue.line}: " if where and issue.line else ""
        releases = f"from {issue.since}" if issue.since else ""
        if issue.until:
            releases = f"{releases} before {issue.until}".strip()
        notes = [text for text in (issue.category and f"class {issue.category}", releases) if text]
        click.echo(
            f"{place}{click.style(issue.severity, fg=colors[issue.severity])} "
            f"{issue.variable}={issue.value}: {issue.title}"
            + (f" ({', '.join(notes)})" if notes else "")
        )
        click.echo(f"    {issue.why}")
        click.echo(f"    {issue.action}")
    noun = "variable" if count == 1 else "variables"
    if not issues:
        click.echo(f"{count} NCCL {noun} set, nothing to say about them")
    else:
        click.echo(f"{len(issues)} remark{'s' if len(issues) != 1 else ''} on {count} NCCL {noun}")
