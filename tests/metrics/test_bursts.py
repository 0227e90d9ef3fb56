"""What tiny collectives in a row cost a host: from asking for the first to the end of the last."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import duckdb
import pytest

from advisor.metrics.collectives.redundant import REDUNDANT, TINY_BYTES, may_be_redundant
from advisor.store.store import Store

_US = 1_000
_INSERT_CALL = """
INSERT INTO collective BY NAME SELECT 'run' AS run, 0 AS rank, ? AS call_id, 1 AS step, ? AS op,
  '0' AS process_group, 2 AS group_size, ?::BIGINT AS bytes, ? AS phase, ?::BIGINT AS start_ns,
  ?::BIGINT AS end_ns, 5000 AS exposed_transfer_ns
"""
_FIRST_CALL_REDUCES = """
INSERT INTO param_bucket BY NAME SELECT 'run' AS run, 0 AS rank, 1 AS step, 0 AS bucket,
  0 AS call_id;
"""
_OPTIMIZER = """
INSERT INTO event BY NAME SELECT 'run' AS run, 0 AS rank, 0 AS event_id, 'annotation' AS class,
  'Optimizer.step#AdamW.step' AS name, 90000000 AS start_ns, 1000 AS dur_ns
"""


@contextmanager
def _one_step() -> Iterator[duckdb.DuckDBPyConnection]:
    """A store of one rank on a host's timeline, with one step and no calls yet."""
    with Store.create() as store:
        store.con.execute(
            """
            INSERT INTO rank BY NAME SELECT 'run' AS run, 0 AS rank, 'host' AS timeline;
            INSERT INTO step BY NAME SELECT 'run' AS run, 0 AS rank, 1 AS step, 0 AS start_ns,
              100000000 AS end_ns, true AS complete, true AS used, 'annotation' AS source;
            """
        )
        yield store.con


def _span(
    calls_us: list[tuple[int, int]], idle_us: Sequence[tuple[int, int]] = (), no_core_us: int = 0
) -> int:
    """``span_ns_per_step`` of scalar gathers that are asked for and end at these microseconds; the
    rank idles between the others, ``no_core_us`` of it for want of a core."""
    with _one_step() as con:
        noted = f'{{"advisor": {{"core_wait_ns": [{no_core_us * _US}]}}}}'
        con.execute("UPDATE rank SET metadata = ?", [noted])
        con.execute("INSERT INTO run (run, created_at, advisor_version) VALUES ('run', '', 'test')")
        for number, (asked, end) in enumerate(calls_us):
            con.execute(
                """
                INSERT INTO collective BY NAME SELECT 'run' AS run, 0 AS rank, ? AS call_id,
                  1 AS step, 'all_gather' AS op, '0' AS process_group, 2 AS group_size, 8 AS bytes,
                  ? AS enqueue_ns, ? AS start_ns, ? AS end_ns, 5000 AS exposed_transfer_ns,
                  0 AS wait_ns
                """,
                [number, asked * _US, (asked + 10) * _US, end * _US],
            )
        for start, end in idle_us:
            con.execute(
                "INSERT INTO host_gap BY NAME SELECT 'run' AS run, 0 AS rank, 1 AS step, "
                "'other' AS kind, $1 AS start_ns, $2 AS end_ns, $2 - $1 AS idle_ns",
                [start * _US, end * _US],
            )
        con.execute(REDUNDANT, ["run"])
        (row,) = con.execute("SELECT span_ns_per_step FROM redundant").fetchall()
        return int(row[0])


def _kinds(
    con: duckdb.DuckDBPyConnection, calls: Sequence[tuple[str, str, int]]
) -> set[tuple[str, float]]:
    """How many calls of each kind are needless, of calls 200 us long that follow every ms."""
    for number, (op, phase, size) in enumerate(calls):
        con.execute(
            _INSERT_CALL,
            [number, op, size, phase, number * 1000 * _US, (number * 1000 + 200) * _US],
        )
    con.execute(REDUNDANT, ["run"])
    found = con.execute("SELECT kind, sum(calls_per_step) FROM redundant GROUP BY kind").fetchall()
    return {(kind, calls) for kind, calls in found}


@pytest.mark.parametrize(
    ("calls_us", "span_us"),
    [
        ([(100, 200), (300, 400), (600, 700)], 600),
        ([(100, 1900), (2000, 2100)], 2000),  # a call that waits long does not break the burst
        ([(100, 200), (1500, 1600)], 0),  # compute lies between them: each is alone
        ([(100, 200), (300, 400), (5000, 5100), (5200, 5300)], 600),  # two bursts
    ],
)
def test_a_burst_lasts_from_asking_for_its_first_call_to_the_end_of_its_last(
    calls_us: list[tuple[int, int]], span_us: int
) -> None:
    assert _span(calls_us) == span_us * _US


@pytest.mark.parametrize(
    ("idle_us", "span_us"),
    [
        ([(200, 900), (1100, 1900)], 2000),  # Python with an operator in it
        ([(200, 1900)], 0),  # a pause
        ([(200, 500)], 0),  # compute of 1.5 ms
        ([(50, 900)], 0),  # before the call's end: none of what lies between
    ],
)
def test_python_between_two_calls_is_of_the_burst(
    idle_us: list[tuple[int, int]], span_us: int
) -> None:
    """Two calls with 1.8 ms between them."""
    assert _span([(100, 200), (2000, 2100)], idle_us) == span_us * _US


@pytest.mark.parametrize(
    ("no_core_us", "span_us"),
    [
        (0, 0),  # two pauses
        (3900, 4400),  # of 1.8 and 2.0 ms: the waits for a core of a thread that calls woke
        (2500, 2100),  # no more of them than the step lacks a core
    ],
)
def test_what_a_woken_rank_waits_for_a_core_is_of_the_burst(no_core_us: int, span_us: int) -> None:
    calls_us = [(100, 200), (2000, 2200), (4200, 4500)]
    assert _span(calls_us, [(200, 2000), (2200, 4200)], no_core_us) == span_us * _US


@pytest.mark.parametrize("size", [None, TINY_BYTES, TINY_BYTES + 1])
@pytest.mark.parametrize(
    "op",
    ["barrier", "broadcast", "all_gather", "all_reduce", "reduce", "reduce_scatter", "all_to_all"],
)
def test_calls_that_are_not_looked_at_give_no_row(op: str, size: int | None) -> None:
    with _one_step() as con:
        for number, phase in enumerate(("forward", "backward")):
            con.execute(
                """
                INSERT INTO collective BY NAME SELECT 'run' AS run, 0 AS rank, ? AS call_id,
                  1 AS step, ? AS op, '0' AS process_group, 2 AS group_size, ?::BIGINT AS bytes,
                  ? AS phase, ? AS start_ns, ? AS end_ns, 'layer' AS module,
                  5000 AS exposed_transfer_ns
                """,
                [number, op, size, phase, number * _US, (number + 1) * _US],
            )
        con.execute(REDUNDANT, ["run"])
        (found,) = con.execute("SELECT count(*) FROM redundant").fetchone() or (0,)
    assert may_be_redundant(op, size) or not found


@pytest.mark.parametrize(
    ("op", "phase", "sizes", "kinds"),
    [
        ("broadcast", None, (1600, 40, 360), {("parameters", 3.0, 2200)}),
        ("broadcast", "optimizer", (1600, 40, 360), set()),  # ZeRO-1: each rank updates its own
        ("broadcast", None, (40, 360), {("tiny", 2.0, 1200)}),  # fewer bytes: something else
        ("broadcast", "forward", (600, 400), {("buffers", 2.0, None)}),  # DDP's, small ones too
        ("broadcast", "forward", (2000,), set()),  # ZeRO-1, where no range is the optimizer's
        ("all_reduce", "other", (1600, 40, 360), {("parameters", 3.0, 2200)}),  # averaged
        ("all_reduce", "other", (40, 360), {("tiny", 2.0, 1200)}),
        ("all_reduce", "forward", (1600, 400), {("tiny", 1.0, 0)}),
    ],
)
def test_calls_of_as_many_bytes_as_the_gradients_are_parameters(
    op: str, phase: str | None, sizes: tuple[int, ...], kinds: set[tuple[str, float, int | None]]
) -> None:
    """A reduction of 2,000 bytes, then calls asked for every millisecond, 200 us long."""
    assert _after_a_reduction(op, phase, sizes, _OPTIMIZER) == kinds


def test_without_any_mark_of_an_optimizer_it_may_hand_out_the_parameters() -> None:
    assert _after_a_reduction("broadcast", None, (1600, 40, 360), "") == set()


def _after_a_reduction(
    op: str, phase: str | None, sizes: tuple[int, ...], marks: str
) -> set[tuple[str, float, int | None]]:
    with _one_step() as con:
        con.execute(_FIRST_CALL_REDUCES + marks)
        calls = [("all_reduce", None, 2000), *((op, phase, size) for size in sizes)]
        for number, (one, of, size) in enumerate(calls):
            con.execute(
                _INSERT_CALL,
                [number, one, size, of, number * 1000 * _US, (number * 1000 + 200) * _US],
            )
        con.execute(REDUNDANT, ["run"])
        return {
            tuple(row)
            for row in con.execute(
                "SELECT kind, sum(calls_per_step), sum(span_ns_per_step) // 1000 FROM redundant "
                "GROUP BY kind"
            ).fetchall()
        }


@pytest.mark.parametrize(
    ("calls", "tiny"),
    [
        ([("reduce_scatter", "backward", 9000), ("all_reduce", "other", 4)], 0),  # the norm
        ([("reduce_scatter", "backward", 9000), ("all_reduce", "other", 1)], 1),  # a barrier
        ([("reduce_scatter", "backward", 9000), ("all_reduce", "backward", 4)], 1),
        ([("reduce_scatter", "backward", 9000), *[("all_reduce", "other", 4)] * 3], 2),
        ([("all_reduce", "backward", 9000), ("all_reduce", "other", 4)], 1),  # nothing is sharded
    ],
)
def test_the_norm_of_sharded_gradients_is_no_needless_scalar(
    calls: list[tuple[str, str, int]], tiny: int
) -> None:
    with _one_step() as con:
        for number, (op, phase, size) in enumerate(calls):
            con.execute(
                _INSERT_CALL,
                [number, op, size, phase, number * 1000 * _US, (number * 1000 + 200) * _US],
            )
        con.execute(REDUNDANT, ["run"])
        (found,) = con.execute(
            "SELECT coalesce(sum(calls_per_step), 0) FROM redundant WHERE kind = 'tiny'"
        ).fetchone() or (0,)
    assert found == tiny


@pytest.mark.parametrize(
    ("sizes", "optimizer_us", "kinds"),
    [
        ((1600, 40, 360), [4500], {("gradients", 3.0)}),  # between the shards and the optimizer
        (
            (1600, 40, 360),
            [500, 9000],
            {("tiny", 2.0)},
        ),  # ZeRO-1: what the optimizer made is handed out
        ((1600, 40, 360), [], {("tiny", 2.0)}),  # no optimizer is recorded: it may have been before
        ((40, 360), [4500], {("tiny", 2.0)}),  # fewer bytes: something else
    ],
)
def test_sharded_gradients_that_are_gathered_before_the_optimizer_are_whole_for_nobody(
    sizes: tuple[int, ...], optimizer_us: list[int], kinds: set[tuple[str, float]]
) -> None:
    """Gradients of 2,000 bytes are scattered, then calls follow every millisecond."""
    with _one_step() as con:
        con.execute(_FIRST_CALL_REDUCES)
        for start in optimizer_us:
            con.execute(
                "INSERT INTO event BY NAME SELECT 'run' AS run, 0 AS rank, 0 AS event_id, "
                "'annotation' AS class, 'Optimizer.step#SGD.step' AS name, ? AS start_ns, "
                "100 AS dur_ns",
                [start * _US],
            )
        calls = [("reduce_scatter", "backward", 2000), *(("all_gather", "other", s) for s in sizes)]
        assert _kinds(con, calls) == kinds


@pytest.mark.parametrize(
    ("forward", "sizes", "more_steps", "kinds"),
    [
        (2000, (1600, 40, 360), 0, {("weights", 3.0)}),  # an average of the weights, kept whole
        (2000, (1600, 40, 360), 1, {("weights", 1.5)}),  # in every second step
        (2000, (1600, 40, 360), 2, set()),  # in one of three: a checkpoint
        (0, (1600, 40, 360), 0, {("tiny", 2.0)}),  # ZeRO-1: nobody gathers them in forward
        (2000, (40, 360), 0, {("tiny", 2.0)}),  # fewer bytes: something else
    ],
)
def test_weights_that_are_gathered_beside_the_forward_pass_are_whole_for_nobody(
    forward: int, sizes: tuple[int, ...], more_steps: int, kinds: set[tuple[str, float]]
) -> None:
    """Of gradients of 2,000 bytes; the optimizer ran before the step."""
    with _one_step() as con:
        for step in range(2, 2 + more_steps):
            con.execute("INSERT INTO step SELECT * REPLACE (? AS step) FROM step LIMIT 1", [step])
        con.execute(_FIRST_CALL_REDUCES)
        con.execute("UPDATE param_bucket SET call_id = ?", [len(sizes) + bool(forward)])
        calls = [("all_gather", "optimizer", size) for size in sizes]
        calls += [("all_gather", "forward", forward)] * bool(forward)
        calls.append(("reduce_scatter", "backward", 2000))
        assert _kinds(con, calls) == kinds


@pytest.mark.parametrize(
    ("large", "gap_us", "tiny"),
    [
        (9000, 300, 2.0),  # logits with their loss
        (9000, 1500, 1.0),  # compute lies between them
        (2000, 300, 1.0),  # as many bytes as the gradients: parameters that a rank made
    ],
)
def test_what_is_gathered_with_numbers_is_for_them(large: int, gap_us: int, tiny: float) -> None:
    """On a host, gradients of 2,000 bytes, then a large gather and one of a number after it."""
    with _one_step() as con:
        con.execute(_FIRST_CALL_REDUCES)
        at = 0
        for number, (op, phase, size) in enumerate(
            [
                ("all_reduce", "backward", 2000),
                ("all_gather", "other", large),
                ("all_gather", "other", 8),
            ]
        ):
            con.execute(_INSERT_CALL, [number, op, size, phase, at * _US, (at + 200) * _US])
            at += 200 + gap_us
        con.execute(REDUNDANT, ["run"])
        found = con.execute("SELECT sum(calls_per_step) FROM redundant WHERE kind = 'tiny'")
        assert found.fetchone() == (tiny,)


_FORWARD, _GRADIENTS = ("forward", "", 0), ("all_reduce", "backward", 2000)


@pytest.mark.parametrize(
    ("calls", "kinds"),
    [
        ([("all_gather", "other", 9000), _GRADIENTS], {("gathered", 1.0)}),  # for a loss, or shown
        ([("all_gather", "forward", 9000), _GRADIENTS], {("gathered", 1.0)}),
        ([_GRADIENTS, ("all_gather", "other", 9000)], {("shown", 1.0)}),
        # at the start of a step that begins behind the optimizer
        ([("all_gather", "other", 9000), _FORWARD, _GRADIENTS], {("shown", 1.0)}),
        ([_GRADIENTS, ("all_gather", "optimizer", 9000)], set()),  # an optimizer of whole matrices
        ([_GRADIENTS, ("all_gather", "other", 1000), ("all_gather", "other", 900)],
         {("tiny", 2.0)}),
        ([_GRADIENTS, ("all_gather", "other", 1100)], set()),  # the parameters, in half the width
        # a loss sends gradients back; sharded parameters
        ([("all_gather", "other", 9000), ("all_to_all", "backward", 9000), _GRADIENTS], set()),
        ([("all_gather", "other", 9000), ("reduce_scatter", "backward", 2000)], set()),
        ([_GRADIENTS, ("gather", "other", 9000)], {("shown", 1.0)}),  # to one rank, as a display
    ],
)  # fmt: skip
def test_what_ranks_with_whole_models_gather_is_shown_or_for_a_loss(
    calls: list[tuple[str, str, int]], kinds: set[tuple[str, float]]
) -> None:
    with _one_step() as con:
        con.execute(_FIRST_CALL_REDUCES)
        con.execute(
            "INSERT INTO event BY NAME SELECT 'run' AS run, 0 AS rank, 0 AS event_id, 'annotation' "
            "AS class, 'DistributedDataParallel.forward' AS name, ? AS start_ns, 100 AS dur_ns",
            [calls.index(_FORWARD) * 1000 * _US if _FORWARD in calls else 0],
        )
        con.execute("UPDATE param_bucket SET call_id = ?", [[c[2] for c in calls].index(2000)])
        assert _kinds(con, calls) == kinds


@pytest.mark.parametrize(
    ("size", "kinds"),
    [(4, {("logged", 2.0)}), (768, {("tiny", 2.0), ("barrier", 2.0)})],
)
def test_a_logged_value_is_one_number_behind_a_barrier_not_a_weight_that_is_averaged(
    size: int, kinds: set[tuple[str, float]]
) -> None:
    # Local SGD that averages a norm's 192 weights by itself, with a barrier, logs nothing
    with _one_step() as con:
        found = _kinds(con, [("barrier", "other", 1), ("all_reduce", "other", size)] * 2)
    assert found == kinds
