"""The formulas of NCCL's source at 2.30.7, worked by hand for every algorithm on one machine.

Four nodes x eight Hopper GPUs (Intel): ring and tree 8 channels x 45 GB/s, NVLS and CollNet
8 x 40 inside and 45 between nodes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from nccl_machines import build

from advisor.model.nccl.constants import constants_for
from advisor.model.nccl.cost import predict
from advisor.model.nccl.names import FUNCTIONS
from advisor.model.nccl.version import parse_version
from advisor.model.topology import Topology

NEWEST = (2, 30, 7)
MIB = 1 << 20


def hopper(nodes: int = 4, **changes: Any) -> Topology:
    graph = {"channels": 8, "bw_intra": 45.0, "bw_inter": 45.0}
    switch = {"channels": 8, "bw_intra": 40.0, "bw_inter": 45.0}
    fields = {
        "nodes": nodes,
        "ranks_per_node": 8,
        "compute_capability": 90,
        "collnet_gather": True,
        "ring": graph,
        "tree": {**graph, "pattern": 1},
        "nvls": {**switch, "pattern": 5},
        "collnet": {**switch, "pattern": 6},
    }
    return build(**{**fields, **changes})


RING_AR = 32 / 62  # ranks over steps
GBPS = [
    ("allreduce", "Tree", "Simple", 4, 8 * 36 * 0.5),  # the cap per channel, below .92 x bus
    ("allreduce", "Tree", "LL", 4, 20.4 * 0.5),  # LL's ceiling on Intel CPUs across nodes
    ("allreduce", "Tree", "LL128", 4, 8 * 29 * 0.5),  # its own cap per channel
    ("allreduce", "Tree", "Simple", 2, 8 * 41.4 * 0.5),
    ("allreduce", "Tree", "LL128", 2, 8 * 36.7 * 0.5),  # below 120/128 x .92 x bus
    ("allreduce", "Ring", "Simple", 4, 360 * RING_AR),
    ("allreduce", "Ring", "LL", 4, 20.4 * RING_AR),
    ("allreduce", "Ring", "LL128", 4, 8 * 36.7 * RING_AR),
    ("allgather", "Ring", "Simple", 4, 360 * 32 / 31),
    ("broadcast", "Ring", "Simple", 4, 360),
    ("reduce", "Ring", "Simple", 4, 360),
    # efficiency .85 x 7/8 x 2, and what the NICs carry
    ("allreduce", "NVLS", "Simple", 4, 8 * 45 * RING_AR),
    ("allreduce", "NVLSTree", "Simple", 4, 8 * 45 * RING_AR),
    ("allreduce", "NVLSTree", "Simple", 2, 8 * 57.7 * 16 / 30),  # the cap on two nodes
    ("allgather", "NVLS", "Simple", 4, 8 * 40 * 0.85 * 7 / 8 * 7 / 8),
    ("allreduce", "CollNetDirect", "Simple", 4, 8 * 40 * 0.85 * 0.5),
    ("allgather", "CollNetDirect", "Simple", 4, 8 * 40),  # min(X, .9 Y) per rank of a node
    ("reducescatter", "CollNetDirect", "Simple", 4, 8 * 40),
    ("allreduce", "CollNetChain", "Simple", 4, 8 * 40 * 0.5),
]


@pytest.mark.parametrize(("op", "algo", "proto", "nodes", "expected"), GBPS)
def test_bandwidths(op: str, algo: str, proto: str, nodes: int, expected: float) -> None:
    row = predict(hopper(nodes), op, MIB, NEWEST, proto=proto).row(algo, proto)
    assert row.bandwidth_gbps == pytest.approx(expected)


US = [
    ("allreduce", "Tree", "Simple", 8.4 + 2 * (7 * 4 + 2 * 14)),
    ("allreduce", "Tree", "LL", 6.8 + 2 * (7 * 0.6 + 2 * 5)),
    ("allreduce", "Tree", "LL128", 14 + 2 * (7 * 1.25 + 2 * 8.5)),
    ("allreduce", "Ring", "Simple", 8.4 + (62 - 6) * 3.4 + 6 * 14),
    ("allreduce", "Ring", "LL", 6.6 + (62 - 6) * 1.0 + 6 * 2.7),  # 1 us of the net's overhead
    ("allgather", "Ring", "LL128", 14 + (31 - 3) * 1.9 + 3 * 4),
    ("allreduce", "CollNetDirect", "Simple", 2 * (3.7 + 7 * 0.4) + 31),
    ("allreduce", "CollNetChain", "Simple", 2 * 7 * 2.8 + 30),
    ("allreduce", "NVLS", "Simple", 25 + 18),
    ("allreduce", "NVLSTree", "Simple", 25 + 2 * 2 * 20.9),
]


@pytest.mark.parametrize(("op", "algo", "proto", "expected"), US)
def test_latencies(op: str, algo: str, proto: str, expected: float) -> None:
    row = predict(hopper(), op, MIB, NEWEST, proto=proto).row(algo, proto)
    assert row.latency_us == pytest.approx(expected)


def test_broadcast_and_reduce_pay_every_rank_where_channels_differ() -> None:
    for same, expected in [(True, 8.4 + 14), (False, 8.4 + 32 * 14)]:
        ring = {"channels": 8, "bw_intra": 45.0, "bw_inter": 45.0, "same_channels": same}
        for op in ("broadcast", "reduce"):
            row = predict(hopper(ring=ring), op, MIB, NEWEST).row("Ring", "Simple")
            assert row.latency_us == pytest.approx(expected)


def test_an_amd_cpu_has_twice_the_overhead_and_another_ceiling_of_ll() -> None:
    amd = predict(hopper(cpu_vendor="amd"), "allreduce", MIB, NEWEST)
    assert amd.row("Ring", "Simple").latency_us == pytest.approx(8.4 + (62 - 6) * 6 + 6 * 14)
    assert amd.row("Ring", "LL").bandwidth_gbps == pytest.approx(19 * RING_AR)


def test_the_plugins_latency_is_paid_twice_by_simple() -> None:
    tree = {"channels": 8, "bw_intra": 45.0, "bw_inter": 45.0, "pattern": 1, "latency_inter": 3.0}
    rows = predict(hopper(tree=tree), "allreduce", MIB, NEWEST)
    assert rows.row("Tree", "LL").latency_us == pytest.approx(6.8 + 2 * (7 * 0.6 + 2 * (5 + 3)))
    assert rows.row("Tree", "Simple").latency_us == pytest.approx(8.4 + 2 * (28 + 2 * (14 + 6)))


def test_fewer_heads_than_ranks_cost_collnet_direct() -> None:
    # f = 8 ranks / 4 channels = 2, less half of what is above 1
    collnet = {"channels": 4, "bw_intra": 40.0, "bw_inter": 45.0, "pattern": 6}
    row = predict(hopper(collnet=collnet), "allreduce", MIB, NEWEST).row("CollNetDirect", "Simple")
    assert row.bandwidth_gbps == pytest.approx(4 * 40 / 1.5 * 0.85 * 0.5)


def test_a_tree_of_pattern_tree_is_slower_and_small_trees_are_corrected() -> None:
    tree = {"channels": 8, "bw_intra": 45.0, "bw_inter": 45.0, "pattern": 3}
    row = predict(hopper(tree=tree), "allreduce", MIB, NEWEST).row("Tree", "Simple")
    assert row.bandwidth_gbps == pytest.approx(144 * 0.85)
    # 1 MiB is 64 B x 2^14: the fifteenth factor of Simple is .5
    assert row.time_us == pytest.approx(row.latency_us + MIB / (1000 * 144 * 0.85 * 0.5))


def test_nvlstree_is_corrected_on_blackwell_and_x86_only() -> None:
    size = 64 << 14  # factor .5, as for trees
    for capability, vendor, version, factor in [
        (100, "intel", (2, 29, 7), 0.5),
        (100, "intel", (2, 28, 9), 1.0),
        (100, "nvidia", (2, 29, 7), 1.0),
        (90, "intel", (2, 29, 7), 1.0),
    ]:
        topology = hopper(compute_capability=capability, cpu_vendor=vendor)
        row = predict(topology, "allreduce", size, version).row("NVLSTree", "Simple")
        assert row.time_us is not None
        transfer = size / (1000 * row.bandwidth_gbps * factor)
        assert row.time_us == pytest.approx(row.latency_us + transfer), (capability, version)


def test_the_tables_of_ll128_and_nvls_equal_the_sheet(shared_data: Path) -> None:
    sheet = shared_data.parent / "nccl" / "cost-constants-by-version.json"
    if not sheet.is_file():
        pytest.skip("the sheet of constants is not beside this checkout")
    for text, raw in json.loads(sheet.read_text()).items():
        found = constants_for(parse_version(text))
        for own, name in [
            (found.ring_ll128_gbps, "perChMaxRingLL128Bws"),
            (found.tree_ll128_gbps, "perChMaxTreeLL128Bws"),
            (found.nvlstree_gbps, "perChMaxNVLSTreeBws"),
        ]:
            if name in raw:
                assert [list(row) for row in own] == raw[name], (text, name)
        assert list(found.nvls_efficiency) == raw.get("nvlsEfficiency", []), text
        if text == "2.8.4":
            names = [op.lower() for op in FUNCTIONS]
            assert [found.ll128_per_function_gbps[n] for n in names] == raw["ll128MaxBwPerCh"]
        if "ll128_scalar" in raw:
            per_channel = float(raw["ll128_scalar"].split("=")[1])
            values = {v for row in found.ring_ll128_gbps for v in row} or set(
                found.ll128_per_function_gbps.values()
            )
            assert values == {per_channel}, text
