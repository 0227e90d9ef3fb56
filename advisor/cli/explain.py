"""``advisor explain``: what a rule looks for, why, what to do, and when it is wrong."""

from __future__ import annotations

import re
import textwrap
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli import _options as options
from advisor.cli._complete import rule_names
from advisor.cli._options import argument, option
from advisor.errors import AdvisorError
from advisor.vocabulary.placeholders import hinted

if TYPE_CHECKING:
    from advisor.engine import Rule
    from advisor.engine.rule import Need

# Each stops where the next tag opens, so that unclosed tags cost no more than their length.
_ELSE = re.compile(r"\{%-?\s*el(?:se|if)(?:(?!\{%|%\}).)*+%\}", re.DOTALL)
_TAG = re.compile(r"\{%(?:(?!\{%|%\}).)*+%\}", re.DOTALL)
_SHOWN = re.compile(r"\{\{((?:(?!\{\{|\}\}).)*+)\}\}", re.DOTALL)
_CODE = " " * 6
_CHOICE = re.compile(r"\s*'([^']*)' if [^']+ else '([^']*)'\s*")


@options.command(epilog="Example:  advisor explain small-buckets")
def command(
    name: str = argument(metavar="RULE", shell_complete=rule_names),
    rule_dirs: tuple[Path, ...] = option(
        "--rules", metavar="DIR", help="Also the rules in this folder."
    ),
    show_sql: bool = option(
        "--sql", help="Also the query, the rows it needs and the time it claims."
    ),
) -> None:
    """Explain RULE, or how to record a kind of evidence (nccl-log, all-ranks, ...)."""
    from advisor.engine import load_catalogue, recipes

    if name in recipes():
        click.echo(recipes()[name].title)
        click.echo(textwrap.indent(recipes()[name].how.strip(), "  "))
        for tool, way in recipes()[name].by_format.items():
            click.echo(f"With {tool}:")
            click.echo(textwrap.indent(way.strip(), "  "))
        return
    rules, broken = load_catalogue(rule_dirs)
    found = next((rule for rule in rules if rule.id == name), None)
    if found is None:
        for outcome in broken:
            if outcome.rule == name:
                raise AdvisorError(outcome.reason)
        close = get_close_matches(name, [*(rule.id for rule in rules), *recipes()], n=1)
        raise AdvisorError(
            f"nothing is called '{name}'",
            hint=f"did you mean '{close[0]}'?" if close else "list them: advisor rules",
        )
    click.echo(explain_rule(found, show_sql=show_sql))


def explain_rule(rule: Rule, *, show_sql: bool = False) -> str:
    """The page of one rule, as plain text of 80 columns."""
    parts = [
        f"{rule.id}: {rule.title}",
        textwrap.fill(f"category {rule.category}; severity {_graded(rule)}", width=80),
        "",
        *(_section(title, lines) for title, lines in sections(rule)),
    ]
    if show_sql:
        rows = [f"{need.table}: {need.where}" for need in rule.needs if need.where]
        if rule.candidates:
            rows.append(f"{rule.candidates.table}: {rule.candidates.where}")
        parts.append(_section("Rows needed", rows))
        parts.append(_section("Claims", [f"{claim.part}: {claim.of}" for claim in rule.claims]))
        parts.append(f"SQL\n{textwrap.indent(rule.sql, '  ')}\n")
    return "\n".join(part for part in parts if part is not None).rstrip()


def sections(rule: Rule) -> list[tuple[str, list[str]]]:
    """(title, texts) of what a reader asks of a rule, what to do first; code is below its words."""
    from advisor.engine.fragments import templates

    savings = rule.savings
    return [
        ("Why", [rule.why]),
        (
            "Fix: a finding names those that fit, in this order",
            [static_text(fix) for fix in templates(rule.fix)],
        ),
        ("Verify", [static_text(text) for text in templates(rule.verify)]),
        ("Wrong if", [static_text(alarm) for alarm in rule.false_alarms]),
        ("Needs", [_need_text(need) for need in rule.needs]),
        ("See", [", ".join(rule.see)]),
        (
            "Recoverable time",
            [
                static_text(savings.how),
                f"assumes: {static_text(savings.assumes)}" if savings.assumes else "",
            ],
        ),
        (
            "Parameters",
            [
                f"{name} = {param.default} ({param.unit}): {param.reason}"
                for name, param in rule.params.items()
            ],
        ),
        ("Seen firing on", [rule.proof]),
    ]


def _graded(rule: Rule) -> str:
    graded: str = rule.severity
    if rule.severity == "by-savings":
        graded = (
            "by recoverable time (critical from 10 % of the step, warning from 3 %; info where "
            "the low end of its interval is within noise)"
        )
        if rule.at_most != "critical":
            graded += f", at most {rule.at_most}"
    if re.search(r"\bAS severity\b|\bas severity\b", rule.sql):
        graded += "; its query may set another"
    return graded


def _section(title: str, lines: list[str]) -> str | None:
    shown = [line for line in lines if line]
    if not shown:
        return None
    mark = "- " if len(shown) > 1 else ""
    body = "\n".join(_item(line, mark) for line in shown)
    return f"{title}\n{body}\n"


def _item(text: str, mark: str) -> str:
    """Words folded, what to type below them as it is typed."""
    words, _, code = text.partition("\n")
    inside = " " * (2 + len(mark))
    said = textwrap.fill(
        " ".join(words.split()),
        width=80,
        break_on_hyphens=False,
        initial_indent=f"  {mark}",
        subsequent_indent=inside,
    )
    return f"{said}\n{textwrap.indent(hinted(code.rstrip()), _CODE)}" if code else said


def _need_text(need: Need) -> str:
    if need.table is not None:
        text = f"rows in {need.table}{', of some kinds only' if need.where else ''}"
    elif need.ranks is not None:
        text = f"traces of {need.ranks} ranks or more"
    elif need.all_ranks:
        text = "traces of all ranks"
    elif need.steps is not None:
        text = f"{need.steps} complete step{'s' if need.steps > 1 else ''} after the warm-up"
    else:
        text = "GPU activity" if need.timeline == "device" else "a CPU-only recording"
    return f"{text} (how: advisor explain {need.capture})" if need.capture else text


def static_text(template: str) -> str:
    """A template as a reader may see it: alternatives side by side, values as names in brackets."""
    either = _ELSE.sub(" (or:) ", template)
    without = _TAG.sub("", either)
    return _SHOWN.sub(lambda found: _value(found[1]), without)


def _value(expression: str) -> str:
    """What stands for ``{{ expression }}``: its two texts, or the name of the value it shows."""
    choice = _CHOICE.fullmatch(expression)
    if choice:
        first, second = (text.strip() for text in choice.groups())
        return f"{first} (or:) {second} " if second else f"({first})"
    names = re.findall(r"[a-z_]\w*", re.sub(r"'[^']*'", "", expression))
    named = [name for name in names if name not in {"format", "if", "else", "not", "and", "or"}]
    return f"<{named[0]}>" if named else "…"
