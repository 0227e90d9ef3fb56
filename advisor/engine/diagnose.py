"""Runs every rule on every run of a store and writes the report (and the outcome tables)."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor import __version__
from advisor.engine.allowance import Allowance
from advisor.engine.catalogue import load_catalogue
from advisor.engine.causes import as_listed, merge, rank_findings
from advisor.engine.evaluate import evaluate
from advisor.engine.facts import read_facts, summarise
from advisor.engine.notes import beside_the_verdict, of_inputs, of_probed_links
from advisor.engine.numbering import number_findings, number_verdict
from advisor.engine.rule import Rule
from advisor.engine.sandbox import Sandbox
from advisor.engine.settlement import settle
from advisor.engine.tried import not_again, note_of
from advisor.engine.verdict import verdict_of
from advisor.errors import AdvisorError
from advisor.findings import Finding, FindingsReport, Outcome, RunSummary, Verdict
from advisor.metrics.compare.tried import Tried
from advisor.store import Store
from advisor.store.columns import insert_rows
from advisor.vocabulary.phases import announce

_FINDING_COLUMNS = {
    "run", "id", "rule", "title", "savings_ns", "savings_low_ns", "savings_high_ns"
}  # fmt: skip


def diagnose(
    store: Store,
    *,
    rule_dirs: Sequence[Path] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    params: Mapping[str, Any] | None = None,
    command: str = "",
    tried: Tried | None = None,
) -> FindingsReport:
    """Findings of all runs in ``store``, merged by cause and ranked by recoverable time.

    ``rule_dirs`` adds folders of a user's own rules, ``select`` and ``ignore`` name rule ids,
    ``params`` overrides rule parameters as ``{"rule-id.parameter": value}``; what was ``tried`` and
    did not help is not proposed again. With several runs
    the verdict is that of the run with the worst finding, and every run has its own.
    Raises AdvisorError for unknown rules, parameters or folders, and for a store without runs.
    """
    rules, broken = load_catalogue(rule_dirs, select=select, ignore=ignore)
    overrides = _overrides(params or {}, rules)
    runs = [row[0] for row in store.con.execute("SELECT run FROM run ORDER BY run").fetchall()]
    if not runs:
        raise AdvisorError("the store holds no run", hint="ingest traces first")
    summaries: list[RunSummary] = []
    verdicts: list[Verdict] = []
    outcomes: list[Outcome] = []
    findings: list[Finding] = []
    by_id = {rule.id: rule for rule in rules}
    allowance = Allowance()
    for run in runs:
        with Sandbox(store, run, allowance=allowance) as sandbox:
            facts = read_facts(sandbox)
            results = []
            for number, rule in enumerate(rules, 1):
                announce("rules", number, len(rules))
                results.append(evaluate(rule, sandbox, facts, overrides.get(rule.id)))
            announce("verdict")
            run_outcomes = [
                *(item.model_copy(update={"run": run}) for item in broken),
                *(result.outcome for result in results),
            ]
            claimed = [
                (not_again(finding, tried) if tried else finding, ledger)
                for result in results
                for finding, ledger in zip(result.findings, result.claims, strict=True)
            ]
            claims = merge(claimed, by_id)
            merged = [finding for finding, _ in claims]
            summary = summarise(store, sandbox, facts)
            summary.notes = of_inputs(store, sandbox, facts)
            summary.caveats = beside_the_verdict(sandbox, facts, summary.step_source)
            summary.caveats += [note_of(tried)] if tried else []
            verdict, left_open = verdict_of(merged, sandbox, facts, summary.notes)
            every = [finding for finding, _ in claimed]
            summary.caveats += [*left_open, *of_probed_links(every, verdict)]
            verdicts.append(verdict)
            summaries.append(summary)
            outcomes += sorted(run_outcomes, key=lambda outcome: outcome.rule)
            ledgers = {finding.id: ledger for finding, ledger in claims}
            listed = _led(as_listed(merged), [run], [verdict])
            findings += settle(
                [(finding, ledgers[finding.id]) for finding in listed],
                sandbox,
                facts.steps,
                facts.ranks_read,
            )
    ranked = as_listed(rank_findings(findings, by_id))
    findings = number_findings(_led(ranked, runs, verdicts))
    verdicts = [
        number_verdict(verdict, run, findings) for run, verdict in zip(runs, verdicts, strict=True)
    ]
    verdict = _worst(summaries, verdicts, findings)
    report = FindingsReport(
        advisor_version=__version__,
        command=command,
        runs=summaries,
        verdict=verdict,
        outcomes=outcomes,
        findings=findings,
    )
    _remember(store, report)
    return report


def _led(
    ranked: Sequence[Finding], runs: Sequence[str], verdicts: Sequence[Verdict]
) -> list[Finding]:
    """Findings with the one that a run's verdict is about before the others of that run."""
    about = {run: verdict.finding for run, verdict in zip(runs, verdicts, strict=True)}
    by_run: dict[str, list[Finding]] = {run: [] for run in runs}
    for finding in ranked:
        by_run[finding.run].append(finding)
    for run, own in by_run.items():
        own.sort(key=lambda finding: finding.id != about[run])
    return [by_run[finding.run].pop(0) for finding in ranked]


def _worst(
    runs: list[RunSummary], verdicts: Sequence[Verdict], findings: Sequence[Finding]
) -> Verdict:
    """The verdict of the run with the worst finding, which it names where there are several.

    Every run keeps its own then: of several jobs each is diagnosed by itself.
    """
    if len(runs) == 1:
        return verdicts[0]
    for summary, verdict in zip(runs, verdicts, strict=True):
        summary.verdict = verdict
    blamed = [index for index, verdict in enumerate(verdicts) if verdict.finding is not None]
    order = {item.run: place for place, item in reversed(list(enumerate(findings)))}
    index = min(blamed, key=lambda index: order[runs[index].run], default=0)
    verdict = verdicts[index]
    return verdict.model_copy(update={"run": runs[index].run})


def _overrides(params: Mapping[str, Any], rules: Sequence[Rule]) -> dict[str, dict[str, Any]]:
    known = {rule.id: rule for rule in rules}
    result: dict[str, dict[str, Any]] = {}
    for key, value in params.items():
        rule_id, _, name = key.partition(".")
        if rule_id not in known or name not in known[rule_id].params:
            raise AdvisorError(
                f"no rule parameter is called '{key}'",
                hint="write RULE.PARAMETER; advisor explain RULE lists them",
            )
        default = known[rule_id].params[name].default
        if isinstance(default, int | float) and not isinstance(value, int | float):
            raise AdvisorError(f"'{key}' must be a number, not {value!r}")
        result.setdefault(rule_id, {})[name] = value
    return result


def _remember(store: Store, report: FindingsReport) -> None:
    """Fill the tables ``outcome`` and ``finding``, unless the store was opened read-only."""
    (read_only,) = store.con.execute(
        "SELECT coalesce(bool_or(readonly), false) FROM duckdb_databases() "
        "WHERE database_name = current_database()"
    ).fetchone() or (False,)
    if read_only:
        return
    con = store.con
    con.execute("DELETE FROM outcome")
    con.execute("DELETE FROM finding")
    insert_rows(
        con,
        "outcome",
        [
            {**item.model_dump(include={"run", "rule", "reason"}), "outcome": item.outcome.value}
            for item in report.outcomes
        ],
    )
    insert_rows(
        con,
        "finding",
        [
            {
                **item.model_dump(include=_FINDING_COLUMNS),
                "severity": item.severity.value,
                "confidence": item.confidence.value,
                "json": item.model_dump_json(),
            }
            for item in report.findings
        ],
    )
