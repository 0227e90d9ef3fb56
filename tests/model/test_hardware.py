"""The hardware table: looked up by real device names, dense, sourced, and consistent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from advisor.cli.nccl_model import command
from advisor.config.hardware import (
    Machine,
    device_of,
    devices,
    find_device,
    gpus_per_nic,
    machine,
    machine_names,
    peak_flops,
)
from advisor.errors import AdvisorError
from advisor.model.nccl.cost import predict
from advisor.model.nccl.version import parse_version
from advisor.model.plan_cluster import Cluster, Group
from advisor.model.topology_machine import topology_of


@pytest.mark.parametrize(
    ("name", "device", "bf16_tflops"),
    [
        ("NVIDIA H100 80GB HBM3", "H100 SXM", 989.4),
        ("NVIDIA H100 PCIe", "H100 PCIe", 756),
        ("NVIDIA H100 NVL", "H100 NVL", 835.5),
        ("NVIDIA H200", "H200 SXM", 989.4),
        ("NVIDIA GH200 480GB", "GH200", 989.4),
        ("NVIDIA B200", "B200", 2250),
        ("NVIDIA GB200", "GB200", 2500),
        ("NVIDIA A100-SXM4-80GB", "A100 SXM 80GB", 312),
        ("NVIDIA A100-SXM4-40GB", "A100 SXM 40GB", 312),
        ("NVIDIA A100 80GB PCIe", "A100 PCIe 80GB", 312),
        ("A100-SXM4-40GB", "A100 SXM 40GB", 312),
        ("NVIDIA A10G", "A10G", 70),
        ("NVIDIA L40S", "L40S", 362.05),
        ("NVIDIA L4", "L4", 121),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 5090", "RTX 5090", 209.5),
        ("AMD Instinct MI300X", "MI300X", 1307.4),
        ("AMD Instinct MI300X OAM", "MI300X", 1307.4),
    ],
)
def test_devices_by_the_name_that_traces_print(name: str, device: str, bf16_tflops: float) -> None:
    found = find_device(name)
    assert found is not None
    assert found.name == device
    assert found.peak_flops("bfloat16") == pytest.approx(bf16_tflops * 1e12)


def test_v100_has_no_bf16() -> None:
    assert peak_flops("Tesla V100-SXM2-16GB", "bf16") is None
    assert peak_flops("Tesla V100-SXM2-16GB", "fp16") == (125e12, "NVIDIA V100 data sheet")


@pytest.mark.parametrize(
    "name",
    [
        "CPU",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 3090 Ti",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA Quadro P4000",
        "",
    ],
)
def test_unknown_devices_have_no_peak(name: str) -> None:
    assert find_device(name) is None
    assert peak_flops(name, "bf16") is None


def test_peaks_are_dense() -> None:
    # The sparse figures of the data sheets must not have slipped in.
    sparse = {"H100 SXM": 1979, "A100 SXM 80GB": 624, "B200": 4500, "L40S": 733, "RTX 4090": 330.3}
    for device in devices():
        if device.name in sparse:
            assert device.peak_tflops["bf16"] == pytest.approx(sparse[device.name] / 2, rel=0.02)


def test_halving_the_width_never_slows_a_tensor_core() -> None:
    for device in devices():
        peaks = device.peak_tflops
        for wide, narrow in [("tf32", "fp16"), ("fp16", "fp8"), ("fp8", "fp4"), ("fp32", "fp16")]:
            if wide in peaks and narrow in peaks:
                assert peaks[narrow] >= peaks[wide], (device.name, wide, narrow)  # type: ignore[index]


def test_every_device_and_machine_is_valid_and_unique() -> None:
    names = [device.name for device in devices()]
    assert len(set(names)) == len(names)
    for device in devices():
        for phrase in device.match:
            found = find_device(phrase)
            assert found is not None
            assert found.name == device.name, phrase
    assert len(machine_names()) >= 15
    for name in machine_names():
        found_machine = machine(name)
        assert found_machine.name == name
        device = device_of(found_machine)
        assert device.link_gbps is None or found_machine.intra.gpu_gbps <= device.link_gbps


def test_a_misspelt_machine_suggests_the_right_one() -> None:
    with pytest.raises(AdvisorError) as caught:
        machine("dgx-h10")
    assert "dgx-h100" in caught.value.hint


def test_a_machine_of_ones_own(tmp_path: Path) -> None:
    source = Path(__file__).parents[2] / "advisor" / "model" / "hardware" / "dgx-h100.yaml"
    path = tmp_path / "mine.yaml"
    path.write_text(source.read_text().replace("nics: 8", "nics: 4"))
    assert machine(str(path)).network.node_gbps == 200
    path.write_text(source.read_text().replace("gpudirect", "gpu_direct"))
    with pytest.raises(AdvisorError, match=r"mine.yaml:\d+"):
        machine(str(path))


@pytest.mark.parametrize("name", machine_names())
def test_machines_have_topologies_that_predict(name: str) -> None:
    for nodes in (1, 2, 16):
        predicts(machine(name), nodes)


def predicts(found: Machine, nodes: int) -> None:
    if (found.nccl_one_node if nodes == 1 else found.nccl_several_nodes) is None:
        with pytest.raises(AdvisorError, match="no NCCL graphs") as refused:
            topology_of(found, nodes)
        assert "--log" in (refused.value.hint or "")
        return
    whole = topology_of(found, nodes)
    assert whole.ranks == nodes * found.gpus_per_node
    of_nvidia = device_of(found).vendor == "nvidia"
    parts = of_nvidia and found.nccl_several_nodes is not None
    several = [topology_of(found, max(nodes, 2), 1)] if parts else []
    version = parse_version("2.29.7" if of_nvidia else "2.21.5")
    for topology in (whole, *several):
        choice = predict(topology, "allreduce", 64 << 20, version).choice
        assert choice is not None
        # No choice may beat the wire: bus bandwidth within the links that carry it.
        ranks = topology.ranks
        bus_gbps = (64 << 20) * 2 * (ranks - 1) / ranks / choice.time_us / 1000
        limit = found.intra.gpu_gbps if topology.nodes == 1 else found.network.node_gbps
        share = topology.ranks_per_node / found.gpus_per_node if topology.nodes > 1 else 1.0
        # The switch adds: fewer bytes on each link. Over two nodes a tree crosses once, not twice.
        fewer = choice.algo.startswith("NVLS") or (choice.algo == "Tree" and topology.nodes == 2)
        assert bus_gbps <= limit * share * (2 if fewer else 1)


def test_the_command_takes_a_machine() -> None:
    arguments = ["--hardware", "dgx-h100", "--nccl", "2.29.7", "--op", "allreduce"]
    result = CliRunner().invoke(command, [*arguments, "--bytes", "4G", "--format", "json"])
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["choice"]["algo"] == "NVLS"
    # 8 x min(40 x .85 x 7/8 x 2, 60) x 8/14 GB/s
    assert data["choice"]["time_us"] == pytest.approx(15_815, rel=1e-3)


@pytest.mark.parametrize("per_node", [1, 2, 4])
def test_groups_that_share_a_nodes_nics_are_not_faster_together_than_the_node(
    per_node: int,
) -> None:
    shared = 0
    for found in map(machine, machine_names()):
        of_amd = device_of(found).vendor == "amd"
        if of_amd or found.nccl_several_nodes is None or per_node >= found.gpus_per_node:
            continue  # no NCCL graphs, or no smaller group
        shared += 1
        whole, part = topology_of(found, 4), topology_of(found, 4, per_node)
        groups = found.gpus_per_node / per_node
        for graph in ("ring", "tree"):
            all_of, one = getattr(whole, graph), getattr(part, graph)
            together = groups * one.channels * one.bw_inter
            limit = all_of.channels * all_of.bw_inter * 1.001
            assert together <= limit, (found.name, graph)
    assert shared > 3


def test_replicas_of_a_shard_each_have_their_share_of_one_slow_nic_only() -> None:
    # GIVEN eight GPUs behind one port of 1.25 GB/s WHEN each reduces its eighth over eight nodes
    cluster = Cluster(machine("a100-tcp"), 64, (2, 29, 7))
    shards = cluster.collective_s("allreduce", 1e9 / 8, Group(8, 1))
    # THEN that takes about as long as one reduction of everything: the same bytes, the same port
    whole = cluster.collective_s("allreduce", 1e9, Group(8, 8))
    assert shards == pytest.approx(whole, rel=0.15)


def test_how_many_gpus_share_a_nic_is_read_from_machines_that_have_several() -> None:
    """EFA's 32 beside 8 GPUs are each one's own; p4d has four, a PCIe server two."""
    assert gpus_per_nic() == (1, 2, 4)
