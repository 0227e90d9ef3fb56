"""Copies by which FSDP2 takes gathered parameters apart, by step."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.metrics.collectives.summaries import PARAMETER_COPIES
from advisor.store import Store

KERNEL = (
    "void at::native::(anonymous namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel"
)
RANGES = [
    ("FSDP::all_gather_copy_out (layers.0)", "annotation", 0, 10, 4),
    ("FSDP::all_gather_copy_out (layers.1)", "annotation", 0, 30, 6),
    ("FSDP::all_gather_copy_out (layers.0)", "annotation", 0, 110, 5),
    ("FSDP::all_gather_copy_out (layers.0)", "annotation", None, 8, 9),  # its host's span
    ("FSDP::all_gather (layers.0)", "annotation", 0, 20, 7),
    ("FSDP::all_gather_copy_out (layers.0)", "annotation", 0, 250, 5),  # behind the last step
]
KERNELS = [(KERNEL, "compute", 0, 11, 2), (KERNEL, "compute", 0, 111, 3)]


def copies(events: Sequence[tuple[str, str, int | None, int, int]]) -> list[tuple[int, ...]]:
    """Step, copies and their time, of events of two steps of 100 ns."""
    with Store.create() as store:
        for number, (name, of_class, device, start, took) in enumerate(events):
            store.con.execute(
                "INSERT INTO event BY NAME SELECT 'run' AS run, 0 AS rank, $1::BIGINT AS event_id, "
                "$2 AS name, $3 AS class, $4::INTEGER AS device, $5::BIGINT AS start_ns, "
                "$6::BIGINT AS dur_ns",
                [number, name, of_class, device, start, took],
            )
        for step in (1, 2):
            store.con.execute(
                "INSERT INTO step BY NAME SELECT 'run' AS run, 0 AS rank, $1::INTEGER AS step, "
                "$2::BIGINT AS start_ns, $3::BIGINT AS end_ns, true AS complete, true AS used, "
                "'ProfilerStep' AS source",
                [step, 100 * (step - 1), 100 * step],
            )
        store.con.execute(PARAMETER_COPIES, ["run"])
        return store.con.execute(
            "SELECT step, copies, copies_ns FROM parameter_copy ORDER BY step"
        ).fetchall()


def test_device_spans_of_copies_count_in_the_step_that_they_start_in() -> None:
    assert copies(RANGES) == [(1, 2, 10), (2, 1, 5)]


def test_kernels_of_copies_count_where_no_range_holds_them() -> None:
    assert copies([*RANGES, *KERNELS]) == copies(RANGES)
    assert copies([RANGES[3], *KERNELS]) == [(1, 1, 2), (2, 1, 3)]
