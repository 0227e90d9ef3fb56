"""Runs one rule on one run: needs, SQL, noise floor, severity, words; a bad rule is an outcome."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.engine.allowance import RULE_S
from advisor.engine.claims import Ledger, claims_of
from advisor.engine.evidence import evidence_of
from advisor.engine.facts import Facts
from advisor.engine.fragments import said
from advisor.engine.group_names import group_name
from advisor.engine.library_words import in_words_of
from advisor.engine.needs import not_applicable, what_is_missing
from advisor.engine.numbering import token
from advisor.engine.partly_read import as_far_as_read
from advisor.engine.plain import MOST_ITEMS, named
from advisor.engine.rule import Rule
from advisor.engine.sandbox import RuleSqlError, Sandbox
from advisor.engine.savings_bounds import COLUMNS as SAVINGS
from advisor.engine.savings_bounds import bounded
from advisor.engine.verdict.probability import judged
from advisor.engine.worth import (
    above_noise,
    floor_of,
    paired_floor,
    savings_of,
    severity_of,
    step_of,
)
from advisor.errors import AdvisorError
from advisor.findings import Finding, Outcome, OutcomeKind, is_wide
from advisor.messages import LOCATIONS, say
from advisor.store.running import was_stopped
from advisor.vocabulary.bounded_templates import limited
from advisor.vocabulary.templates import render, render_lines
from advisor.vocabulary.words import about, fall

_NO_TRAINING = {
    "inference": "this is inference",
    "forward": "no backward pass was recorded",
}


@dataclass
class Result:
    """What became of a rule, and its findings when it fired."""

    outcome: Outcome
    findings: list[Finding] = field(default_factory=list)
    claims: list[Ledger] = field(default_factory=list)
    """Of each finding."""


def evaluate(
    rule: Rule, sandbox: Sandbox, facts: Facts, overrides: Mapping[str, Any] | None = None
) -> Result:
    """The rule's outcome on the run in ``sandbox``; a mistake in the rule is an ``error``.

    A rule that is not shipped takes of what all of these share (:class:`Allowance`).
    """
    if rule.is_shipped:
        with limited(RULE_S):
            return _evaluated(rule, sandbox, facts, overrides)
    try:
        with sandbox.elsewhere():
            return _evaluated(rule, sandbox, facts, overrides)
    except RuleSqlError as error:
        return _result(rule, sandbox.run, OutcomeKind.ERROR, str(error))


def _evaluated(
    rule: Rule, sandbox: Sandbox, facts: Facts, overrides: Mapping[str, Any] | None
) -> Result:
    values: dict[str, Any] = {name: param.default for name, param in rule.params.items()}
    values.update(overrides or {})
    try:
        if rule.only == "training" and facts.purpose in _NO_TRAINING:
            why = _NO_TRAINING[facts.purpose]
            return _result(rule, sandbox.run, OutcomeKind.NOT_APPLICABLE, why)
        for need in rule.needs:
            missing = what_is_missing(need, sandbox, facts, values)
            if missing is not None:
                return Result(not_applicable(rule.id, need, missing, sandbox, facts))
        few = rule.candidates
        may_fire = few is None or sandbox.holds(few.table, few.where, values)
        rows = sandbox.records(rule.sql, values) if may_fire else []
        _check_savings(rule, rows)
        kept, dropped_ns = above_noise(rule, rows, facts)
        listed = [as_far_as_read(rule, row, sandbox) for row in kept[: rule.limit]]
        findings = [_finding(rule, sandbox, facts, values, row) for row in listed]
        claims = [
            claims_of(rule, sandbox, {"used_steps": facts.steps, **values, **row}) for row in listed
        ]
    except AdvisorError:
        raise
    except Exception as error:  # templates from elsewhere raise anything
        if was_stopped(error) and not isinstance(error, RuleSqlError):
            raise
        return _result(rule, sandbox.run, OutcomeKind.ERROR, f"{type(error).__name__}: {error}")
    if findings:
        more = f"; {len(kept) - rule.limit} more not listed" if len(kept) > rule.limit else ""
        found = _result(rule, sandbox.run, OutcomeKind.FIRED, f"{len(findings)} found{more}")
        found.findings = [
            finding.model_copy(update={"claims": own.per_step(facts.steps, facts.ranks_read)})
            for finding, own in zip(findings, claims, strict=True)
        ]
        found.claims = claims
        found.outcome.mistakes = [
            mistake for row in listed for mistake in bounded(row, step_of(row, facts))[1]
        ]
        return found
    reason = ""
    if dropped_ns is not None:
        reason = (
            f"no measurable gain: {about(dropped_ns)} per step is under this run's noise "
            f"floor of {about(floor_of(rule, facts))}"
        )
    return _result(rule, sandbox.run, OutcomeKind.PASSED, reason)


def _result(rule: Rule, run: str, kind: OutcomeKind, reason: str) -> Result:
    return Result(Outcome(run=run, rule=rule.id, outcome=kind, reason=reason))


def _check_savings(rule: Rule, rows: list[dict[str, Any]]) -> None:
    """ValueError that names rule and column where a time is no number."""
    for row in rows:
        for name in SAVINGS:
            value = row.get(name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if value is not None and not (is_number and math.isfinite(value)):
                raise ValueError(
                    f"rule {rule.id}: column {name} must be a number of ns per step or null, "
                    f"not {str(value)[:80]!r} ({type(value).__name__})"
                )


def _finding(
    rule: Rule, sandbox: Sandbox, facts: Facts, values: dict[str, Any], row: dict[str, Any]
) -> Finding:
    known = {
        **facts._asdict(),
        **facts.words(),
        **values,
        **{k: v[:MOST_ITEMS] if isinstance(v, list | str) else v for k, v in row.items()},
        "group": group_name(sandbox, facts, row.get("process_group")),
    }
    step_ns = step_of(row, facts)
    numbers = savings_of(rule, facts, row, step_ns)
    where, title = render(rule.where, known), render(rule.headline, known)
    finding_id = f"{rule.id}-{_slug(where)}" if where else rule.id
    ranks = [int(rank) for rank in _named(row, "ranks")]
    hosts = [host for host in _named(row, "hosts") if isinstance(host, str)]
    if facts.hosts > 1 and ranks:
        is_named = rule.names_host and bool(hosts)
        hosts = hosts or _host_of(ranks, sandbox)
        if len(hosts) == 1 and not is_named:
            where = say(LOCATIONS, "on-host", {"where": where, "ranks": ranks, "host": hosts[0]})
    known |= {"finding_number": token(finding_id), "measure_first": False}
    known |= {name: kept for name, kept in numbers.items() if name in row}
    gain = numbers["savings_ns"]
    if gain is not None:
        low, high = numbers["savings_low_ns"], numbers["savings_high_ns"]
        known["fall"] = fall(gain, low, high, step_ns or math.inf)
        known["measure_first"] = is_wide(low, high)
    share = gain / step_ns if gain is not None and step_ns else None
    floor_ns = floor_of(rule, facts) if rule.noise_floor else paired_floor(facts)
    if rule.says == "where":
        floor_ns = 0  # that time goes there is seen, whatever hiding it gives
    basis, probability = judged(rule, row, floor_ns, unmarked=facts.whole_trace)
    return Finding(
        id=finding_id,
        run=sandbox.run,
        rule=rule.id,
        severity=severity_of(rule, row, facts),
        title=title,
        because=said(rule.because, known),
        message=" ".join(filter(None, (*said(rule.message, known), row["unread_words"]))),
        probability=probability,
        basis=basis,
        category=rule.category,
        ranks=ranks,
        hosts=hosts,
        links=[link for link in _named(row, "links") if isinstance(link, str)],
        one_of=row.get("one_of") is True,
        process_group=row.get("process_group"),
        where=where,
        savings_ns=numbers["savings_ns"],
        savings_low_ns=numbers["savings_low_ns"],
        savings_high_ns=numbers["savings_high_ns"],
        savings_share=share,
        confidence=row.get("confidence") or rule.savings.confidence,
        assumes=render(rule.savings.assumes, known),
        sets={
            name: value
            for name, text in rule.savings.sets.items()
            if (value := render(text, known))
        },
        evidence=evidence_of(rule, sandbox, facts, known, row),
        fix=[
            in_words_of(facts.made_by, text, facts.timeline)
            for text in said(rule.fix, known, render_lines)
        ],
        verify=" ".join(said(rule.verify, known, render_lines)),
        wrong_if=[words for text in rule.false_alarms if (words := render(text, known))],
        see=rule.see,
    )


def _host_of(ranks: list[int], sandbox: Sandbox) -> list[str]:
    """The host that all of these ranks are on; empty where one is on another or not known."""
    found = sandbox.records(
        "SELECT rank, host FROM rank WHERE list_contains($ranks, rank)", {"ranks": ranks}
    )
    hosts = {row["host"] for row in found}
    known = len(hosts) == 1 and {row["rank"] for row in found} == {*ranks}
    return named([*hosts]) if known else []


def _named(row: Mapping[str, Any], many: str) -> list[Any]:
    """What a row names in its column ``many`` (``hosts``), or else in the singular's (``host``).

    A number that is called ``hosts`` or ``ranks`` is how many there are. A rank whose file is
    missing has no host.
    """
    value = row.get(many)
    if not isinstance(value, list | tuple | str):
        value = row.get(many.removesuffix("s"))
    return named(value if isinstance(value, list | tuple) else [value])


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60] or "run"
