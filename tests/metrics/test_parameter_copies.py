"""Copies by which FSDP2 takes gathered parameters apart, by step."""

from __future__ import annotations

from advisor.metrics.collectives.summaries import PARAMETER_COPIES
from advisor.store import Store


def test_device_spans_of_copies_count_in_the_step_that_they_start_in() -> None:
    with Store.create() as store:
        for number, (name, device, start, took) in enumerate(
            [
                ("FSDP::all_gather_copy_out (layers.0)", 0, 10, 4),
                ("FSDP::all_gather_copy_out (layers.1)", 0, 30, 6),
                ("FSDP::all_gather_copy_out (layers.0)", 0, 110, 5),
                ("FSDP::all_gather_copy_out (layers.0)", None, 8, 9),  # its host's span
                ("FSDP::all_gather (layers.0)", 0, 20, 7),
                ("FSDP::all_gather_copy_out (layers.0)", 0, 250, 5),  # behind the last step
            ]
        ):
            store.con.execute(
                "INSERT INTO event BY NAME SELECT 'run' AS run, 0 AS rank, $1::BIGINT AS event_id, "
                "$2 AS name, 'annotation' AS class, $3::INTEGER AS device, $4::BIGINT AS start_ns, "
                "$5::BIGINT AS dur_ns",
                [number, name, device, start, took],
            )
        for step in (1, 2):
            store.con.execute(
                "INSERT INTO step BY NAME SELECT 'run' AS run, 0 AS rank, $1::INTEGER AS step, "
                "$2::BIGINT AS start_ns, $3::BIGINT AS end_ns, true AS complete, true AS used, "
                "'ProfilerStep' AS source",
                [step, 100 * (step - 1), 100 * step],
            )
        store.con.execute(PARAMETER_COPIES, ["run"])
        found = store.con.execute("FROM parameter_copy ORDER BY step").fetchall()
    assert found == [("run", 0, 1, 2, 10), ("run", 0, 2, 1, 5)]
