"""How often a step gathers the same parameters, with and without names of modules."""

from __future__ import annotations

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.gradients import sync_rows
from advisor.metrics.collectives.phases import set_phases
from tests.metrics.test_backward_passes import NODE, spans

SIZES = (1 << 20, 1 << 20, 3 << 20)  # of the modules
FORWARD = "FullyShardedDataParallel.forward"


def step_of(
    micro_batches: int, *, regather: bool, reduced: tuple[int, ...] = SIZES, named: bool = False
) -> int | None:
    """``gathers`` of a step of FSDP that reduces in its last micro-batch only."""
    calls, marks, now = [], [], 0

    def ask(op: str, size: int, module: int) -> None:
        nonlocal now
        now += 2
        calls.append(
            Call(0, op, now, now + 1, event_id=len(calls), enqueue=now, thread=1, bytes=size,
                 group="0", step=1, module=f"layers.{module}" if named else None)
        )  # fmt: skip

    for micro in range(micro_batches):
        begin = now
        for module, size in enumerate(SIZES):
            if regather or micro == 0:
                ask("all_gather", size, module)
        marks.append((FORWARD, 1, begin, now + 1))
        begin = now = now + 2
        for module, size in enumerate(SIZES):
            if regather:
                ask("all_gather", size, module)
        for module, size in enumerate(reduced if micro == micro_batches - 1 else ()):
            ask("reduce_scatter", size, module)
        now += 2
        marks.append((NODE, 1, begin, now))
        now += 2
    found = spans(*marks)
    set_phases(calls, found)
    (row,) = sync_rows("run", 0, calls, found, {1: (0, now)})
    assert (row["micro_batches"], row["syncs"]) == (micro_batches, 1)
    return row["gathers"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("named", [True, False], ids=["FSDP2", "FSDP1"])
@pytest.mark.parametrize(
    ("micro_batches", "regather", "gathers"), [(1, True, 2), (3, True, 6), (3, False, 1)]
)
def test_gathers_of_a_module_are_counted(
    named: bool, micro_batches: int, regather: bool, gathers: int
) -> None:
    assert step_of(micro_batches, regather=regather, named=named) == gathers


def test_buckets_of_other_sizes_than_the_modules_tell_nothing() -> None:
    assert step_of(3, regather=True, reduced=(sum(SIZES),)) is None
