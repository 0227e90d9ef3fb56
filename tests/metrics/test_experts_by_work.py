"""Who has the busiest experts where what each rank receives was not recorded."""

from __future__ import annotations

import json

import pytest

from advisor.metrics.collectives.summaries import EXPERTS_BY_WORK
from advisor.store.store import Store

KERNELS = ("notify_dispatch<8>", "dispatch<8>", "cached_notify_combine<8>", "combine<8>")
RANKS, LAYERS, LATE = 4, 5, 2


def store(late_at: int, evidence: dict[str, str], reason: str = "more-work") -> Store:
    """A rank that comes last to one of the calls of each layer; the others are on time by turns."""
    made = Store.create()
    for number in range(LAYERS * len(KERNELS)):
        layer, place = divmod(number, len(KERNELS))
        last = LATE if place == late_at else (layer + place) % RANKS
        for rank in range(RANKS):
            made.con.execute(
                "INSERT INTO collective BY NAME SELECT 'run' AS run, $1 AS rank, $2 AS call_id, "
                "'all_to_all' AS op, 'ep' AS process_group, 4 AS group_size, 0 AS start_ns, "
                "1 AS end_ns, $2 AS event_id, $3 AS last_rank",
                [rank, number, last],
            )
            made.con.execute(
                "INSERT INTO event BY NAME SELECT 'run' AS run, $1 AS rank, $2 AS event_id, "
                "$3 AS name",
                [rank, number, f"void deep_ep::intranode::{KERNELS[place]}(int)"],
            )
    made.con.execute(
        "INSERT INTO lateness BY NAME SELECT 'run' AS run, $1 AS rank, 20 AS calls, "
        "5 AS times_last, true AS systematic, $2 AS reason, $3 AS reason_evidence",
        [LATE, reason, json.dumps(evidence)],
    )
    made.con.execute(EXPERTS_BY_WORK, ["run"])
    return made


MORE = {"own": "[3000,512]", "usual": "[1000,512]"}


def test_who_is_last_to_combine_with_more_rows_has_the_busiest_experts() -> None:
    (row,) = (
        store(2, MORE)
        .con.execute(
            "SELECT process_group, calls, imbalance, busiest_rank, busiest_share "
            "FROM expert_balance"
        )
        .fetchall()
    )
    assert row == ("ep", LAYERS, pytest.approx(3000 / 1500), LATE, 1.0)


@pytest.mark.parametrize(
    ("late_at", "evidence", "reason"),
    [
        (0, MORE, "more-work"),  # last to dispatch: its other layers have more to do
        (2, {}, "more-work"),  # shapes were not recorded
        (2, MORE, "slow-compute"),
    ],
)
def test_who_is_late_for_something_else_has_not(
    late_at: int, evidence: dict[str, str], reason: str
) -> None:
    assert not store(late_at, evidence, reason).con.execute("FROM expert_balance").fetchall()
