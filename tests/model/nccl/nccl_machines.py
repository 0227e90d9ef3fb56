"""Topologies whose printed tables, choices or times are public; each says where."""

from __future__ import annotations

from typing import Any

from advisor.model.topology import Topology


def build(**fields: Any) -> Topology:
    return Topology.model_validate(fields)


def h100_node(ranks: int = 8) -> Topology:
    # 8xH100 SXM: ring 12 x 30, NVLS 8 x 40 (public GRAPH logs); NVLS heads = ranks
    return build(
        nodes=1,
        ranks_per_node=ranks,
        compute_capability=9.0,
        ring={"channels": 12, "bw_intra": 30.0},
        tree={"pattern": 1, "channels": 12, "bw_intra": 30.0},
        nvls={
            "pattern": 5,
            "channels": ranks,
            "bw_intra": 40.0 if ranks == 8 else 60.0,
            "bw_inter": 80.0 if ranks == 8 else 60.0,
        },
    )


def a100_four() -> Topology:
    # 4xA100 NVSwitch: ring 12 x 20, 24 coll channels
    return build(
        nodes=1,
        ranks_per_node=4,
        compute_capability=80,
        ring={"channels": 12, "bw_intra": 20.0},
        tree={"pattern": 1, "channels": 12, "bw_intra": 20.0},
    )


def rtx5090_socket(nodes: int = 2) -> Topology:
    # one RTX 5090 shared by ranks on pretended hosts, sockets: ring 2 x 1.2, tree 2 x 2.4/1.2;
    # log in github.com/eunomia-bpf/nccl-eBPF (NCCL 2.29.7)
    return build(
        nodes=nodes,
        ranks_per_node=1,
        compute_capability=12.0,
        ring={"channels": 2, "bw_intra": 1.2, "type_intra": "LOC", "type_inter": "PHB"},
        tree={
            "pattern": 3,
            "channels": 2,
            "bw_intra": 2.4,
            "bw_inter": 1.2,
            "type_intra": "LOC",
            "type_inter": "PHB",
        },
    )


def h100_three_nodes() -> Topology:
    # 3 nodes x 8 H100, NCCL 2.21/2.22, tree of pattern 3: github.com/NVIDIA/nccl/issues/1453
    return build(
        nodes=3,
        ranks_per_node=8,
        compute_capability=90,
        cpu_vendor="intel",
        ring={"channels": 8, "bw_intra": 45.0},
        tree={"pattern": 3, "channels": 8, "bw_intra": 45.0},
    )
