"""Graphs of the hardware table are those that NCCL's own search finds, where it can be compiled."""

from __future__ import annotations

import os
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from advisor.config.hardware import device_of, machine, machine_names
from benchmarks.nccl_source.graphs import MACHINES, build, search, tabled, topology_xml

# A clone of NVIDIA/nccl with its tags.
REPOSITORY = os.environ.get("NCCL_REPOSITORY")
CUDA = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include" / "cuda_runtime.h"


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_is_written_with_all_its_gpus_links_and_nics(name: str) -> None:
    described = machine(name)
    system = ET.fromstring(topology_xml(described))
    assert [int(gpu.attrib["rank"]) for gpu in system.iter("gpu")] == list(
        range(described.gpus_per_node)
    )
    # DGX Spark's port is two NICs.
    speeds = [float(net.attrib["speed"]) / 8000 for net in system.iter("net")]
    assert sum(speeds) == described.network.node_gbps
    assert len(speeds) in (described.network.nics, 2 * described.network.nics)
    assert not list(ET.fromstring(topology_xml(described, network=False)).iter("net"))


def test_every_machine_of_several_nvidia_gpus_has_graphs() -> None:
    several = [
        machine(name) for name in machine_names() if device_of(machine(name)).vendor == "nvidia"
    ]
    without = {found.name for found in several if found.nccl_several_nodes is None}
    assert without == {"gb200-nvl72"}  # one rack is one NVLink domain
    alone = {found.name for found in several if found.nccl_one_node is None}
    assert alone == {"dgx-spark"}  # one GPU


@pytest.mark.skipif(
    REPOSITORY is None or shutil.which("g++") is None or not CUDA.exists(),
    reason="NCCL_REPOSITORY names no clone of NVIDIA/nccl, or no compiler or CUDA headers here",
)
def test_the_graphs_of_the_table_are_those_of_nccls_search(tmp_path: Path) -> None:
    program = build(Path(str(REPOSITORY)), "2.27.7", tmp_path)
    for name in MACHINES:
        for network in (True, False):
            ours = tabled(machine(name), network)
            assert ours in (None, search(program, machine(name), network)), name
