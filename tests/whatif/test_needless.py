"""Needless calls of the groups of one dimension are left out together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from advisor.store.store import Store
from advisor.whatif.annotate_calls import _coarser, _early_syncs, _narrow, _needless
from advisor.whatif.program import Call, Issue, Item, Program, Wait, Work

MESH = {"0": [0, 1, 2, 3], "tp0": [0, 1], "tp1": [2, 3], "dp0": [0, 2], "dp1": [1, 3]}


def test_groups_that_share_no_rank_are_of_one_dimension() -> None:
    store = Store.create()
    con: Any = store.con
    numbers: dict[str, int] = {}
    for name, ranks in MESH.items():
        numbers[name] = len(numbers)
        con.execute("INSERT INTO redundant (run, kind, process_group, op, bytes, calls_per_step, "
                    "exposed_ns_per_step) VALUES ('run', 'tiny', ?, 'all_reduce', 4, 9, 1000)",
                    [name])  # fmt: skip
        for rank in ranks:
            con.execute("INSERT INTO collective (run, rank, call_id, process_group, op, bytes, "
                        "start_ns, end_ns, step) VALUES ('run', ?, ?, ?, 'all_reduce', 4, 0, 1, 1)",
                        [rank, numbers[name], name])  # fmt: skip
    found = {frozenset(values): calls for values, calls in _needless(con, "run", 500.0)}
    assert found == {
        frozenset(f"tiny all_reduce {name}" for name in names): frozenset(numbers[n] for n in names)
        for names in (("0",), ("tp0", "tp1"), ("dp0", "dp1"))
    }


def test_gradients_of_the_groups_of_one_dimension_are_reduced_once_together() -> None:
    """GIVEN two data-parallel groups that reduce in both of two micro-batches THEN one replay
    leaves out the first reductions of both: without one's, its ranks wait for the other's."""
    store = Store.create()
    con: Any = store.con
    for first, name in ((0, "dp0"), (10, "dp1")):
        for rank in MESH[name]:
            con.execute("INSERT INTO gradient_sync BY NAME SELECT 'run' AS run, ? AS rank, "
                        "1 AS step, ? AS process_group, 'all_reduce' AS op, "
                        "2 AS micro_batches, 2 AS syncs,"
                        " 8 AS bytes, 1000 AS exposed_ns", [rank, name])  # fmt: skip
            for call in (first, first + 1):
                con.execute("INSERT INTO collective (run, rank, call_id, process_group, op, bytes, "
                            "start_ns, end_ns, step) "
                            "VALUES ('run', ?, ?, ?, 'all_reduce', 4, ?, ?, 1)",
                            [rank, call, name, call, call + 1])  # fmt: skip
                con.execute("INSERT INTO param_bucket BY NAME SELECT 'run' AS run, ? AS rank, "
                            "1 AS step, 0 AS bucket, ? AS call_id, ? AS early",
                            [rank, call, call == first])  # fmt: skip
    assert _early_syncs(con, "run", 500.0) == [
        (["all_reduce dp0", "all_reduce dp1"], frozenset({0, 10}))
    ]


@pytest.mark.parametrize(("size", "tried"), [(1_000, ["2", "4"]), (5_000_000, [])])
def test_units_are_wrapped_coarser_where_latency_is_much_of_their_calls(
    size: int, tried: list[str]
) -> None:
    """GIVEN eight units whose calls take 1 ms and 10 ns a byte THEN two and four of them as one
    are tried where latency is more than a tenth of a call; half of it goes with two."""
    items: list[Item] = []
    calls: dict[int, Call] = {}
    for unit in range(8):
        sent = size * (1 + 40 * (unit % 2))
        for call, op, phase in (
            (unit, "all_gather", "forward"),
            (8 + unit, "reduce_scatter", "backward"),
        ):
            ns = 1_000_000 + 10.0 * sent
            calls[call] = Call((0, 1), "g", ns, op, sent, phase=phase)
        items += [Issue(unit), Wait(unit), Work(2_000_000)]
    for unit in reversed(range(8)):
        items += [Work(4_000_000), Issue(8 + unit), Wait(8 + unit)]
    program = Program({0: items, 1: list(items)}, calls, {0: 0.0, 1: 0.0}, shared=True)
    rows = [*_coarser([replace(program, measured_ns=program.replayed_ns)])]
    assert [value for _, value, _, _ in rows] == tried
    for _, value, _, prediction in rows:
        saved = 2 * (8 - 8 // int(value)) * 1_000_000
        assert prediction.gain_low_ns < saved < prediction.gain_high_ns
        assert prediction.gain_ns == pytest.approx(saved, rel=0.25)


@pytest.mark.parametrize(("dtype", "tried"), [("float32", ["16 all_to_all ep"]), ("bfloat16", [])])
def test_what_experts_exchange_in_32_bits_is_tried_in_16(dtype: str, tried: list[str]) -> None:
    """GIVEN eight exchanges of 1 ms and 1 ns a byte THEN half of what their bytes take goes."""
    con: Any = Store.create().con
    items: list[Item] = []
    calls: dict[int, Call] = {}
    sizes = [1_000_000 * (1 + 40 * (call % 2)) for call in range(8)]
    for call, size in enumerate(sizes):
        calls[call] = Call((0, 1), "ep", 1_000_000 + 1.0 * size, "all_to_all", size)
        items += [Issue(call), Wait(call), Work(2_000_000)]
        con.execute("INSERT INTO collective (run, rank, call_id, process_group, op, bytes, dtype, "
                    "start_ns, end_ns, step, exposed_transfer_ns) VALUES "
                    "('run', 0, ?, 'ep', 'all_to_all', ?, ?, 0, 1, 1, 2000)",
                    [call, size, dtype])  # fmt: skip
    program = Program({0: items, 1: list(items)}, calls, {0: 0.0, 1: 0.0})
    rows = [*_narrow(con, "run", [replace(program, measured_ns=program.replayed_ns)], 500.0)]
    assert [value for _, value, _, _ in rows] == tried
    for _, _, _, prediction in rows:
        assert prediction.gain_ns == pytest.approx(sum(sizes) / 2, rel=0.1)


def test_one_setting_halves_what_shards_reduce_and_what_replicas_sum() -> None:
    """GIVEN reductions of 1 ns a byte in turn, one kind of which is not recorded as exposed
    THEN both are halved in one replay, which each of them is named for."""
    con: Any = Store.create().con
    items: list[Item] = []
    calls: dict[int, Call] = {}
    for call in range(8):
        op, group = (("reduce_scatter", "shard"), ("all_reduce", "replica"))[call % 2]
        size = 1_000_000 * (1 + call // 2)
        calls[call] = Call((0, 1), group, 100_000 + 1.0 * size, op, size, is_gradient=True)
        items += [Issue(call), Wait(call)]
        exposed = 2000 * (call % 2)
        con.execute("INSERT INTO collective (run, rank, call_id, process_group, op, bytes, dtype, "
                    "start_ns, end_ns, step, exposed_transfer_ns) VALUES "
                    "('run', 0, ?, ?, ?, ?, 'float32', 0, 1, 1, ?)",
                    [call, group, op, size, exposed])  # fmt: skip
        con.execute("INSERT INTO param_bucket (run, rank, call_id, step, bucket) VALUES "
                    "('run', 0, ?, 1, ?)", [call, call])  # fmt: skip
    program = Program({0: items, 1: list(items)}, calls, {0: 0.0, 1: 0.0})
    rows = [*_narrow(con, "run", [replace(program, measured_ns=program.replayed_ns)], 500.0)]
    assert {value for _, value, _, _ in rows} == {
        "16 all_reduce replica",
        "16 reduce_scatter shard",
    }
    for _, _, _, prediction in rows:
        assert prediction.gain_ns == pytest.approx(10_000_000, rel=0.1)  # half of 20 MB
