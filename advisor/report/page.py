"""The HTML report: one file that asks for nothing, which a strict content policy enforces."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from advisor.findings import FindingsReport
from advisor.messages import STATES, SUMMARY, on_page, say
from advisor.metrics.compare.runs import Comparison, Timed, comparison
from advisor.metrics.models.speeds import Speeds, speeds
from advisor.report import first, numbers, pasted, summary
from advisor.report.charts import draw
from advisor.report.clean import printable
from advisor.report.commands import inline_code, is_command, step_code
from advisor.report.options import Options
from advisor.report.sections import (
    collectives,
    findings,
    links,
    quality,
    ranks,
    size,
    steps,
    sweep,
    whatif,
)
from advisor.report.sections import comparison as compared
from advisor.report.sections.section import Section
from advisor.store.notes import READ_APART
from advisor.store.store import Store
from advisor.vocabulary.words import plural


def render(report: FindingsReport, store: Store | None, options: Options) -> str:
    """The page; ``store`` adds pictures and tables to what findings.json holds."""
    style, script = _asset("style.css"), _asset("page.js")
    if options.comparison is not None:
        # Its headline is the comparison's: no finding has a place of its own.
        report = report.model_copy(
            update={"verdict": report.verdict.model_copy(update={"finding": None})}
        )
    screen = first.first_screen(report, store, options.comparison)
    rows = findings.views(report, store, screen.next_steps)
    sections = _sections(report, store, options.comparison)
    is_sweep = first.is_sweep(report)
    checks = summary.rules_line(report)
    template = _environment().get_template("page.html.j2")
    return template.render(
        report=report,
        style=Markup(style),  # noqa: S704 - our own files, no input in them
        script=Markup(script),  # noqa: S704
        policy=content_policy(style, script),
        first=screen,
        more_steps=say(SUMMARY, "more-steps", {"steps": len(screen.next_steps)}),
        rows=rows[: summary.SHOWN],
        more_rows=rows[summary.SHOWN :],
        main=next((row for row in rows if row.is_main), None),
        nothing=findings.nothing_found(report),
        gains=findings.legend(report),
        leading=sections[:1] if is_sweep else [],
        sections=sections[1:] if is_sweep else sections,
        nav=_nav(sections),
        labels=Labels([run.run for run in report.runs]),
        subject=_subject(report),
        quality=quality.one_line_quality(report) if len(report.runs) == 1 else "",
        rules=say(SUMMARY, "of-present", {"checks": checks}) if is_sweep else checks,
        times=on_page("times", **summary.unit(report)),
        made_by=pasted.made_by(report),
        info=say(STATES, "info", {"cost": ""}),
        generated_at=options.generated_at,
        injected=options.injected,
    )


def content_policy(style: str, script: str) -> str:
    """A policy that forbids everything but this very style sheet and script."""
    allowed = (
        f"{kind}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for kind, text in (("style", style), ("script", script))
    )
    return f"default-src 'none'; {'; '.join(allowed)}; base-uri 'none'; form-action 'none'"


def _sections(
    report: FindingsReport, store: Store | None, found: Comparison | None
) -> list[Section]:
    runs = [run.run for run in report.runs] if store is not None else []
    counted: dict[str, Speeds | None] = {}
    several = len(runs) > 1
    sections: list[Section | None] = []
    if store is not None:
        counted = {run: speeds(store.con, run) for run in runs}
        found = found or _comparable(report, store)
        in_full = runs if found is None else compared.in_full(found, runs)
        sections += [compared.build(found, in_full)] if found is not None else []
        is_sweep = first.is_sweep(report)
        about = summary.of_verdict(report)
        for run in in_full:
            blamed = about.ranks if about is not None and about.run == run else []
            causes = [item for item in report.findings if item.run == run]
            parts = [
                steps.build(store, run, several=several, culprits=blamed),
                whatif.build(store, run, causes, several=several),
                ranks.build(store, run, causes, several=several),
                links.build(store, run, several=several),
                collectives.build(store, run, several=several),
                size.build(store, run, counted[run], several=several),
            ]
            tried = sweep.build(store, run, several=several, is_open=is_sweep)
            own = [tried, *parts] if is_sweep else [*parts, tried]
            sections += [replace(it, run=run if several else "") for it in own if it is not None]
    sections.append(quality.build(report, store, counted))
    return [section for section in sections if section is not None]


def _nav(sections: list[Section]) -> list[tuple[str, str]]:
    """(id, name) of every section; of several runs one link each."""
    named = [(section.run or section.nav, section.id) for section in sections]
    return [(id_, name) for name, id_ in dict(reversed(named)).items()][::-1]


def _comparable(report: FindingsReport, store: Store) -> Comparison | None:
    """The recordings beside each other, where they are of one job and hold steps."""
    read_apart = any(
        READ_APART in note.values.get("codes", ()) for run in report.runs for note in run.notes
    )
    timed = [run.run for run in report.runs if run.steps_complete and run.step_ns_median]
    if read_apart or len(timed) < 2:
        return None
    return comparison(store.con, {run: Timed() for run in timed}, findings=report.findings)


def _subject(report: FindingsReport) -> str:
    """What was read of one run; how many where there are several, which the links name."""
    if len(report.runs) == 1 and report.runs[0].inputs:
        inputs = report.runs[0].inputs
        one = pasted.what_was_read(inputs)
        return one or f"{inputs[0]} and {plural(len(inputs) - 1, 'other file')}"
    return plural(len(report.runs), "recording") if report.runs else ""


@cache
def _asset(name: str) -> str:
    return resources.files("advisor.report").joinpath("templates", name).read_text(encoding="utf-8")


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
    environment.globals.update(draw=draw, summary=summary)
    environment.filters.update(placed=_placed, px=_pixels, bound=numbers.bound, aside=_aside)
    environment.filters.update(inline_code=inline_code, step_code=step_code)
    environment.tests["command"] = is_command
    return environment


def _aside(title: str) -> Markup:
    """A title whose last words, where they stand in brackets, may go where there is no room."""
    said, opening, rest = numbers.bound(printable(title)).rpartition(" (")
    if not opening or not rest.endswith(")"):
        return escape(numbers.bound(printable(title)))
    return escape(said) + Markup('<span class="aside"> ({}</span>').format(rest)


def _finalize(value: object) -> object:
    """Names from a trace lose their control characters; finished markup passes."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _placed(value: float, unit: str) -> str:
    """A horizontal position; two decimals of a percent are finer than a pixel of any screen."""
    return f"{value:.2f}".rstrip("0").rstrip(".") + unit


def _pixels(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


class Labels:
    """The names of scrolling regions given out so far on one page, which is about ``runs``.

    A screen reader lists regions by name: two of one name cannot be told apart there.
    """

    def __init__(self, runs: Sequence[str]) -> None:
        self._runs = runs if len(runs) > 1 else ()
        self._given: set[str] = set()

    def of(self, label: str, section: str) -> str:
        """``label``, with the run that the title of its ``section`` ends with where there are
        several, and with a number where it was given out before."""
        run = next((f" ({run})" for run in self._runs if section.endswith(f" ({run})")), "")
        wanted = label if label.endswith(run) else f"{label}{run}"
        name, count = wanted, 1
        while name in self._given:
            count += 1
            name = f"{wanted}, {count}"
        self._given.add(name)
        return name
