"""More work or a slower host, where shapes are known of some operators only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from advisor.metrics.lateness.work import (
    Compared,
    _by_attention,
    _by_chance,
    _more_by_step,
    _Operator,
    compare_work,
)
from advisor.store.store import Store

_MS = 1_000_000

# name: (calls, ms each, shapes, and ms of the last call where that is another)
Operators = Mapping[str, tuple[int, int, str | None] | tuple[int, int, str | None, int]]
_SHAPES = "[[64,64],[64,64]]"
_PEER: Operators = {"aten::linear": (6, 5, _SHAPES), "aten::embedding_bag": (6, 5, None)}


def _compared(late: Operators, peer: Operators = _PEER, *, steps: int = 1) -> Compared:
    """Rank 0 runs ``late`` in each of its steps, ranks 1 and 2 run ``peer``."""
    with Store.create() as store:
        con = store.con
        con.execute("INSERT INTO run (run, created_at, advisor_version) VALUES ('run', '', 'test')")
        for rank, operators in enumerate([late, peer, peer]):
            now = 0
            calls = [
                (step, name, last[0] if last and call == count - 1 else each, shapes)
                for step in range(steps)
                for name, (count, each, shapes, *last) in operators.items()
                for call in range(count)
            ]
            for number, (step, name, each, shapes) in enumerate(calls):
                values = [rank, number, now * _MS, each * _MS]
                con.execute(
                    "INSERT INTO event BY NAME SELECT 'run' AS run, $1::INTEGER AS rank, "
                    "$2::BIGINT AS event_id, $3::BIGINT AS start_ns, $4::BIGINT AS dur_ns, "
                    "$5 AS name, 'cpu_op' AS class",
                    [*values, name],
                )
                con.execute(
                    "INSERT INTO activity BY NAME SELECT 'run' AS run, $1::INTEGER AS rank, "
                    "'compute' AS kind, $3::BIGINT AS start_ns, ($3 + $4)::BIGINT AS end_ns, "
                    "$2::BIGINT AS event_id, $5 AS step",
                    [*values, step],
                )
                con.execute(
                    "INSERT INTO comm_event BY NAME SELECT 'run' AS run, $1::INTEGER AS rank, "
                    "$2::BIGINT AS event_id, $3 AS input_dims",
                    [rank, number, shapes],
                )
                now += each
            for step in range(steps):
                con.execute(
                    "INSERT INTO step BY NAME SELECT 'run' AS run, $1::INTEGER AS rank, "
                    "$2 AS step, $3::BIGINT AS start_ns, $4::BIGINT AS end_ns, "
                    "true AS complete, true AS used, '' AS source",
                    [rank, step, step * now // steps * _MS, (step + 1) * now // steps * _MS],
                )
        return compare_work(con, "run", 0, [1, 2])


def test_an_operator_that_no_other_rank_runs_is_more_work() -> None:
    found = _compared({**_PEER, "aten::sort": (2, 20, None)})
    assert (found.operator, found.own_ns, found.usual_ns) == ("aten::sort", 40 * _MS, 0)
    assert found.work == pytest.approx(1 + 40 / 60)
    assert found.pace == pytest.approx(1.0)


def test_one_operator_that_takes_longer_than_the_ranks_pace_is_more_work() -> None:
    found = _compared({**_PEER, "aten::embedding_bag": (6, 15, None)})
    assert found.operator == "aten::embedding_bag"
    assert (found.own_ns, found.usual_ns) == (90 * _MS, 30 * _MS)


def test_a_host_on_which_all_takes_longer_has_no_more_to_do() -> None:
    slow = {name: (calls, 3 * each, shapes) for name, (calls, each, shapes, *_) in _PEER.items()}
    found = _compared(slow)
    assert found.pace == pytest.approx(3.0)
    assert found.operator is None
    assert found.work == pytest.approx(1.0)


def test_long_operators_that_all_take_longer_are_no_more_work() -> None:
    """A CPU under a quota: operators shorter than its period run as they do elsewhere."""
    peer: Operators = {**_PEER, "forward": (6, 20, None), "backward": (6, 40, None)}
    late: Operators = {**peer, "forward": (6, 38, None), "backward": (6, 83, None)}
    found = _compared(late, peer)
    assert found.pace == pytest.approx(1.0)
    assert found.operator is None


@pytest.mark.long
@pytest.mark.slow
def test_more_calls_in_step_after_step_are_more_work_and_no_chance() -> None:
    """As a rank that evaluates beside its training: calls of a size, more of them."""
    found = _compared({**_PEER, "aten::linear": (9, 5, _SHAPES)}, steps=8)
    assert found.work == pytest.approx(1.5)
    assert found.cause_p_value == pytest.approx(3 * (1 / 3 * (2 / 3) ** 2) ** 8)


@pytest.mark.slow
def test_as_much_work_is_nobodys_cause() -> None:
    assert _compared(_PEER, steps=8).cause_p_value == 1.0


def _on_device(
    paces: Mapping[int, Sequence[float]], needed: float, last: float = 1.0, gemms: int = 0
) -> Compared:
    """Of each rank how long its kernels take, in ms by kind; three calls each, shapes as above.

    On rank 0 the last call of each kind takes ``last`` times as long. The last ``gemms`` kinds are
    matrix products.
    """
    with Store.create() as store:
        con = store.con
        con.execute("INSERT INTO run (run, created_at, advisor_version) VALUES ('run', '', 'test')")
        for rank, kinds in paces.items():
            for number in range(3 * len(kinds)):
                kind = number // 3
                longer = last if rank == 0 and number % 3 == 2 else 1.0
                what = "gemm" if kind >= len(kinds) - gemms else "kernel"
                for event, name, of, device in (
                    (2 * number, "aten::mm", "cpu_op", None),
                    (2 * number + 1, f"{what}{kind}", "compute", 0),
                ):
                    con.execute(
                        "INSERT INTO event BY NAME SELECT 'run' AS run, ?::INTEGER AS rank, "
                        "?::BIGINT AS event_id, ? AS start_ns, ?::BIGINT AS dur_ns, ? AS name, "
                        "? AS class, ?::INTEGER AS device, ?::BIGINT AS external_id",
                        [rank, event, event * _MS, round(longer * kinds[kind] * _MS), name, of,
                         device, number + 1],
                    )  # fmt: skip
                con.execute(
                    "INSERT INTO comm_event BY NAME SELECT 'run' AS run, ?::INTEGER AS rank, "
                    "?::BIGINT AS event_id, ? AS input_dims",
                    [rank, 2 * number, _SHAPES],
                )
            con.execute(
                "INSERT INTO step BY NAME SELECT 'run' AS run, ?::INTEGER AS rank, 1 AS step, "
                "0 AS start_ns, 1000000000 AS end_ns, true AS complete, true AS used, '' AS source",
                [rank],
            )
        return compare_work(con, "run", 0, [1, 2], needed=needed)


def test_kernels_of_every_kind_that_take_longer_are_no_chance() -> None:
    """Few steps or calls suffice: a device that is slow slows all it runs, a pause one of them."""
    usual = [1.0, 2.0, 3.0, 1.5, 2.5, 0.5, 4.0, 1.2]
    slow = _on_device({0: [1.5 * ms for ms in usual], 1: usual, 2: usual}, 0.3)
    assert slow.pace == pytest.approx(1.5)
    assert slow.pace_p_value == pytest.approx(3 / 2**8)
    one = _on_device({0: [9.0, *usual[1:]], 1: usual, 2: usual}, 0.3)
    assert one.pace is not None
    assert one.pace > 1.3
    assert one.pace_p_value == 1.0


@pytest.mark.slow
def test_matrix_products_tell_a_slow_memory_from_a_slow_device_and_from_more_work() -> None:
    usual = [1.0, 2.0, 3.0, 1.5, 2.5, 0.5, 4.0, 1.2, 0.8, 6.0]
    slow = [3.8 * ms for ms in usual]

    def pace(own: Sequence[float], gemm: float, needed: float = 0.3) -> float | None:
        paces = {rank: [*usual, 5.0] for rank in (1, 2)}
        return _on_device({0: [*own, gemm], **paces}, needed, gemms=1).memory_pace

    assert pace(slow, 5.0) == pytest.approx(3.8)
    assert pace(slow, 4.0) == pytest.approx(3.8)  # its peers' run beside transfers that wait for it
    assert pace(slow, 19.0) is None
    assert pace(usual, 5.0) is None
    # As much slower as products may be: a device that is slower by a hundredth in all it does.
    assert pace([1.01 * ms for ms in usual], 5.05, needed=0.005) is None
    assert pace([1.025 * ms for ms in usual], 5.05, needed=0.01) is None
    assert pace([1.04 * ms for ms in usual], 5.0, needed=0.02) == pytest.approx(1.04)
    assert pace([19.0, *usual[1:]], 5.0) is None  # one kind: its table is larger


def test_a_device_that_throttles_in_a_third_of_its_steps_is_slow_by_the_mean_of_its_calls() -> None:
    usual = [1.0, 2.0, 3.0, 1.5, 2.5, 0.5, 4.0, 1.2]
    found = _on_device(dict.fromkeys(range(3), usual), 0.1, last=1.6)
    assert found.pace == pytest.approx(1.0)
    assert found.mean_pace == pytest.approx(1.2)
    assert found.pace_p_value == pytest.approx(3 / 2**8)


def test_a_host_that_others_take_in_turn_is_slow_by_the_mean_of_its_calls() -> None:
    """Five of six calls run undisturbed, so that the median call is no slower than the peers'."""
    stopped = {name: (calls, each, shapes, 35) for name, (calls, each, shapes, *_) in _PEER.items()}
    found = _compared(stopped)
    assert found.pace == pytest.approx(1.0)
    assert found.mean_pace == pytest.approx(2.0)
    assert found.operator is None


@pytest.mark.parametrize(("steps", "seen"), [(2, False), (4, True)])
def test_four_steps_tell_that_three_times_the_work_is_no_chance(steps: int, seen: bool) -> None:
    def given(tokens: int) -> Operators:
        return {"aten::mm": (4, 5, f"[[{tokens},64],[64,64]]")}

    found = _compared(given(192), given(64), steps=steps)
    assert found.work == pytest.approx(3.0)
    assert (found.cause_p_value < 0.01) is seen
    assert _compared(given(64), given(64), steps=steps).cause_p_value == 1.0


def test_what_a_rank_has_more_in_some_steps_counts_where_its_mean_is_no_more() -> None:
    by_step = [4.0, 1.0, 4.0, 1.0], [[1.0], [4.0], [1.0], [4.0]]
    assert _more_by_step(*by_step) == 0.6  # 6 of 10
    assert _more_by_step([1.0, 1.0], [[1.0, 2.0], [1.0, 2.0]]) == 0.0
    assert _more_by_step([], []) is None


@pytest.mark.parametrize(
    ("own", "pace", "more"),
    [
        ((57.0, 48.5), 0.98, True),  # the last part of a causal sequence
        ((57.0, 48.5), None, True),  # without shapes
        ((45.0, 72.0), 1.5, False),  # a device at two thirds of its clock
        ((45.0, 72.0), None, False),
        ((33.0, 60.0), 1.2, False),  # longer by what else it runs
    ],
)
def test_attention_that_alone_takes_longer_is_more_work(
    own: tuple[float, float], pace: float | None, more: bool
) -> None:
    """Of three peers attention takes 30 ms on average, all other kernels 48."""
    took = {0: own, 1: (15.0, 48.0), 2: (30.0, 48.0), 3: (45.0, 48.0)}
    kernels = [
        _Operator(rank, kind, None, 10, ms * _MS, 0.0, 0.0)
        for rank, both in took.items()
        for kind, ms in zip(("attention", ""), both, strict=True)
    ]
    found = _by_attention(kernels, 0, Compared(1.0 if pace else None, pace))
    expected = ("attention", 57 * _MS, 30 * _MS) if more else (None, None, None)
    assert (found.operator, found.own_ns, found.usual_ns) == expected


@pytest.mark.parametrize(("own", "chance"), [([3.0] * 4, 2 / 4**4), ([3.0, 3.0, 3.0, 4.0], 2 / 70)])
def test_steps_that_are_alike_are_dealt_so_less_often(own: list[float], chance: float) -> None:
    """Two ranks, as torchtitan records them: four steps."""
    assert _by_chance(own, [[1.0]] * 4) == pytest.approx(chance)
