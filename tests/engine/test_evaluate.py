"""One rule on one run: outcomes, noise floor, severity, evidence."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from advisor.engine.catalogue import load_rule
from advisor.engine.evaluate import Result, evaluate
from advisor.engine.facts import read_facts
from advisor.engine.rule import Candidates, Need
from advisor.engine.sandbox import Sandbox
from advisor.findings import OutcomeKind, Severity
from tests.engine.helpers import RUN, store_of, write_rule

STEP_NS = 100_000_000


def run_rule(tmp_path: Path, sql: str, *, need: Need | None = None, **words: str) -> Result:
    rule = load_rule(write_rule(tmp_path, "mine", sql, **words))
    if need is not None:
        rule.needs = [need]
    sandbox = plain_run()
    return evaluate(rule, sandbox, read_facts(sandbox))


@cache
def plain_run() -> Sandbox:
    """Rules only read it."""
    return Sandbox(store_of(ranks=4, steps=8, step_ms=STEP_NS / 1e6), RUN)


@pytest.mark.parametrize(("where", "expected"), [("step > 3", "fired"), ("step > 99", "passed")])
def test_the_sql_is_asked_only_where_there_are_candidates(
    tmp_path: Path, where: str, expected: str
) -> None:
    rule = load_rule(write_rule(tmp_path, "mine", "SELECT 50_000_000 AS savings_ns"))
    rule.candidates = Candidates(table="used_step", where=where)
    sandbox = plain_run()
    assert evaluate(rule, sandbox, read_facts(sandbox)).outcome.outcome == expected


@pytest.mark.parametrize(
    ("savings", "low", "expected"),
    [
        (10_000_000, 9_000_000, Severity.CRITICAL),
        (9_900_000, 9_000_000, Severity.WARNING),
        (3_000_000, 2_000_000, Severity.WARNING),
        (2_900_000, 2_000_000, Severity.INFO),
        (30_000_000, 0, Severity.INFO),  # the low end is under the noise floor: not sure enough
    ],
)
def test_severity_follows_the_share_of_the_step(
    tmp_path: Path, savings: int, low: int, expected: Severity
) -> None:
    result = run_rule(tmp_path, f"SELECT {savings} AS savings_ns, {low} AS savings_low_ns")
    assert result.findings[0].severity == expected
    assert result.findings[0].savings_share == pytest.approx(savings / STEP_NS)


def test_gains_under_the_noise_floor_are_no_finding(tmp_path: Path) -> None:
    result = run_rule(tmp_path, "SELECT 400000 AS savings_ns")
    assert result.outcome.outcome == OutcomeKind.PASSED
    assert "no measurable gain" in result.outcome.reason


@pytest.mark.parametrize(("paired", "expected"), [(True, Severity.WARNING), (False, None)])
def test_what_steps_differ_by_is_not_held_against_paired_evidence(
    tmp_path: Path, paired: bool, expected: Severity | None
) -> None:
    """Steps between 80 and 130 ms blur claims about their length, not about one of their calls."""
    sql = "SELECT 5000000 AS savings_ns, 2000000 AS savings_low_ns"
    rule = load_rule(write_rule(tmp_path, "mine", sql)).model_copy(update={"paired": paired})
    lengths = (80, 130, 95, 120, 85, 110)
    steps = [
        {"rank": [0, 1], "step": [number], "step_ns": length * 1_000_000}
        for number, length in enumerate(lengths)
    ]
    with store_of(ranks=2, tables={"step": steps}) as store, Sandbox(store, RUN) as sandbox:
        result = evaluate(rule, sandbox, read_facts(sandbox))
    assert [item.severity for item in result.findings] == ([expected] if expected else [])


def test_a_users_rule_cannot_promise_the_impossible(tmp_path: Path) -> None:
    sql = (
        f"SELECT {3 * STEP_NS} AS savings_ns, {4 * STEP_NS} AS savings_low_ns, 5 AS savings_high_ns"
    )
    result = run_rule(tmp_path, sql)
    (finding,) = result.findings
    ends = (finding.savings_low_ns, finding.savings_ns, finding.savings_high_ns)
    assert ends == (STEP_NS, STEP_NS, STEP_NS)
    assert finding.message == "seen", "the reader is not told of the author's bug"
    assert len(result.outcome.mistakes) == 3


@pytest.mark.parametrize(
    ("columns", "ends", "mistakes"),
    [
        (
            "5e6 AS savings_ns, 8e6 AS savings_low_ns, 3e6 AS savings_high_ns",
            (5_000_000, 5_000_000, 5_000_000),
            2,
        ),
        (
            "NULL AS savings_ns, 8e6 AS savings_low_ns, 3e6 AS savings_high_ns",
            (None, None, None),
            1,
        ),
        (
            "5e6 AS savings_ns, -2e6 AS savings_low_ns",
            (0, 5_000_000, None),
            1,
        ),
        (
            "5e6 AS savings_ns, 4e6 AS savings_low_ns, 900e6 AS savings_high_ns",
            (4_000_000, 5_000_000, STEP_NS),
            1,
        ),
    ],
)
def test_what_is_changed_of_a_users_savings_is_its_authors_mistake(
    tmp_path: Path, columns: str, ends: tuple[int | None, ...], mistakes: int
) -> None:
    result = run_rule(tmp_path, f"SELECT {columns}")
    (finding,) = result.findings
    assert (finding.savings_low_ns, finding.savings_ns, finding.savings_high_ns) == ends
    assert len(result.outcome.mistakes) == mistakes


def test_savings_that_can_be_are_left_alone(tmp_path: Path) -> None:
    sql = "SELECT 5e6 AS savings_ns, 4e6 AS savings_low_ns, 6e6 AS savings_high_ns"
    (finding,) = run_rule(tmp_path, sql).findings
    assert finding.message == "seen"


def test_no_rows_is_passed(tmp_path: Path) -> None:
    assert run_rule(tmp_path, "SELECT 1 AS a WHERE false").outcome.outcome == OutcomeKind.PASSED


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT nothing FROM rank", {}),
        ("DELETE FROM rank", {}),
        ("SELECT 1 AS a", {"message": "{{ unknown }}"}),
        ("SELECT 1 AS a", {"message": "{% if %}"}),
        ("SELECT 1 AS a", {"headline": "{{ a.__class__.__mro__ }}"}),
        ("SELECT 'x' AS savings_ns", {}),
    ],
)
def test_a_broken_rule_is_an_error_and_nothing_else(
    tmp_path: Path, sql: str, words: dict[str, str]
) -> None:
    result = run_rule(tmp_path, sql, **words)
    assert result.outcome.outcome == OutcomeKind.ERROR
    assert result.outcome.reason
    assert not result.findings


@pytest.mark.parametrize(
    "need",
    [
        Need(ranks=5),
        Need(steps=9),
        Need(timeline="host"),
        Need(table="alpha_beta"),
        Need(table="rank", where="host = 'elsewhere'"),
    ],
)
def test_missing_evidence_is_not_applicable_never_passed(tmp_path: Path, need: Need) -> None:
    need.capture = "fit"
    result = run_rule(tmp_path, "SELECT 1 AS a", need=need)
    assert result.outcome.outcome == OutcomeKind.NOT_APPLICABLE
    assert result.outcome.reason
    assert "advisor" in result.outcome.how_to_capture


def test_findings_are_limited_and_worst_first(tmp_path: Path) -> None:
    result = run_rule(tmp_path, "SELECT i * 1000000 AS savings_ns FROM range(1, 8) t(i)")
    assert [finding.savings_ns for finding in result.findings] == [7_000_000, 6_000_000, 5_000_000]
    assert "4 more" in result.outcome.reason


def test_the_window_is_on_one_clock(tmp_path: Path) -> None:
    """GIVEN a rank whose clock is an hour ahead THEN a step of all ranks is no longer for it."""
    rule = load_rule(write_rule(tmp_path, "mine", "SELECT 3 AS worst_step"))
    windows = []
    for hour_ns in (0, 3_600_000_000_000):
        store = store_of(ranks=4, steps=8, step_ms=STEP_NS / 1e6)
        store.con.execute(f"UPDATE rank SET clock_offset_ns = -{hour_ns} WHERE rank = 1")
        store.con.execute(
            f"UPDATE step SET start_ns = start_ns + {hour_ns}, end_ns = end_ns + {hour_ns} "
            "WHERE rank = 1"
        )
        sandbox = Sandbox(store, RUN)
        (finding,) = evaluate(rule, sandbox, read_facts(sandbox)).findings
        windows.append(finding.evidence.window)
    assert windows[0] is not None
    assert windows[0] == windows[1]


def test_the_window_is_the_worst_step(tmp_path: Path) -> None:
    (finding,) = run_rule(tmp_path, "SELECT 3 AS worst_step, 2 AS culprit_rank").findings
    window = finding.evidence.window
    assert window is not None
    assert window.step == 3
    assert window.start_ns < 3 * STEP_NS < 4 * STEP_NS < window.end_ns
    assert window.culprit_rank == 2
    assert finding.evidence.sql.startswith("SELECT 3")


def test_the_window_of_a_long_call_is_no_longer_than_a_step(tmp_path: Path) -> None:
    """Of a call of nine tenths of a step, with a third of its length on each side."""
    long = {"rank": [0, 1, 2, 3], "step": 3, "op": "all_reduce", "call_id": 7,
            "start_ns": 3 * STEP_NS, "dur_ns": 9 * STEP_NS // 10}  # fmt: skip
    rule = load_rule(write_rule(tmp_path, "mine", "SELECT 7 AS worst_call"))
    with store_of(ranks=4, steps=8, step_ms=STEP_NS / 1e6, tables={"collective": [long]}) as store:
        sandbox = Sandbox(store, RUN)
        (finding,) = evaluate(rule, sandbox, read_facts(sandbox)).findings
    window = finding.evidence.window
    assert window is not None
    assert window.end_ns - window.start_ns == STEP_NS
    assert window.start_ns <= 3 * STEP_NS < window.end_ns


@pytest.mark.parametrize(
    ("idle_ns", "idle_step", "step", "call_ids"),
    [(2_000_000, 5, 3, [7]), (4_000_000, 3, 3, [7]), (4_000_000, 5, 5, [])],
)
def test_what_idles_for_a_call_is_shown_by_the_step_that_idles_most(
    tmp_path: Path, idle_ns: int, idle_step: int, step: int, call_ids: list[int]
) -> None:
    """GIVEN a call exposed for 3 ms; beside it alone what its host does later cannot be seen, and
    in its own step neither, where the host does that in the next one."""
    short = {"rank": [0, 1], "step": 3, "op": "all_reduce", "call_id": 7,
             "start_ns": 3 * STEP_NS + 1000, "dur_ns": 100_000}  # fmt: skip
    columns = f"7 AS worst_call, 3000000 AS exposed_ns, {idle_ns} AS idle_ns"
    rule = load_rule(write_rule(tmp_path, "mine", f"SELECT {columns}"))
    with store_of(ranks=2, steps=8, step_ms=STEP_NS / 1e6, tables={"collective": [short]}) as store:
        store.con.execute("UPDATE step_breakdown SET idle_ns = 9000000 WHERE step = ?", [idle_step])
        sandbox = Sandbox(store, RUN)
        (finding,) = evaluate(rule, sandbox, read_facts(sandbox)).findings
    window = finding.evidence.window
    assert window is not None and (window.step, window.call_ids) == (step, call_ids)
    assert (window.end_ns - window.start_ns >= STEP_NS) is (idle_ns > 3_000_000)


@pytest.mark.parametrize(
    ("hosts", "ranks", "named"),
    [
        (["a", "a", "b", "b"], "[2]", ["b"]),
        (["a", "a", "b", "b"], "'b' AS host, [2]", ["b"]),
        (["a", "a", "b", "b"], "[2, 3]", ["b"]),
        (["a", "a", "b", "b"], "[1, 2]", []),
        (["a", "a", "b", "b"], "[2, 7]", []),  # of rank 7 nothing was read
        (["a", "a", "a", "a"], "[2]", []),
    ],
)
def test_who_is_named_is_named_with_the_host(
    tmp_path: Path, hosts: list[str], ranks: str, named: list[str]
) -> None:
    rule = load_rule(write_rule(tmp_path, "mine", f"SELECT {ranks} AS ranks"))
    with store_of(ranks=4, steps=8, hosts=hosts) as store:
        sandbox = Sandbox(store, RUN)
        (finding,) = evaluate(rule, sandbox, read_facts(sandbox)).findings
        own_words = rule.model_copy(update={"names_host": True})
        (itself,) = evaluate(own_words, sandbox, read_facts(sandbox)).findings
    assert finding.hosts == named
    assert (" on b" in finding.where) == bool(named)
    # It says the host that its own row gives, and no other.
    assert (" on b" in itself.where) == (bool(named) and "host" not in ranks)


@pytest.mark.parametrize("value", ["'12 ms'", "true", "[1]", "'nan'::DOUBLE"])
@pytest.mark.parametrize("column", ["savings_ns", "savings_low_ns", "savings_high_ns"])
def test_a_time_that_is_no_number_names_rule_and_column(
    tmp_path: Path, column: str, value: str
) -> None:
    columns = dict.fromkeys(("savings_ns", "savings_low_ns", "savings_high_ns"), "NULL")
    columns[column] = value
    sql = "SELECT " + ", ".join(f"{given} AS {name}" for name, given in columns.items())
    result = run_rule(tmp_path, sql)
    assert result.outcome.outcome == OutcomeKind.ERROR
    assert f"rule mine: column {column} must be a number of ns" in result.outcome.reason
    assert "not supported between" not in result.outcome.reason


def test_a_decimal_is_a_number(tmp_path: Path) -> None:
    (finding,) = run_rule(tmp_path, "SELECT 20000000.0::DECIMAL(18, 1) AS savings_ns").findings
    assert finding.savings_ns == 20_000_000


@pytest.mark.parametrize(
    ("columns", "ranks", "hosts", "links"),
    [
        ("NULL AS host, NULL AS rank", [], [], []),
        ("[NULL] AS hosts, [NULL] AS ranks", [], [], []),
        ("['a', NULL] AS hosts, [1, NULL] AS ranks", [1], ["a"], []),
        ("'a' AS host, 0 AS rank, 'a-b' AS link", [0], ["a"], ["a-b"]),
        ("1 AS hosts, 4 AS ranks, 12 AS links", [], [], []),
        ("2 AS hosts, 'a' AS host, 4 AS ranks, 3 AS rank", [3], ["a"], []),
        ("1 AS host, [1, 2] AS hosts, [7] AS links", [], [], []),
        ("f.hosts, f.ranks_read AS ranks", [], [], []),
    ],
)
def test_only_names_become_names(
    tmp_path: Path, columns: str, ranks: list[int], hosts: list[str], links: list[str]
) -> None:
    """GIVEN a host that is not known or a count of hosts THEN the finding names none after it."""
    (finding,) = run_rule(tmp_path, f"SELECT {columns} FROM facts f").findings
    assert (finding.ranks, finding.hosts, finding.links) == (ranks, hosts, links)
