"""Links of another bandwidth: what the bytes take changes, what a busy CPU takes does not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor import api
from advisor.errors import AdvisorError
from advisor.store.store import Store
from advisor.whatif.cost import ServiceModel
from advisor.whatif.extract import programs
from advisor.whatif.network import link_gbps, predict_bandwidth, predict_link_rate
from advisor.whatif.predict import service_models
from advisor.whatif.program import Call, Issue, Program, Wait, Work
from advisor.whatif.slow_places import added_latency, hosts_of, joined_by

MIB = 1 << 20
A_NS, B_NS = 150_000.0, 1.0  # latency, and 1 GB/s on the wire of two ranks
COMPUTE_NS = 50e6


def step(services: list[float], *, channels: list[str] | None = None) -> Program:
    """Two ranks that compute, then send 1 MiB per call one after the other, waiting for each."""
    names = channels or ["g"] * len(services)
    calls = {
        number: Call((0, 1), names[number], service, "all_reduce", MIB, burst=number)
        for number, service in enumerate(services)
    }
    turns = [item for number in calls for item in (Issue(number), Wait(number))]
    return Program(
        items={rank: [Work(COMPUTE_NS), *turns] for rank in (0, 1)},
        calls=calls,
        start_ns={0: 0.0, 1: 0.0},
        shared=True,
        measured_ns=COMPUTE_NS + sum(services),
    )


USUAL = A_NS + B_NS * MIB
# Two of ten calls had to wait for a CPU: 10 ms each, ten times what their bytes take.
PREEMPTED = [USUAL] * 8 + [USUAL + 10e6] * 2


def test_what_the_cpu_took_does_not_scale_with_the_link() -> None:
    # GIVEN calls of which some waited for a CPU WHEN the link gets ten times slower
    steps = [step(PREEMPTED)]
    found = predict_bandwidth(steps, service_models(steps), 0.1)
    # THEN the step gets longer by nine times the bytes' time, not by nine times the CPU's too
    assert found is not None
    assert found.step_ns - found.measured_ns == pytest.approx(9 * 10 * MIB * B_NS, rel=0.02)


@pytest.mark.parametrize("gbps", [0.01, 0.1, 0.5, 4.0])
def test_no_step_is_longer_than_now_and_all_bytes_at_that_rate(gbps: float) -> None:
    steps = [step(PREEMPTED)]
    found = predict_link_rate(steps, service_models(steps), gbps)
    assert found is not None
    on_wire = 10 * MIB / gbps  # a ring of two sends S per rank
    assert found.step_ns <= found.measured_ns + on_wire
    if gbps < 1.0:
        assert found.step_ns >= found.measured_ns + on_wire - 10 * MIB * B_NS * 1.02
        assert found.step_ns > found.measured_ns
    assert link_gbps(service_models(steps)) == pytest.approx(1.0)


def test_the_arithmetic_bound_holds_on_a_real_trace(fixtures_dir: Path) -> None:
    # GIVEN 13.95 MB per step and rank over loopback, where two ranks share a busy CPU
    with api.load(fixtures_dir / "gpt2-tiny-ddp-2") as run:
        steps = programs(run.store, "run")
    sent = sum(call.bytes or 0 for call in steps[0].calls.values())
    assert sent == 13_948_928, "13 buckets; a ring of two sends its buffer once"
    for gbps in (1 / 8, 0.1 / 8):
        found = predict_link_rate(steps, service_models(steps), gbps)
        # THEN at 1 and 0.1 Gbit/s no more than those bytes' time is added
        assert found is not None
        assert 0 < found.step_ns - found.measured_ns <= sent / gbps


def test_every_channel_has_its_own_rate() -> None:
    # GIVEN one group over a fast link and one over a link four times slower
    slow = A_NS + 4 * B_NS * MIB
    steps = [step([USUAL, slow] * 10, channels=["near", "far"] * 10)]
    found = predict_bandwidth(steps, service_models(steps), 0.5)
    # THEN the slow link's bytes are no waiting: both get half as fast
    assert found is not None
    extra = 10 * (1 + 4) * B_NS * MIB
    assert found.step_ns - found.measured_ns == pytest.approx(extra, rel=0.1)


def test_without_a_known_size_only_a_relative_change_is_answered() -> None:
    base = step([USUAL] * 4)
    calls = {key: Call(c.ranks, "g", c.service_ns, "other") for key, c in base.calls.items()}
    steps = [base.with_items(base.items, calls)]
    models = service_models(steps)
    found = predict_bandwidth(steps, models, 0.5)
    assert found is not None
    assert found.step_ns == pytest.approx(found.measured_ns + 4 * USUAL)
    with pytest.raises(AdvisorError, match="the bytes of its collectives are not known"):
        predict_link_rate(steps, models, 1.0)


@pytest.mark.slow
def test_calls_that_cost_latency_alone_are_not_said_to_be_of_one_size(fixtures_dir: Path) -> None:
    # GIVEN all-reduces of two sizes of which the larger took less
    with api.load(fixtures_dir / "lab-ep-expert-skew") as run:
        models = service_models(programs(run.store, "run"))
    with pytest.raises(AdvisorError, match="larger calls take no longer") as caught:
        link_gbps(models)
    assert "larger calls tells it" in (caught.value.hint or "")


@pytest.mark.parametrize("identified", [True, False])
def test_an_answer_that_hangs_on_an_unknown_latency_is_called_so(identified: bool) -> None:
    # GIVEN calls whose latency is known to 5 ms only, or not at all by the trace itself
    steps = [step([USUAL + 10e6] * 10)]
    model = ServiceModel(5e6, (USUAL + 5e6) / MIB, 1, 10, MIB, 0.0, 4e6, MIB, identified)
    found = predict_bandwidth(steps, {("all_reduce", 2): model}, 2.0)
    assert found is not None
    assert found.inconclusive is not identified


def test_more_bandwidth_shortens_no_latency_that_a_place_adds() -> None:
    # GIVEN calls of one size, which tell latency and bytes apart only by what a slow place adds
    steps = [step([USUAL] * 10)]
    models = service_models(steps)
    sure = predict_bandwidth(steps, models, 2.0)
    found = predict_bandwidth(steps, models, 2.0, lambda _: 0.9 * USUAL)
    # THEN twice the bandwidth gives half of what is left of each call
    assert sure is not None and found is not None
    assert found.gain_ns == pytest.approx(10 * 0.1 * USUAL / 2, rel=0.02)
    assert sure.gain_ns > 4 * found.gain_ns


def test_what_a_slow_place_adds_is_counted_once_a_pass_of_the_calls_over_it() -> None:
    evidence = json.dumps({"added_ns": 470_000, "near": [2, 3], "far": None, "link": "between"})
    with Store.create() as store:
        con = store.con
        con.execute(
            "INSERT INTO link_excess (run, kind, src, calls, evidence) "
            "VALUES ('r', 'host', 2, 50, ?)",
            [evidence],
        )
        con.executemany(
            "INSERT INTO rank (run, rank, host) VALUES ('r', ?, ?)",
            [(rank, f"host{rank // 2}") for rank in range(4)],
        )
        added = added_latency(con, "r")
    over, inside, elsewhere = (
        Call(ranks, "g", USUAL, op, MIB, burst=0)
        for ranks, op in (((0, 2), "all_reduce"), ((2, 3), "all_reduce"), ((0, 1), "all_gather"))
    )
    assert [added(over), added(inside), added(elsewhere)] == [940_000, 0, 0]
    assert added(over._replace(op="all_gather")) == 470_000


def test_a_call_joins_ranks_of_its_group_whose_part_is_not_recorded() -> None:
    """GIVEN a group over two hosts, one rank of which recorded no device THEN its calls on the
    other cross the network, as do those of a rank that was not read; a message joins two alone."""
    with Store.create() as store:
        con = store.con
        con.executemany("INSERT INTO rank (run, rank) VALUES ('r', ?)", [(0,), (1,), (2,)])
        con.execute(
            "INSERT INTO process_group (run, process_group, ranks) VALUES ('r', 'g', [0, 2, 3])"
        )
        joined = joined_by(con, "r")
    assert sorted(joined(Call((0,), "g", USUAL, "all_reduce", MIB, burst=0))) == [0, 2, 3]
    assert joined(Call((0, 2), "g", USUAL, "send", MIB, burst=0)) == (0, 2)
    assert joined(Call((0, 1), "other", USUAL, "all_reduce", MIB, burst=0)) == (0, 1)


def test_a_rank_that_was_not_read_is_on_the_host_of_its_block() -> None:
    with Store.create() as store:
        store.con.executemany(
            "INSERT INTO rank (run, rank, host) VALUES ('r', ?, ?)", [(1, "a"), (2, "b"), (3, "b")]
        )
        store.con.execute(
            "INSERT INTO process_group (run, process_group, ranks) VALUES ('r', 'g', [0, 2])"
        )
        assert hosts_of(store.con, "r") == {0: "a", 1: "a", 2: "b", 3: "b"}
