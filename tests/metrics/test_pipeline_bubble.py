"""The bubble of every stage of a 1F1B schedule whose times are worked out by hand."""

from __future__ import annotations

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.models.pipeline import pipeline_rows
from advisor.metrics.timeline.intervals import Intervals
from advisor.store import Store

MS = 1_000_000
STEP = 170  # ms

# Three stages, two micro-batches; forward 10 ms, backward 20, a message 10. What each stage
# computes, in ms: F0 F1 B0 B1 of the first, then of the middle, then of the last.
COMPUTE = {
    0: [(0, 10), (10, 20), (110, 130), (140, 160)],
    1: [(20, 30), (30, 40), (80, 100), (110, 130)],
    2: [(40, 50), (70, 80), (50, 70), (80, 100)],
}
# (from, to, when it is sent and, 10 ms later, there; since when the receiver asks for it)
MESSAGES = [
    (0, 1, 10, 0),
    (0, 1, 20, 20),
    (1, 2, 30, 0),
    (1, 2, 40, 40),
    (2, 1, 70, 40),
    (2, 1, 100, 100),
    (1, 0, 100, 20),
    (1, 0, 130, 130),
]


def calls() -> dict[int, list[Call]]:
    """Sends begin when they are sent; a receive waits until then."""
    found: dict[int, list[Call]] = {rank: [] for rank in COMPUTE}
    for number, (source, target, sent, asked) in enumerate(MESSAGES):
        end = (sent + 10) * MS
        for rank, op, start, peer in (
            (source, "send", sent, target),
            (target, "recv", min(asked, sent), source),
        ):
            call = Call(rank, op, start * MS, end, number, peer=peer, step=0)
            call.wait, call.t_is = (sent - start) * MS, "matched"
            found[rank].append(call)
    return found


def test_a_stage_that_waits_while_it_sends_is_in_its_bubble() -> None:
    own = calls()
    compute = {
        rank: Intervals.of([s * MS for s, _ in spans], [e * MS for _, e in spans])
        for rank, spans in COMPUTE.items()
    }
    with Store.create() as store:
        for rank in COMPUTE:
            moving = Intervals.of([c.start + (c.wait or 0) for c in own[rank]],
                                  [c.end for c in own[rank]])  # fmt: skip
            comm = Intervals.of([c.start for c in own[rank]], [c.end for c in own[rank]])
            window = ([0], [STEP * MS])
            computed = int(compute[rank].covered(*window)[0])
            exposed = int((comm - compute[rank]).covered(*window)[0])
            transfer = int((moving - compute[rank]).covered(*window)[0])
            store.con.execute(
                "INSERT INTO step (run, rank, step, start_ns, end_ns, complete, used, source) "
                "VALUES ('run', ?, 0, 0, ?, true, true, 'ProfilerStep')",
                [rank, STEP * MS],
            )
            store.con.execute(
                "INSERT INTO step_breakdown (run, rank, step, complete, used, window_ns, "
                "compute_ns, exposed_comm_ns, idle_ns, exposed_wait_ns, exposed_memory_ns, "
                "other_ns, comm_ns, hidden_comm_ns) "
                "VALUES ('run', ?, 0, true, true, ?, ?, ?, ?, ?, 0, 0, 0, 0)",
                [rank, STEP * MS, computed, exposed, STEP * MS - computed - exposed,
                 exposed - transfer],
            )  # fmt: skip
        rows = pipeline_rows(store.con, "run", own, compute)
    assert [row["rank"] for row in rows] == [0, 1, 2]
    # First: waits 20-100 for a gradient (and sends 20-30), is done at 160. Middle: waits 0-10 and
    # 40-70 (and sends 40-50), its last message is there at 140. Last: waits 0-30, done at 110.
    bubbles = {row["rank"]: row["bubble_ns"] / MS for row in rows}
    assert bubbles == pytest.approx({0: 80 + 10, 1: 10 + 30 + 30, 2: 30 + 60})
