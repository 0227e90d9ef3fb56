"""One hardware queue or several: from which launches start together and which overtake."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.host.queue import queue_row
from advisor.metrics.timeline.timeline import COMM, COMPUTE, Timeline

US = 1_000
COMPUTE_STREAM, NCCL_STREAM = 7, 20
NO_WAITS = np.empty(0, dtype=np.int64)


def scheduled(*, one_queue: bool, layers: int = 12) -> Timeline:
    """FSDP's layers: compute (500 us), and a gather (300 us) that is launched behind it.

    The gather of a layer waits for nothing but its stream. In one queue it starts once the kernel
    launched before it has started; with several it starts at once. Every third layer's compute
    waits for an event of its gather.
    """
    rows = []  # kind, start, end, stream, launch
    compute_end = gather_end = head = 0
    for layer in range(layers):
        launch = layer * 20 * US
        start = max(compute_end, launch, head, gather_end if layer % 3 == 2 else 0)
        rows.append((COMPUTE, start, start + 500 * US, COMPUTE_STREAM, launch))
        compute_end, head = start + 500 * US, start if one_queue else 0
        begin = max(gather_end, launch + 5 * US, head)
        rows.append((COMM, begin, begin + 300 * US, NCCL_STREAM, launch + 5 * US))
        gather_end, head = begin + 300 * US, begin if one_queue else 0
    rows.sort(key=lambda row: row[1])
    kind, start_ns, end_ns, stream, launch_ns = (
        np.array(c, dtype=np.int64) for c in zip(*rows, strict=True)
    )
    count = np.arange(len(rows), dtype=np.int64)
    return Timeline(0, True, kind, start_ns, end_ns, stream, count, launch_ns, count * 0)


@pytest.mark.parametrize("one_queue", [True, False])
def test_nothing_overtakes_in_one_queue(one_queue: bool) -> None:
    row = queue_row("run", scheduled(one_queue=one_queue), NO_WAITS)
    assert row is not None
    assert (row["overtaken"] == 0) == one_queue
    assert (row["in_order"] > 5) == one_queue


def test_launches_inside_a_graph_have_no_order() -> None:
    line = scheduled(one_queue=True)
    graph = Timeline(**{**vars(line), "in_graph": np.ones(len(line), dtype=bool)})
    assert queue_row("run", graph, NO_WAITS) is None


def timeline(rows: list[tuple[int, int, int, int, int]]) -> Timeline:
    """Of kind, start, end, stream and launch of each kernel."""
    columns = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    kind, start_ns, end_ns, stream, launch_ns = columns
    count = np.arange(len(rows), dtype=np.int64)
    return Timeline(0, True, kind, start_ns, end_ns, stream, count, launch_ns, count * 0)


def reduced(layers: int = 12) -> tuple[Timeline, list[int]]:
    """DDP's backward pass: each layer's compute (500 us), its reduction (300 us) behind it, and the
    next layer's compute when that is done; when the host told NCCL's stream to wait."""
    rows, waits = [], []
    now = 0
    for layer in range(layers):
        launch = layer * 20 * US
        rows.append((COMPUTE, now, now + 500 * US, COMPUTE_STREAM, launch))
        waits.append(launch + 4 * US)
        rows.append((COMM, now + 500 * US, now + 800 * US, NCCL_STREAM, launch + 5 * US))
        now += 800 * US
    return timeline(rows), waits


def test_compute_that_was_told_to_wait_for_nothing_is_held_by_the_queue() -> None:
    """GIVEN reductions behind which the host tells the computing stream to wait THEN that is why
    nothing overlaps; where it does not, one queue is."""
    line, waits = reduced()
    row = queue_row("run", line, np.array(waits, dtype=np.int64))
    assert row is not None
    assert (row["overtaken"], row["in_order"]) == (0, 11)
    blocking = sorted([*waits, *(wait + 8 * US for wait in waits)])
    for told in (np.array(blocking, dtype=np.int64), NO_WAITS):
        row = queue_row("run", line, told)
        assert row is not None
        assert row["in_order"] == 0


def gathered_late(layers: int = 12) -> tuple[Timeline, list[int]]:
    """FSDP without prefetching: behind each layer's compute (500 us) a reduction (300 us) and, on a
    third stream, the copy (50 us) into the next layer's gather, for which that compute waits.

    Both wait for the compute; of the copy's stream no record says so.
    """
    copy_stream = 28
    rows, waits = [], []
    now = 0
    for layer in range(layers):
        launch = layer * 20 * US
        rows.append((COMPUTE, now, now + 500 * US, COMPUTE_STREAM, launch))
        now += 500 * US
        if layer % 2:
            waits.append(launch + 4 * US)  # for the compute
            rows.append((COMM, now, now + 300 * US, NCCL_STREAM, launch + 5 * US))
        rows.append((COMPUTE, now, now + 50 * US, copy_stream, launch + 6 * US))
        now += 50 * US
        waits.append(launch + 7 * US)  # for the copy
        rows.append((COMM, now, now + 300 * US, copy_stream, launch + 8 * US))
        now += 300 * US
        waits.append(launch + 9 * US)  # and the next layer for the gather
    return timeline(rows), waits


def test_a_gather_that_waits_for_compute_before_it_shows_no_queue() -> None:
    """GIVEN copies that start as the compute launched before them ends, or together with a call
    that waited for it as well, THEN no queue held them: it would have let them start with the
    compute, or behind the call."""
    line, waits = gathered_late()
    row = queue_row("run", line, np.array(waits, dtype=np.int64))
    assert row is not None
    assert row["waiting"] >= 10
    assert (row["in_order"], row["overtaken"]) == (0, 0)
