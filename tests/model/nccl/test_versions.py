"""Differences between releases: constants, legal combinations, rules that changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nccl_machines import a100_four, build, h100_node, h100_three_nodes, rtx5090_socket

from advisor.errors import AdvisorError
from advisor.model.nccl.constants import constants_for, known_versions
from advisor.model.nccl.cost import predict
from advisor.model.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS, legal
from advisor.model.nccl.version import parse_version

MIB = 1 << 20


def latency(version: str, algo: str, proto: str, topology=None) -> float:  # type: ignore[no-untyped-def]
    return (
        predict(topology or h100_three_nodes(), "allreduce", MIB, parse_version(version))
        .row(algo, proto)
        .latency_us
    )


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.29.7", (2, 29, 7)),
        ("v2.30.7-1", (2, 30, 7)),
        ("2.26.2+cuda12.8", (2, 26, 2)),
        ("22907", (2, 29, 7)),
        ("2804", (2, 8, 4)),
        ("2.21", (2, 21, 0)),
    ],
)
def test_versions_in_all_spellings(text: str, version: tuple[int, int, int]) -> None:
    assert parse_version(text) == version


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(AdvisorError, match="not an NCCL version"):
        parse_version("latest")


def test_constants_come_from_the_newest_release_not_after() -> None:
    assert constants_for((2, 28, 7)).version == (2, 28, 3)
    assert constants_for((2, 99, 0)).version == known_versions()[-1]
    assert constants_for((2, 8, 0)).version == (2, 8, 4)
    # A minor release that is named alone, or by a patch before the table's first, is that one.
    assert constants_for((2, 29, 0)).version == (2, 29, 3)
    assert constants_for((2, 29, 2)).version == (2, 29, 3)
    assert constants_for((2, 9, 9)).version == (2, 8, 4)


def test_constants_equal_the_sheet_they_were_read_into(shared_data: Path) -> None:
    sheet = shared_data.parent / "nccl" / "cost-constants-by-version.json"
    if not sheet.is_file():
        pytest.skip("the sheet of constants is not beside this checkout")
    for text, raw in json.loads(sheet.read_text()).items():
        constants = constants_for(parse_version(text))
        assert constants.version <= parse_version(text)
        assert [list(row) for row in constants.base_latency_us] == raw["baseLatencies"]
        for index, link in enumerate(("nvlink", "pci", "net")):
            got = [list(row) for row in constants.hardware_latency_us[link]]
            assert got == raw["hwLatencies"][index]
        assert [list(row) for row in constants.ll_max_gbps] == raw["llMaxBws"]
        assert [list(row) for row in constants.tree_gbps] == raw["perChMaxTreeBws"]
        factors = [list(constants.tree_correction[name]) for name in PROTOCOLS]
        assert factors == raw["treeCorrectionFactor"]


def test_algorithms_appear_with_their_release() -> None:
    first = {
        algorithm: min(
            version
            for version in known_versions()
            if any(legal(op, algorithm, "Simple", version) for op in FUNCTIONS)
        )
        for algorithm in ALGORITHMS
    }
    assert first == {
        "Tree": (2, 8, 4),
        "Ring": (2, 8, 4),
        "CollNetDirect": (2, 8, 4),
        "CollNetChain": (2, 14, 3),
        "NVLS": (2, 17, 1),
        "NVLSTree": (2, 18, 1),
        "PAT": (2, 23, 4),
    }


def test_the_legal_table() -> None:
    version = (2, 29, 7)
    combinations = {
        op: [(a, p) for a in ALGORITHMS for p in PROTOCOLS if legal(op, a, p, version)]
        for op in FUNCTIONS
    }
    rings = [("Ring", protocol) for protocol in PROTOCOLS]
    assert combinations["Broadcast"] == combinations["Reduce"] == rings
    assert combinations["AllGather"] == combinations["ReduceScatter"]
    assert combinations["AllGather"] == [
        *rings,
        ("CollNetDirect", "Simple"),
        ("NVLS", "Simple"),
        ("PAT", "Simple"),
    ]
    assert len(combinations["AllReduce"]) == 10
    assert ("PAT", "Simple") not in combinations["AllReduce"]


def test_tree_ll_within_the_old_and_new_latency_rules() -> None:
    # 3 nodes x 8: base + 2 x (7 x intra + 1 x inter); intra x 1.8 until 2.17
    assert latency("2.14.3", "Tree", "LL") == pytest.approx(4.4 + 2 * (7 * 0.52 * 1.8 + 5))
    assert latency("2.20.5", "Tree", "LL") == pytest.approx(6.8 + 2 * (7 * 0.6 + 5))


def test_inter_node_steps_of_a_ring_were_2n_between_2_12_and_2_22() -> None:
    # ring Simple, 3 nodes x 8, from 2.18: base 8.4, intra max(3.4, 3), inter 14
    steps = 2 * 23
    for version, between in [("2.22.3", 6), ("2.23.4", 4)]:
        expected = 8.4 + (steps - between) * 3.4 + between * 14
        assert latency(version, "Ring", "Simple") == pytest.approx(expected)
    expected = 8.4 + (steps - 4) * 3.4 + 4 * 9.6
    assert latency("2.10.3", "Ring", "Simple") == pytest.approx(expected)


def test_tree_simple_latency_changed_back_and_forth() -> None:
    # NVLink step of Tree Simple: 28 us to 2.18.1, 4 in 2.18.5, 28 from 2.19, 4 from 2.23
    node = h100_node()
    for version, step, base in [
        ("2.18.1", 28, 0),
        ("2.18.5", 4, 0),
        ("2.19.4", 28, 0),
        ("2.22.3", 28, 0),
        ("2.23.4", 4, 8.4),
    ]:
        assert latency(version, "Tree", "Simple", node) == pytest.approx(base + 2 * 7 * step)


def test_ring_ll_bandwidth_doubled_in_2_21() -> None:
    four = a100_four()
    for version, factor in [("2.20.5", 1 / 4), ("2.21.5", 1 / 2)]:
        row = predict(four, "allreduce", MIB, parse_version(version)).row("Ring", "LL")
        assert row.bandwidth_gbps == pytest.approx(min(87.7, 240 * factor) * 4 / 6)
    row = predict(four, "allgather", MIB, parse_version("2.20.5")).row("Ring", "LL")
    assert row.bandwidth_gbps == pytest.approx(240 / 3 * 4 / 3)


def test_a_dgx_a100_was_capped_at_235_until_2_17() -> None:
    four = a100_four()
    for version, bus in [("2.16.5", 235.0), ("2.18.1", 240.0)]:
        row = predict(four, "allreduce", MIB, parse_version(version)).row("Ring", "Simple")
        assert row.bandwidth_gbps == pytest.approx(bus * 4 / 6)


def test_nvls_bandwidth_by_release() -> None:
    # 8 channels x 40: ratio .75 (2.18.1), 5/6 (2.18.5 to 2.27), efficiency formula from 2.28
    for version, bandwidth in [
        ("2.18.1", 320 * 0.75),
        ("2.21.5", 320 * 5 / 6),
        ("2.27.3", 320 * 5 / 6),
        ("2.28.3", 8 * 40 * 0.85 * 7 / 8 * 2 * 8 / 14),
    ]:
        row = predict(h100_node(), "allreduce", MIB, parse_version(version)).row("NVLS", "Simple")
        assert row.bandwidth_gbps == pytest.approx(bandwidth)
        assert row.latency_us == {"2.18.1": 23}.get(version, 25)


def test_pat_starts_with_8_us_in_every_release() -> None:
    # two nodes, one rank each: 8 + log2(2) x Tree's 14 / 3.5 + 2.8 x 2
    for version, base, factor in [("2.23.4", 8, 0.85), ("2.24.3", 8, 0.75), ("2.28.3", 8, 0.75)]:
        row = predict(rtx5090_socket(), "allgather", MIB, parse_version(version)).row(
            "PAT", "Simple"
        )
        assert row.latency_us == pytest.approx(base + 4 + 5.6)
        assert row.bandwidth_gbps == pytest.approx(4.8 * factor)


def test_mixed_cpus_count_as_amd_from_2_24() -> None:
    def ring_ll(version: str, vendor: str) -> float:
        topology = h100_three_nodes().model_copy(update={"cpu_vendor": vendor})
        prediction = predict(topology, "allreduce", MIB, parse_version(version))
        return prediction.row("Ring", "LL").bandwidth_gbps

    assert ring_ll("2.23.4", "mixed") == ring_ll("2.23.4", "intel")
    assert ring_ll("2.24.3", "mixed") == ring_ll("2.24.3", "amd") != ring_ll("2.24.3", "intel")


def test_ll128_between_different_gpus_is_trusted_from_2_30() -> None:
    mixed = h100_node().model_copy(update={"max_compute_capability": 100})
    for version, available in [("2.29.7", False), ("2.30.7", True)]:
        row = predict(mixed, "allreduce", MIB, parse_version(version)).row("Ring", "LL128")
        assert row.available is available


def test_ll128_needs_close_paths() -> None:
    version = parse_version("2.29.7")
    for intra, inter, capability, available in [
        ("NVL", "PXB", 80, True),
        ("NVL", "PXN", 80, False),
        ("NVL", "PXN", 90, True),
        ("NVB", "PIX", 80, True),
        ("PHB", "PIX", 90, False),
        ("NVL", "SYS", 90, False),
        ("NVL", "PIX", 60, False),
    ]:
        topology = build(
            nodes=2,
            ranks_per_node=4,
            compute_capability=capability,
            ring={"channels": 4, "bw_intra": 20, "type_intra": intra, "type_inter": inter},
        )
        row = predict(topology, "allreduce", MIB, version).row("Ring", "LL128")
        assert row.available is available, (intra, inter, capability)


@pytest.mark.parametrize(
    ("op", "proto", "latency_us", "bandwidth_gbps"),
    [
        ("broadcast", "LL", 6.3, 0.8),
        ("broadcast", "LL128", 14.0, 0.0),
        ("broadcast", "Simple", 18.0, 3.0),
        ("allgather", "LL", 33.3, 0.8),
        ("allgather", "LL128", 52.0, 0.0),
        ("allgather", "Simple", 105.6, 3.2),
    ],
)
def test_a_table_printed_by_an_old_release(
    op: str, proto: str, latency_us: float, bandwidth_gbps: float
) -> None:
    # github.com/NVIDIA/nccl/issues/754 (2022). The header's single CollNet and Ring Simple's 9.6 us
    # over the network say 2.8 to 2.11; the latencies fit 4 nodes x 4 PCIe GPUs and nothing else.
    topology = build(
        nodes=4,
        ranks_per_node=4,
        compute_capability=86,
        ring={"channels": 1, "bw_intra": 3.0, "type_intra": "SYS", "type_inter": "SYS"},
    )
    row = predict(topology, op, MIB, parse_version("2.10.3")).row("Ring", proto)
    assert row.latency_us == pytest.approx(latency_us, abs=0.0501)
    assert row.bandwidth_gbps == pytest.approx(bandwidth_gbps, abs=0.0501)


def test_the_tree_bandwidth_printed_on_h800_nodes() -> None:
    # github.com/NVIDIA/nccl/issues/1154: Tree Simple 68.8 GB/s. H800's 8 NVLinks carry 8 x 22.
    topology = build(
        nodes=2,
        ranks_per_node=8,
        compute_capability=90,
        ring={"channels": 8, "bw_intra": 22.0},
        tree={"pattern": 3, "channels": 8, "bw_intra": 22.0},
    )
    for version, printed in [("2.18.5", 68.8), ("2.19.4", 68.8), ("2.18.1", 81.0)]:
        row = predict(topology, "allreduce", MIB, parse_version(version)).row("Tree", "Simple")
        assert row.bandwidth_gbps == pytest.approx(printed, abs=0.05)
