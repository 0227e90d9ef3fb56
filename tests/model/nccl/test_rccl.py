"""RCCL's model of eight MI300X a node: cells of its own sources, compiled; what it refuses."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from advisor.cli.nccl_model import command
from advisor.config.hardware import machine
from advisor.errors import AdvisorError
from advisor.model.nccl.cost import predict
from advisor.model.nccl.version import parse_version
from advisor.model.plan_cluster import Cluster, Group
from advisor.model.topology_machine import topology_of
from benchmarks.nccl_source.rccl import ask, build, differing

MACHINE = "mi300x-roce"
# A clone of ROCm/rccl with its tags.
REPOSITORY = os.environ.get("RCCL_REPOSITORY")
CUDA = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "include" / "cuda_runtime.h"
# Release, nodes, function, algorithm, protocol, bytes; latency (us), bandwidth (GB/s) and time (us;
# -1: not available) of src/graph at the references of benchmarks/nccl_source/rccl.py.
CELLS = (
    ("2.18.6", 1, "AllReduce", "Tree", "LL", 10922, 23.2, 68.88, 23.39821),
    ("2.18.6", 1, "AllReduce", "Ring", "Simple", 89478485, 67.4, 192, 533.4337),
    ("2.18.6", 1, "AllReduce", "Tree", "Simple", 89478485, 0, 0, -1),
    ("2.18.6", 1, "AllGather", "Ring", "LL", 87381, 17.6, 157.44, 18.15501),
    ("2.18.6", 1, "Broadcast", "Ring", "LL", 1398101, 12.8, 137.76, 22.94882),
    ("2.18.6", 2, "AllReduce", "Tree", "LL", 10922, 48.2, 68.88, 48.39821),
    ("2.18.6", 2, "AllReduce", "Ring", "Simple", 89478485, 252.2, 179.2, 751.5219),
    ("2.18.6", 2, "AllReduce", "Tree", "Simple", 89478485, 96.8, 168, 762.5625),
    ("2.18.6", 2, "AllGather", "Ring", "LL", 87381, 49.5, 146.944, 52.47327),
    ("2.18.6", 2, "Broadcast", "Ring", "LL", 1398101, 21.5, 137.76, 31.64882),
    ("2.18.6", 16, "AllReduce", "Tree", "LL", 10922, 123.2, 68.88, 123.3982),
    ("2.18.6", 16, "AllReduce", "Ring", "Simple", 89478485, 1982.6, 169.323, 2511.049),
    ("2.18.6", 16, "AllReduce", "Tree", "Simple", 89478485, 231.2, 144.48, 1005.343),
    ("2.18.6", 16, "AllGather", "Ring", "LL", 87381, 378.5, 138.845, 381.6467),
    ("2.18.6", 16, "Broadcast", "Ring", "LL", 1398101, 21.5, 137.76, 31.64882),
    ("2.20.5", 1, "AllReduce", "Tree", "LL", 10922, 23.2, 68.88, 23.39821),
    ("2.20.5", 1, "AllReduce", "Ring", "Simple", 89478485, 67.4, 192, 533.4337),
    ("2.20.5", 1, "AllReduce", "Tree", "Simple", 89478485, 0, 0, -1),
    ("2.20.5", 1, "AllGather", "Ring", "LL", 87381, 17.6, 157.44, 18.15501),
    ("2.20.5", 1, "Broadcast", "Ring", "LL", 1398101, 12.8, 227.304, 18.9508),
    ("2.20.5", 2, "AllReduce", "Tree", "LL", 10922, 48.2, 68.88, 48.39821),
    ("2.20.5", 2, "AllReduce", "Ring", "Simple", 89478485, 252.2, 179.2, 751.5219),
    ("2.20.5", 2, "AllReduce", "Tree", "Simple", 89478485, 96.8, 168, 762.5625),
    ("2.20.5", 2, "AllGather", "Ring", "LL", 87381, 49.5, 146.944, 52.47327),
    ("2.20.5", 2, "Broadcast", "Ring", "LL", 1398101, 21.5, 137.76, 31.64882),
    ("2.20.5", 16, "AllReduce", "Tree", "LL", 10922, 123.2, 68.88, 123.3982),
    ("2.20.5", 16, "AllReduce", "Ring", "Simple", 89478485, 1982.6, 169.323, 2511.049),
    ("2.20.5", 16, "AllReduce", "Tree", "Simple", 89478485, 231.2, 144.48, 1005.343),
    ("2.20.5", 16, "AllGather", "Ring", "LL", 87381, 378.5, 138.845, 381.6467),
    ("2.20.5", 16, "Broadcast", "Ring", "LL", 1398101, 21.5, 137.76, 31.64882),
    ("2.21.5", 1, "AllReduce", "Tree", "LL", 10922, 24.6, 10.08, 25.68353),
    ("2.21.5", 1, "AllReduce", "Ring", "Simple", 89478485, 46.4, 192, 512.4338),
    ("2.21.5", 1, "AllReduce", "Tree", "Simple", 89478485, 0, 0, -1),
    ("2.21.5", 1, "AllGather", "Ring", "LL", 87381, 17.6, 30.72, 20.44443),
    ("2.21.5", 1, "Broadcast", "Ring", "LL", 1398101, 12.8, 44.352, 44.32284),
    ("2.21.5", 2, "AllReduce", "Tree", "LL", 10922, 45.6, 10.08, 46.68353),
    ("2.21.5", 2, "AllReduce", "Ring", "Simple", 89478485, 1453, 179.2, 6446.219),
    ("2.21.5", 2, "AllReduce", "Tree", "Simple", 89478485, 99.2, 18.48, 4941.11),
    ("2.21.5", 2, "AllGather", "Ring", "LL", 87381, 49.5, 28.672, 79.97607),
    ("2.21.5", 2, "Broadcast", "Ring", "LL", 1398101, 21.5, 26.88, 151.5317),
    ("2.21.5", 16, "AllReduce", "Tree", "LL", 10922, 108.6, 10.08, 109.6835),
    ("2.21.5", 16, "AllReduce", "Ring", "Simple", 89478485, 11589, 169.323, 16873.49),
    ("2.21.5", 16, "AllReduce", "Tree", "Simple", 89478485, 249.2, 99.12, 1151.929),
    ("2.21.5", 16, "AllGather", "Ring", "LL", 87381, 378.5, 27.0917, 410.7538),
    ("2.21.5", 16, "Broadcast", "Ring", "LL", 1398101, 21.5, 26.88, 151.5317),
    ("2.27.7", 1, "AllReduce", "Ring", "LL128", 1398101, 0, 0, -1),
    ("2.27.7", 1, "AllReduce", "Ring", "Simple", 357913941, 46.4, 192, 1910.535),
    ("2.27.7", 1, "ReduceScatter", "Ring", "LL", 1398101, 17.6, 30.72, 63.1111),
    ("2.27.7", 2, "AllReduce", "Ring", "LL128", 1398101, 87, 14.336, 330.8094),
    ("2.27.7", 2, "AllReduce", "Tree", "LL128", 1398101, 45.6, 10.08, 184.3005),
    ("2.27.7", 2, "AllReduce", "Ring", "Simple", 357913941, 825, 179.2, 3678.268),
    ("2.27.7", 2, "AllReduce", "Tree", "Simple", 357913941, 99.2, 18.48, 27767.25),
    ("2.27.7", 16, "AllReduce", "Ring", "LL128", 1398101, 745, 13.5458, 1003.032),
    ("2.27.7", 16, "AllReduce", "Tree", "Simple", 357913941, 249.2, 99.12, 5407.651),
)
# Release, nodes, function, bytes; what those sources take.
CHOICES = (
    ("2.26.6", 1, "ReduceScatter", 1398101, "Ring Simple"),
    ("2.26.6", 1, "AllGather", 1398101, "Ring Simple"),
    ("2.26.6", 2, "AllReduce", 349525, "Tree LL"),
    ("2.26.6", 2, "AllReduce", 2796202, "Tree LL128"),
    ("2.26.6", 2, "AllReduce", 11184810, "Tree Simple"),
    ("2.26.6", 4, "AllReduce", 11184810, "Tree LL128"),
    ("2.26.6", 2, "Broadcast", 1398101, "Ring LL"),
    ("2.26.6", 8, "AllGather", 2796202, "Direct"),
    ("2.27.7", 1, "ReduceScatter", 1398101, "Ring LL"),
    ("2.27.7", 1, "ReduceScatter", 5592405, "Ring Simple"),
    ("2.27.7", 1, "AllGather", 1398101, "Direct"),
    ("2.27.7", 2, "AllReduce", 349525, "Tree LL"),
    ("2.27.7", 2, "AllReduce", 2796202, "Tree LL128"),
    ("2.27.7", 2, "AllReduce", 11184810, "Tree Simple"),
    ("2.27.7", 4, "AllReduce", 11184810, "Tree LL128"),
    ("2.27.7", 4, "AllReduce", 44739242, "Tree Simple"),
    ("2.27.7", 2, "ReduceScatter", 87381, "Ring LL"),
    ("2.27.7", 2, "ReduceScatter", 5592405, "Ring LL128"),
    ("2.27.7", 2, "ReduceScatter", 178956970, "Ring Simple"),
    ("2.27.7", 2, "AllGather", 11184810, "Ring LL128"),
    ("2.27.7", 2, "Broadcast", 1398101, "Ring LL128"),
    ("2.27.7", 8, "AllGather", 5592405, "Ring LL"),
)


@pytest.mark.parametrize(
    ("release", "nodes", "op", "algo", "proto", "size", "latency", "bandwidth", "time"), CELLS
)
def test_a_cell_is_that_of_rccls_own_sources(
    release: str,
    nodes: int,
    op: str,
    algo: str,
    proto: str,
    size: int,
    latency: float,
    bandwidth: float,
    time: float,
) -> None:
    topology = topology_of(machine(MACHINE), nodes)
    row = predict(topology, op, size, parse_version(release)).row(algo, proto)
    assert row.bandwidth_gbps == pytest.approx(bandwidth, rel=1e-5)
    assert (row.time_us if row.available else -1) == pytest.approx(time, rel=1e-5)
    if bandwidth:  # RCCL leaves the latency of what it skips at zero
        assert row.latency_us == pytest.approx(latency, rel=1e-5)


@pytest.mark.parametrize(("release", "nodes", "op", "size", "taken"), CHOICES)
def test_what_is_taken_is_what_rccls_own_sources_take(
    release: str, nodes: int, op: str, size: int, taken: str
) -> None:
    prediction = predict(topology_of(machine(MACHINE), nodes), op, size, parse_version(release))
    choice = prediction.choice
    assert (f"{choice.algo} {choice.proto}" if choice else "Direct") == taken
    assert bool(prediction.instead) == (choice is None)


def test_a_protocol_that_is_asked_for_is_kept_whatever_the_size() -> None:
    # GIVEN a size that RCCL sends by LL128 where nobody asks for another
    topology = topology_of(machine(MACHINE), 2)
    choice = predict(topology, "allreduce", 2796202, (2, 27, 7), proto="LL").choice
    assert choice is not None
    assert choice.proto == "LL"


def test_every_channel_is_used_by_large_calls_and_one_by_the_smallest() -> None:
    # GIVEN 28 rings on a node, doubled, and 64 between nodes, which are the most
    for nodes, channels in ((1, 56), (2, 64)):
        topology = topology_of(machine(MACHINE), nodes)
        large = predict(topology, "allreduce", 1 << 30, (2, 21, 5)).choice
        small = predict(topology, "allreduce", 8, (2, 21, 5)).choice
        assert large is not None
        assert small is not None
        assert (large.channels, large.threads) == (channels, 256)
        assert (small.channels, small.threads) == (1, 256)


@pytest.mark.parametrize("release", ["2.18.3", "2.19.4", "2.23.4", "2.28.3"])
def test_a_release_whose_tables_were_not_read_is_refused(release: str) -> None:
    with pytest.raises(AdvisorError, match=f"does not cover RCCL {release}"):
        predict(topology_of(machine(MACHINE), 2), "allreduce", 1 << 20, parse_version(release))


@pytest.mark.parametrize("nodes", [1, 4])
def test_a_part_of_a_mesh_is_refused(nodes: int) -> None:
    with pytest.raises(AdvisorError, match="2 of 8 GPUs"):
        topology_of(machine(MACHINE), nodes, 2)


def test_two_gpus_of_a_mesh_have_one_link_of_seven() -> None:
    cluster = Cluster(machine(MACHINE), 16, (2, 29, 7))
    assert not cluster.modelled_by_nccl
    assert cluster.link_gbps(Group(1, 2)) == pytest.approx(64)
    assert cluster.link_gbps(Group(1, 8)) == pytest.approx(448)
    # AND all-to-all inside a node takes as long however many share it: each pair has its link
    few, all_of = (cluster.all_to_all_s(1e9 * n, Group(1, n)) for n in (2, 8))
    assert few == pytest.approx(all_of, rel=1e-3)


def test_the_command_names_the_library_and_says_what_it_leaves_out() -> None:
    arguments = ["--hardware", MACHINE, "--nccl", "2.21.5", "--op", "allreduce", "--bytes", "1M"]
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    assert "RCCL 2.21.5" in result.stdout
    assert "RCCL's choice" in result.stdout
    assert "MSCCL" in result.stdout


@pytest.mark.skipif(
    REPOSITORY is None or shutil.which("g++") is None or not CUDA.exists(),
    reason="RCCL_REPOSITORY names no clone of ROCm/rccl, or no compiler or CUDA headers here",
)
def test_the_whole_table_is_that_of_rccls_own_sources(tmp_path: Path) -> None:
    program = build(Path(str(REPOSITORY)), "2.27.7", tmp_path)
    for nodes in (1, 2, 16):
        compared, wrong = differing("2.27.7", nodes, ask(program, "2.27.7", nodes))
        assert compared > 1900
        assert not wrong
