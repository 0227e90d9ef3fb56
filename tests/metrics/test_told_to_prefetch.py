"""Which FSDP a trace is of, and whether a script told it what to gather ahead: FSDP2 prefetches the
backward pass by itself."""

from __future__ import annotations

import pytest

from advisor.metrics.timeline.content import content_rows
from advisor.store.store import Store


@pytest.mark.parametrize(("direction", "told"), [("forward", True), ("backward", False)])
def test_only_the_forward_passes_prefetching_is_the_scripts_own(direction: str, told: bool) -> None:
    with Store.create() as store:
        store.con.execute(
            "INSERT INTO event BY NAME SELECT 'run' AS run, 0 AS rank, 0 AS event_id, "
            "'annotation' AS class, $1 AS name, 0 AS start_ns, 5 AS dur_ns",
            [f"FSDP::{direction}_prefetch for blocks.1"],
        )
        (row,) = content_rows(store.con, "run")
    assert row["prefetches"] is told


@pytest.mark.parametrize(
    ("name", "trainer"),
    [("FSDP::all_gather (blocks.1)", "FSDP2"), ("FullyShardedDataParallel._pre_forward", "FSDP1")],
)
def test_either_fsdp_is_told_by_its_ranges_around_compiled_modules_too(
    name: str, trainer: str
) -> None:
    with Store.create() as store:
        store.con.execute(
            "INSERT INTO event BY NAME SELECT 'run' AS run, 0 AS rank, 0 AS event_id, "
            "'annotation' AS class, unnest($1) AS name, 0 AS start_ns, 5 AS dur_ns",
            [[name, "## Call CompiledFxGraph f1 ##", "Optimizer.step#AdamW.step"]],
        )
        (row,) = content_rows(store.con, "run")
    assert row["engine"] == trainer
