"""``advisor rules``: the catalogue, and its own test."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli import _options as options
from advisor.cli._complete import rule_names
from advisor.cli._options import argument, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from advisor.engine import Rule
    from advisor.findings import Outcome


_COLUMNS = 80


@options.command(epilog="Example:  advisor rules --rules my-rules/ --test")
def command(
    names: tuple[str, ...] = argument(metavar="[RULE]...", shell_complete=rule_names),
    run_examples: bool = option("--test", help="Run the examples inside each rule."),
    rule_dirs: tuple[Path, ...] = option(
        "--rules", metavar="DIR", help="Also the rules in this folder."
    ),
    verbose: bool = option("-v", "--verbose", help="With --test, list every example."),
) -> int:
    """List the rules (or only RULE...), or test them with --test.

    A test fails, with exit status 1, when a rule cannot be read or one of its examples does not
    give the outcome that the file states.
    """
    from advisor.engine import load_catalogue

    rules, broken = load_catalogue(rule_dirs, select=names)
    return _test(rules, broken, verbose=verbose) if run_examples else _list(rules, broken)


def _list(rules: Sequence[Rule], broken: Sequence[Outcome]) -> int:
    width = max((len(rule.id) for rule in rules), default=0)
    for category in dict.fromkeys(sorted(rule.category for rule in rules)):
        click.echo(click.style(category, bold=True))
        for rule in rules:
            if rule.category == category:
                title, *more = textwrap.wrap(rule.title, _COLUMNS - width - 4)
                click.echo(f"  {rule.id:<{width}}  {title}")
                for line in more:
                    click.echo(" " * (width + 4) + line)
    click.echo(f"{len(rules)} rules. What one looks for, and why: advisor explain RULE")
    for outcome in broken:
        click.echo(f"cannot be read: {outcome.reason}", err=True)
    return 2 if broken else 0


def _test(rules: Sequence[Rule], broken: Sequence[Outcome], *, verbose: bool) -> int:
    from advisor.engine import Sandbox
    from advisor.engine.examples import check_examples

    failures = [f"{outcome.rule}: {outcome.reason}" for outcome in broken]
    checked = 0
    with Sandbox(None, "example") as sandbox:
        for rule in rules:
            for result in check_examples(rule, sandbox):
                checked += 1
                if result.problem:
                    failures.append(f"{rule.id}: '{result.example}': {result.problem}")
                elif verbose:
                    click.echo(f"ok  {rule.id}: {result.example}")
    for failure in failures:
        click.echo(f"FAIL {failure}", err=True)
    click.echo(
        f"{len(rules)} rules, {checked} examples, "
        f"{len(failures)} failure{'s' if len(failures) != 1 else ''}"
    )
    return 1 if failures else 0
