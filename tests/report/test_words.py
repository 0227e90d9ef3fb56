"""Words on the page that a newcomer would misread if they were left out."""

from __future__ import annotations

import re

from advisor.findings import FindingsReport, Outcome, OutcomeKind
from advisor.report import render
from tests.report.support import MS, RUN, make_healthy_report, make_report, make_store


def _with_outcomes(passed: int, blind: int) -> FindingsReport:
    kinds = [OutcomeKind.PASSED] * passed + [OutcomeKind.NOT_APPLICABLE] * blind
    outcomes = [
        Outcome(run=RUN, rule=f"rule-{number}", outcome=kind, reason="no log was given")
        for number, kind in enumerate(kinds)
    ]
    return make_healthy_report().model_copy(update={"outcomes": outcomes})


def test_no_finding_is_called_healthy_only_where_most_rules_could_look() -> None:
    looked = render(_with_outcomes(passed=3, blind=1), None, "html")
    assert "No rule found anything that costs time in what was recorded." in looked
    blind = render(_with_outcomes(passed=1, blind=3), None, "html")
    assert "The one check that could look found nothing; 3 others could not look" in blind


def test_where_no_rule_could_look_there_is_no_section_of_findings() -> None:
    page = render(_with_outcomes(passed=0, blind=3), None, "html")
    assert 'id="findings"' not in page
    assert "no log was given" in page


def test_the_share_of_hidden_communication_is_that_of_the_steps_drawn() -> None:
    with make_store() as store:
        # Half of it hidden in the complete steps; the warm-up beside them would blur the figure.
        store.con.execute("UPDATE step_breakdown SET comm_ns = 2 * ?, hidden_comm_ns = ?", [MS, MS])
        store.con.execute("UPDATE run_breakdown SET comm_ns = 100 * ?, hidden_comm_ns = 0", [MS])
        page = render(make_report(), store, "html")
    assert re.search(r"50\s%\sof\scommunication\soverlaps\scompute", page)


def test_sizes_say_whether_they_are_of_a_call_or_on_the_wire() -> None:
    with make_store() as store:
        store.con.execute(
            "INSERT INTO traffic BY NAME SELECT ? AS run, '0' AS process_group, 'all_reduce' AS op,"
            " 8 AS group_size, 1.0 AS calls_per_step, 1000 AS smallest_bytes,"
            " 1000 AS largest_bytes, 1750 AS wire_bytes_per_step",
            [RUN],
        )
        page = render(make_report(), store, "html")
        store.con.execute("UPDATE traffic SET smallest_bytes = NULL, largest_bytes = NULL")
        without = render(make_report(), store, "html")
    assert "size of one call" in page
    assert "on the wire, per step" in page
    assert "Size of one call: its buffer" in page
    assert "does not hold the calls" in without
