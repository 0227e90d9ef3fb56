"""The constants of one release of NCCL or RCCL, from JSON (each entry lists what changed)."""

import json
from functools import cache
from importlib.resources import files
from math import inf
from typing import Any

from pydantic import BaseModel

from advisor.errors import AdvisorError
from advisor.model.nccl.names import ALGORITHMS, PROTOCOLS
from advisor.model.nccl.version import OLDEST, NcclVersion, format_version, parse_version
from advisor.model.topology import Topology

Table = tuple[tuple[float, ...], ...]
_NCCL, _RCCL = "constants.json", "rccl.json"


class Constants(BaseModel, frozen=True):
    """Latencies in microseconds and bandwidths in GB/s of one release.

    Tables of bandwidth are indexed [compute capability row][node column]; `source` names the
    release whose file they were read from. The last six are RCCL's, which has no ceilings of
    bandwidth: shares of the graphs' [up to two nodes, more][algorithm][protocol]; `note` says what
    other builds of the release do otherwise.
    """

    version: NcclVersion
    source: str
    base_latency_us: Table
    hardware_latency_us: dict[str, Table]
    ll_max_gbps: Table = ()
    ring_ll128_gbps: Table = ()
    tree_ll128_gbps: Table = ()
    ll128_per_function_gbps: dict[str, float] = {}
    tree_gbps: Table = ()
    nvlstree_gbps: Table = ()
    nvls_efficiency: tuple[float, ...] = ()
    tree_correction: dict[str, tuple[float, ...]]
    ring_correction: dict[str, tuple[float, ...]] = {}
    bandwidth_ratio: tuple[Table, ...] = ()
    rooted_ll_ratio: float = 1.0
    rules: "_Rules | None" = None
    msccl_mib: int = 0
    note: str

    def base(self, algorithm: str, protocol: str) -> float:
        """Latency of starting the call."""
        return _cell(self.base_latency_us, algorithm, protocol)

    def hardware(self, link: str, algorithm: str, protocol: str) -> float:
        """Latency of one step over `link` (nvlink, pci or net)."""
        return _cell(self.hardware_latency_us[link], algorithm, protocol)


def _cell(table: Table, algorithm: str, protocol: str) -> float:
    row = ALGORITHMS.index(algorithm)
    # A release before the algorithm got its own row has it at zero (PAT until 2.27).
    return table[row][PROTOCOLS.index(protocol)] if row < len(table) else 0.0


@cache
def _releases(file: str) -> tuple[tuple[NcclVersion, str, dict[str, Any]], ...]:
    text = files("advisor.model.nccl").joinpath(file).read_text(encoding="utf-8")
    merged: dict[str, Any] = {}
    releases = []
    for entry in json.loads(text)["releases"]:
        kept = {key: merged[key] for key in merged if key not in entry.get("removed", ())}
        own = {"rocm": entry.get("rocm"), "note": entry.get("note", "")}
        merged = {**kept, **entry["changed"], **own}
        releases.append((parse_version(entry["version"]), entry["source"], merged))
    return tuple(releases)


def known_versions() -> tuple[NcclVersion, ...]:
    """The releases of NCCL whose constants were read."""
    return tuple(version for version, _, _ in _releases(_NCCL))


def _rccl(version: NcclVersion) -> Constants:
    """No release stands for its neighbours: AMD measures the tables anew."""
    known = _releases(_RCCL)
    for at, source, data in known:
        if at == version:
            return Constants(version=at, source=source, **data)
    named = ", ".join(f"{format_version(at)} (ROCm {data['rocm']})" for at, _, data in known)
    raise AdvisorError(
        f"the cost model does not cover RCCL {format_version(version)}", hint=f"covered: {named}"
    )


@cache
def constants_for(version: NcclVersion, library: str = "nccl") -> Constants:
    """Constants of the newest known release not after `version`, of the same minor if possible.

    2.29 (or 2.29.2, which is not in the table) is the table's first 2.29, not its last 2.28: what
    a minor release changes came with its first patch. Raises AdvisorError before 2.8, where the
    model had another form, and for releases of RCCL whose tables were not read.
    """
    if library == "rccl":
        return _rccl(version)
    if version < OLDEST:
        raise AdvisorError(
            f"NCCL {format_version(version)} is older than the model covers",
            hint="2.8 and later are covered",
        )
    known = _releases(_NCCL)
    minor = [release for release in known if release[0][:2] == version[:2]]
    not_after = [release for release in known if release[0] <= version]
    at, source, data = ([r for r in minor if r in not_after] or minor[:1] or not_after)[-1]
    return Constants(version=at, source=source, **data)


def newest() -> NcclVersion:
    """The newest release of NCCL whose source was read."""
    return _releases(_NCCL)[-1][0]


# What RCCL does with its table's choice from 2.23 on: other protocols by size, sends of its own.
# Follows rcclUpdateCollectiveProtocol and rcclUseAllGatherDirect (src/rccl_wrap.cc), which look at
# neither latency nor bandwidth.
_STRETCH = 3.8  # of AllReduce's LL128 on more than two nodes


class _Rules(BaseModel, frozen=True):
    """Of one release, by function and protocol; bytes are per rank, those of AllReduce in all."""

    protocol_bytes: dict[str, dict[str, list[int]]]
    one_node_ll_bytes: dict[str, int]
    thread_bytes: dict[str, dict[str, int]]
    direct_gather_bytes: int
    direct_gather_ranks: list[int | None]

    def protocol(self, topology: Topology, function: str, total_bytes: int, chosen: str) -> str:
        """The protocol taken where the table's is ``chosen`` and NCCL_PROTO is not set."""
        own = total_bytes if function == "AllReduce" else total_bytes // topology.ranks
        if topology.nodes == 1:
            return "LL" if own <= self.one_node_ll_bytes.get(function, -1) else chosen
        ranges = self.protocol_bytes.get(function)
        if ranges is None:
            return chosen
        least, most = ranges["LL128"]
        if function == "AllReduce" and topology.nodes > 2:
            most = int(most * _STRETCH)
        if least < own <= most:
            return "LL128"
        least, most = ranges["LL"]
        return "LL" if least < own <= most else "Simple"

    def instead(self, topology: Topology, function: str, total_bytes: int) -> str:
        """What it does without asking the table; empty where it asks."""
        least, most = self.direct_gather_ranks
        of_size = function == "AllGather" and total_bytes <= self.direct_gather_bytes
        if of_size and (least or 0) <= topology.ranks <= (most or inf):
            return "each rank sends its part to every other (RCCL's direct all-gather)"
        return ""
