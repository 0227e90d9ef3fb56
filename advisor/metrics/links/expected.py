"""What a call should take, by the data sheets of the machines that its devices are sold in.

A trace names the device, not the machine: the machines of the hardware table with that device are
equally likely, and what none of them is may be anything. Latency is NCCL's own.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from advisor.config.hardware import Device, Machine, find_device, machine, machines_with
from advisor.errors import AdvisorError
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.durations import Kind
from advisor.metrics.links.locations import Members, slots_of
from advisor.metrics.rings.locations import Home
from advisor.model.nccl.cost import Prediction, predict
from advisor.model.nccl.env.table import NEWEST
from advisor.model.topology_machine import topology_of
from advisor.vocabulary.bandwidth import bus_factor

EFFICIENCY: Mapping[bool, tuple[float, float]] = {True: (0.75, 0.25), False: (0.9, 0.15)}
"""Of a data sheet's rate inside and between hosts, with the standard deviation of its logarithm.
NCCL's search counts 80 to 82 % of NVLink (src/graph/topo.h: 20.6 GB/s of the 25 of an NVLink 4
port) and 96 % of a 400 Gb/s port (48 GB/s, src/graph/search.cc); large all-reduces of nccl-tests
reach most of that; in a job, where compute runs beside them, less."""
UNKNOWN_MACHINE = 0.05
"""Chance that a job runs on a machine that the table does not have: it has those of NVIDIA and of
the three large clouds."""
USUAL_TIMES = 5.0
"""What small calls take in nccl-tests' tables over NCCL's own estimate of their latency, in the
middle (benchmarks/calibration.py: 5.1 up to 64 KB)."""

Expected = Callable[[Kind, Members], tuple[float, float] | None]
"""Logarithm of what a call should take (ns) and its error; None where nothing says it."""


@dataclass(frozen=True)
class Assumption:
    """What links there may be: its chance, and what calls take over them."""

    chance: float
    takes: Expected
    name: str | None = None
    least: Callable[[Kind, Members], float | None] = lambda kind, members: None
    """Logarithm of the time (ns) that no call can fall below."""


def nothing_known(kind: Kind, members: Members) -> None:
    """Links that may have any rate."""


UNKNOWN = (Assumption(1.0, nothing_known),)


def assumed_links(data: Inputs, home: Mapping[int, Home]) -> dict[bool, Sequence[Assumption]]:
    """The links inside hosts (True) and between them that the devices' names leave possible."""
    names = Counter(data.devices.values())
    device = find_device(names.most_common(1)[0][0]) if len(names) == 1 else None
    result: dict[bool, Sequence[Assumption]] = {True: UNKNOWN, False: UNKNOWN}
    if device is None or data.gloo:
        return result
    of_job = _Job(data, home)
    other = Assumption(UNKNOWN_MACHINE, nothing_known, least=_Possible(device, of_job))
    if device.link_gbps is not None and device.mesh_gpus is not None:  # no bridge a card may lack
        result[True] = (Assumption(1 - UNKNOWN_MACHINE, _Nvlink(device)), other)
    machines = machines_with(device.name)
    result[False] = (replace(other, chance=1.0),)
    if machines:
        chance = (1 - UNKNOWN_MACHINE) / len(machines)
        result[False] = (
            *(Assumption(chance, _Between(found, of_job), found.name) for found in machines),
            other,
        )
    return result


class _Nvlink:
    """Calls inside a host, over the device's own links.

    What latency decides of a call is known no better than NCCL's own estimates of it are.
    """

    def __init__(self, device: Device) -> None:
        assert device.link_gbps is not None
        share, self.error = EFFICIENCY[True]
        self.rate = device.link_gbps * share
        self.machines = [one.name for one in machines_with(device.name)]

    def __call__(self, kind: Kind, members: Members) -> tuple[float, float] | None:
        factor = bus_factor(kind.op, kind.ranks)
        if kind.hosts > 1 or factor is None or members.message:
            return None
        alone = replace(kind, hosts=1)
        latency = max((_latency_ns(name, alone, kind.ranks) for name in self.machines), default=0.0)
        took = latency + kind.bytes * factor / self.rate
        return math.log(took), math.hypot(self.error, math.log(USUAL_TIMES) * latency / took)


class _Job:
    """The ranks that share each host's NICs."""

    def __init__(self, data: Inputs, home: Mapping[int, Home]) -> None:
        self.home = home
        slot = slots_of(home, data.infos)
        own: dict[Home, list[int]] = defaultdict(list)
        for rank, host in home.items():
            own[host].append(slot[rank])
        self.slots = max(own.values(), key=len)

    def per_host(self, members: Members) -> int:
        """How many of a group's ranks are on its fullest host."""
        return max(self._counts(members))

    def least_per_host(self, members: Members) -> int:
        """And on its emptiest."""
        return min(self._counts(members))

    def _counts(self, members: Members) -> list[int]:
        return list(Counter(self.home[rank] for rank in members.ranks).values())


class _Possible:
    """What no machine can beat: a GPU's own links inside a host, and between hosts PCIe of the GPUs
    that a ring leaves the emptiest host by, or an all-to-all's own."""

    def __init__(self, device: Device, job: _Job) -> None:
        self.job, self.inside_gbps, self.pcie_gbps = job, device.link_gbps, device.pcie_gbps

    def __call__(self, kind: Kind, members: Members) -> float | None:
        factor = bus_factor(kind.op, kind.ranks)
        local = 1 if members.message else self.job.least_per_host(members)
        rate = _bus_gbps(kind, local, self.pcie_gbps or math.inf, self.inside_gbps or math.inf)
        if rate == math.inf or factor is None or (kind.hosts == 1 and members.message):
            return None
        return math.log(max(kind.bytes * factor, 1.0) / rate)


def _bus_gbps(kind: Kind, local: int, nic: float, link: float) -> float:
    """Bus bandwidth, GB/s, over ``nic`` GB/s of NICs per GPU and ``link`` GB/s of its own links.

    Rings leave a host by all of its ``local`` GPUs. In an all-to-all each GPU sends to other hosts
    by its own NIC, and inside by its links at once; its bus bandwidth counts both.
    """
    if kind.hosts < 2:
        return link
    if kind.op == "all_to_all":
        peers = kind.ranks - 1
        within = link * peers / (local - 1) if local > 1 else math.inf
        return min(nic * peers / (kind.ranks - local), within)
    return min(nic * local, link)


class _Between:
    """Calls between hosts, whose groups share the NICs beside the job's GPUs."""

    def __init__(self, found: Machine, job: _Job) -> None:
        self.machine, self.job = found, job
        share, self.error = EFFICIENCY[False]
        nics, gpus = found.network.nics, found.gpus_per_node
        beside = {slot * nics // gpus for slot in job.slots if slot < gpus}
        used = max(len(beside), nics // gpus, 1)
        self.gpu_gbps = used * found.network.nic_gbps * share / len(job.slots)

    def __call__(self, kind: Kind, members: Members) -> tuple[float, float] | None:
        factor = bus_factor(kind.op, kind.ranks)
        if kind.hosts < 2 or factor is None:
            return None
        own = 1 if members.message else self.job.per_host(members)
        inside = self.machine.intra.gpu_gbps * EFFICIENCY[True][0]
        rate = _bus_gbps(kind, own, self.gpu_gbps, inside)
        latency = 0.0 if members.message else _latency_ns(self.machine.name, kind, own)
        return math.log(latency + kind.bytes * factor / rate), self.error


@cache
def _latency_ns(name: str, kind: Kind, per_host: int) -> float:
    """By NCCL's own table, of what it would choose; 0 where it has no model.

    Without NVLS: whether the switches' multicast is to be had no trace tells, and over many hosts a
    ring's latency is a large part of the call.
    """
    found = machine(name)
    try:
        topology = topology_of(found, kind.hosts, min(per_host, found.gpus_per_node))
        return 1e3 * latency_us(predict(topology, kind.op, kind.bytes, NEWEST))
    except AdvisorError:
        return 0.0


def latency_us(guess: Prediction) -> float:
    """Of the fastest row without NVLS, us; 0 without any."""
    timed = [
        (row.time_us, row.latency_us)
        for row in guess.rows
        if row.available and row.time_us is not None and not row.algo.startswith("NVLS")
    ]
    return min(timed)[1] if timed else 0.0
