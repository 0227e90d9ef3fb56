"""The simulator against closed forms: a lone call, shared links, waits, what a fault costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.gpulab import pipeline, run
from benchmarks.gpulab.demand import SMALL_CALL_NS, Demands
from benchmarks.gpulab.fabric import Fabric, Flow, Traffic
from benchmarks.gpulab.hardware import choose
from benchmarks.gpulab.job import Job
from benchmarks.gpulab.program import COMPUTE, Call, Kernel, Program
from benchmarks.gpulab.rings import ring_ends
from benchmarks.gpulab.simulate import Simulation

MIB = 1 << 20
HOSTS = Job(machine="a100-roce", hosts=4, per_host=1, network_noise=0.0, jitter=0.0)


def _calls(job: Job, sizes: list[int], stream_of: dict[int, int] | None = None) -> Simulation:
    """One all-reduce per size on every rank, each on its own stream if asked."""
    everyone = tuple(range(job.ranks))
    programs = []
    for rank in everyone:
        program = Program(rank)
        for i, size in enumerate(sizes):
            stream = (stream_of or {}).get(i, COMPUTE)
            kernel = Kernel("nccl", 0.0, scales=False)
            program.call(stream, kernel, [Call(("g", i), "all_reduce", everyone, size)])
        programs.append(program)
    simulation = Simulation(job, programs)
    simulation.run()
    return simulation


def _spans(simulation: Simulation, rank: int) -> list[tuple[float, float]]:
    return [(start, end) for _, _, start, end, _ in simulation.ranks[rank].device]


@pytest.mark.parametrize("size", [MIB, 64 * MIB])
def test_a_lone_call_takes_latency_and_bytes_over_bandwidth(size: int) -> None:
    simulation = _calls(HOSTS, [size])
    starts, ends = zip(*(_spans(simulation, rank)[0] for rank in range(4)), strict=True)
    demands = simulation.demands
    chosen = choose("a100-roce", 4, 1, 1, "all_reduce", size, demands.version)
    expected = chosen.latency_ns + SMALL_CALL_NS + size / chosen.rate
    assert max(ends) - max(starts) == pytest.approx(expected, rel=0.12)
    # Never faster than the wire: 2 (n - 1) / n of the bytes through each NIC.
    assert max(ends) - max(starts) > 1.5 * size / Fabric(HOSTS).nic


def test_two_calls_that_share_a_nic_take_as_long_as_their_bytes_together() -> None:
    apart = _calls(HOSTS, [64 * MIB, 64 * MIB])
    beside = _calls(HOSTS, [64 * MIB, 64 * MIB], {0: 21, 1: 22})
    ends = [max(end for _, end in _spans(run_, 0)) for run_ in (apart, beside)]
    assert ends[1] == pytest.approx(ends[0], rel=0.05)
    first, second = _spans(beside, 0)
    assert second[0] < first[1]  # they did overlap


def test_kernels_wait_inside_for_the_last_rank() -> None:
    everyone = (0, 1)
    job = Job(per_host=2, jitter=0.0)
    programs = []
    for rank in everyone:
        program = Program(rank)
        if rank:
            program.work(5e6)
        program.call(20, Kernel("nccl", 0.0), [Call(("g", 0), "all_reduce", everyone, MIB)])
        programs.append(program)
    simulation = Simulation(job, programs)
    simulation.run()
    early, late = (_spans(simulation, rank)[0] for rank in everyone)
    assert early[1] - early[0] > 4.9e6
    assert late[1] - late[0] < 0.2e6
    assert abs(early[1] - late[1]) < 50_000


def test_bytes_are_conserved_when_flows_come_and_go() -> None:
    traffic = Traffic(Fabric(HOSTS))
    link = ("nic-tx", 0, 0)
    rate = traffic.fabric.rate(link)
    long, short = Flow({link: 100 * rate}, 1.0), Flow({link: 20 * rate}, 1.0)
    traffic.start(long, 0.0)
    traffic.start(short, 10.0)  # 90 left to the long one; each has half of the link
    assert short.pace * short.loads[link] == pytest.approx(rate / 2)
    traffic.end(short, 50.0)  # its 20 took 40 ns, in which the long one did 20 too
    assert long.left == pytest.approx(0.70)
    assert long.pace * long.loads[link] == pytest.approx(rate)


def test_behind_a_slow_edge_the_next_rank_ends_last() -> None:
    even, slow = np.full((1, 6), 10.0), np.array([[10.0, 10.0, 30.0, 10.0, 10.0, 10.0]])
    through_nics = np.full((1, 6), fill_value=True)
    assert np.ptp(ring_ends(even, through_nics, "all_reduce", 2)) == pytest.approx(0.0)
    (ends,) = ring_ends(slow, through_nics, "all_reduce", 2)
    assert ends.argmax() == 3
    assert ends[4] > ends[5] > ends[0]  # then round the ring


def test_the_ends_of_a_ring_depend_on_who_came_late_and_what_it_takes_does_not() -> None:
    demand = Demands(HOSTS, Fabric(HOSTS)).collective("all_reduce", tuple(range(4)), 64 * MIB)
    together = demand.ends(dict.fromkeys(range(4), 0.0))
    late = demand.ends({0: -300_000.0, 1: -300_000.0, 2: 0.0, 3: -300_000.0})
    assert max(together.values()) < 1_000 < max(late.values())
    # Nobody waits for more than one slice over its NIC at the end.
    assert demand.rings is not None
    assert max(late.values()) <= 4 * demand.rings.slice_ns.max()


def test_a_slow_nic_slows_the_calls_that_cross_it_and_no_others() -> None:
    slow = replace(HOSTS, link_factor=((("nic-tx", 1, -1), 0.5),))
    ranks = tuple(range(4))
    for job, factor in ((HOSTS, 1.0), (slow, 2.0)):
        demand = Demands(job, Fabric(job)).collective("all_reduce", ranks, 64 * MIB)
        time = max(load / Fabric(job).rate(link) for link, load in demand.loads.items())
        assert time == pytest.approx(factor * 1.5 * 64 * MIB / Fabric(HOSTS).nic, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", sorted(run.STRATEGIES))
def test_every_strategy_ends_and_a_throttled_device_costs(strategy: str) -> None:
    job = Job(strategy=strategy, machine="dgx-h100", hosts=2, per_host=2, layers=4, steps=3,
              tp=2 if strategy == "tp" else 1, pp=2 if strategy == "pp" else 1, ep=4,
              micro_batches=4 if strategy == "pp" else 1)  # fmt: skip
    simulation, layout = run.simulate(job)
    assert all(set(table) == set(range(4)) for table in layout.of.values())
    healthy = run.step_ns(job, simulation.ranks)
    again = run.step_ns(job, run.simulate(job)[0].ranks)
    assert again == healthy  # the seed decides everything
    throttled = replace(job, compute_factor=((1, 1.5),))
    assert run.step_ns(throttled, run.simulate(throttled)[0].ranks) > 1.2 * healthy


def test_more_micro_batches_shrink_the_bubble_as_theory_says() -> None:
    job = Job(strategy="pp", pp=4, machine="dgx-h100", per_host=4, layers=4, hidden=4096,
              tokens=4096, steps=3, jitter=0.0)  # fmt: skip
    times = []
    for count in (4, 16):
        one = replace(job, micro_batches=count)
        times.append(run.step_ns(one, run.simulate(one)[0].ranks) / (count + job.pp - 1))
    assert times[1] == pytest.approx(times[0], rel=0.15)
    # Two chunks per stage halve the bubble: (8 + 3/2) instead of (8 + 3) slots.
    eight = replace(job, micro_batches=8, layers=8)
    plain, chunks = (
        run.step_ns(one, run.simulate(one)[0].ranks)
        for one in (eight, replace(eight, interleave=2))
    )
    assert chunks / plain == pytest.approx(9.5 / 11, abs=0.05)
    assert pipeline.stage_of(job, 3) == 3
