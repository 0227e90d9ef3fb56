"""The HTML report: one file without script or network, which a strict content policy enforces."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from advisor.findings import FindingsReport, VerdictKind
from advisor.metrics.compare.runs import Comparison
from advisor.report import numbers, summary
from advisor.report.clean import printable
from advisor.report.commands import inline_code, is_command
from advisor.report.labels import Labels
from advisor.report.options import Options
from advisor.report.sections import (
    breakdown,
    changes,
    collectives,
    findings,
    quality,
    ranks,
    roofline,
    size,
    strategies,
    sweep,
)
from advisor.report.sections.section import Section
from advisor.store.notes import READ_APART
from advisor.store.store import Store


def render(report: FindingsReport, store: Store | None, options: Options) -> str:
    """The page; ``store`` adds pictures and tables to what findings.json holds."""
    style = _style()
    sections = _sections(report, store, options.comparison)
    best = summary.of_verdict(report)
    amount, share = (
        summary.won_back(best) if best else (numbers.duration(report.verdict.savings_ns), "")
    )
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report,
            style=Markup(style),  # noqa: S704 - our own file, no input in it
            policy=content_policy(style),
            sections=sections,
            labels=Labels([run.run for run in report.runs]),
            verdict=report.verdict,
            state=_state(report),
            first_steps=[summary.to_paste(step, report) for step in report.verdict.next_steps[:3]],
            subject=_subject(report),
            amount=amount,
            share=share,
            confidence=summary.confidence(best) if best else "",
            quality=quality.one_line_quality(report),
            rules=summary.rules_line(report),
            caveats=summary.caveats(report),
            per=summary.per(report),
            several_runs=len(report.runs) > 1,
            generated_at=options.generated_at,
        )
    )


def content_policy(style: str) -> str:
    """A policy that forbids everything but this very style sheet."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _sections(
    report: FindingsReport, store: Store | None, comparison: Comparison | None = None
) -> list[Section]:
    found: list[Section | None] = []
    runs = [run.run for run in report.runs] if store is not None else []
    counts = roofline.Counts(store) if store is not None else None
    several = len(runs) > 1
    if store is not None and _is_sweep(report):
        found += [sweep.build(store, run, several=several) for run in runs]
    if store is not None:
        if comparison is not None or not _of_different_jobs(report):
            found.append(strategies.build(store, runs, comparison))
        found += [breakdown.build(store, run.run, several=several) for run in report.runs]
    found.append(findings.build(report, store))
    if store is not None:
        for section in (collectives, ranks, changes, sweep):
            if section is sweep and _is_sweep(report):
                continue
            found += [section.build(store, run, several=several) for run in runs]
        found += [size.build(store, run, several=several, counts=counts) for run in runs]
    found.append(quality.build(report, store, counts))
    return [section for section in found if section is not None]


def _of_different_jobs(report: FindingsReport) -> bool:
    """Whether the runs were told apart in reading: different jobs are not compared."""
    return any(
        READ_APART in note.values.get("codes", ()) for run in report.runs for note in run.notes
    )


def _subject(report: FindingsReport) -> str:
    """What the page is about: the runs when there are several, else what was read."""
    if len(report.runs) == 1 and report.runs[0].inputs:
        inputs = report.runs[0].inputs
        first = summary.what_was_read(inputs)
        return first or f"{inputs[0]} and {numbers.plural(len(inputs) - 1, 'other file')}"
    return ", ".join(run.run for run in report.runs)


def _state(report: FindingsReport) -> str:
    verdict = report.verdict
    if verdict.cause == "benchmark" or _is_sweep(report):
        return verdict.cause
    if verdict.kind in (VerdictKind.HEALTHY, VerdictKind.INCONCLUSIVE):
        return verdict.kind.value
    return verdict.severity.value


def _is_sweep(report: FindingsReport) -> bool:
    return report.verdict.cause in sweep.VERDICTS


def _style() -> str:
    return (
        resources.files("advisor.report")
        .joinpath("templates", "style.css")
        .read_text(encoding="utf-8")
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("advisor.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    environment.filters["placed"] = _placed
    environment.filters["px"] = _pixels
    environment.filters["bound"] = numbers.bound
    environment.filters["inline_code"] = inline_code
    environment.tests["command"] = is_command
    return environment


def _finalize(value: object) -> object:
    """Names from a trace lose their control characters; finished markup passes."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _placed(value: float, unit: str) -> str:
    """A horizontal position; two decimals of a percent are finer than a pixel of any screen."""
    return f"{value:.2f}".rstrip("0").rstrip(".") + unit


def _pixels(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
