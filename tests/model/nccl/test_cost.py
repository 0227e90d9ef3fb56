"""The cost model against tables, choices and times that NCCL itself printed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nccl_machines import a100_four, build, h100_node, h100_three_nodes, rtx5090_socket

from advisor.errors import AdvisorError
from advisor.model.nccl.constants import known_versions
from advisor.model.nccl.cost import predict
from advisor.model.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS
from advisor.model.nccl.version import parse_version

V2_29_7 = parse_version("2.29.7")
MIB = 1 << 20

# The TUNING table of the RTX 5090 log: latency us / GB/s, rounded to one decimal by NCCL.
PRINTED = {
    ("broadcast", "Ring", "LL"): (9.3, 1.2),
    ("broadcast", "Ring", "LL128"): (18.0, 0.0),
    ("broadcast", "Ring", "Simple"): (22.4, 2.4),
    ("reduce", "Ring", "LL"): (9.3, 1.2),
    ("reduce", "Ring", "Simple"): (22.4, 2.4),
    ("allgather", "Ring", "LL"): (11.6, 2.4),
    ("allgather", "Ring", "LL128"): (22.5, 0.0),
    ("allgather", "Ring", "Simple"): (22.4, 4.8),
    ("allgather", "PAT", "Simple"): (17.6, 3.6),
    ("reducescatter", "Ring", "LL"): (11.6, 2.4),
    ("reducescatter", "Ring", "Simple"): (22.4, 4.8),
    ("reducescatter", "PAT", "Simple"): (17.6, 3.6),
    ("allreduce", "Tree", "LL"): (16.8, 0.5),
    ("allreduce", "Tree", "LL128"): (31.0, 0.0),
    ("allreduce", "Tree", "Simple"): (36.4, 1.9),
    ("allreduce", "Ring", "LL"): (16.6, 1.2),
    ("allreduce", "Ring", "LL128"): (31.0, 0.0),
    ("allreduce", "Ring", "Simple"): (36.4, 2.4),
}


@pytest.mark.parametrize(("cell", "printed"), PRINTED.items())
def test_every_cell_of_a_printed_table(
    cell: tuple[str, str, str], printed: tuple[float, float]
) -> None:
    op, algo, proto = cell
    row = predict(rtx5090_socket(), op, MIB, V2_29_7).row(algo, proto)
    # half a unit of the last printed digit; x.x5 may round either way in float32
    assert row.latency_us == pytest.approx(printed[0], abs=0.0501)
    assert row.bandwidth_gbps == pytest.approx(printed[1], abs=0.0501)
    assert row.available == (printed[1] > 0)


# size -> protocol and channels as printed, e.g.
# "Broadcast: 65536 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..1}"
PRINTED_CHOICES = {
    1024: ("LL", 1),
    2048: ("LL", 1),
    4096: ("LL", 1),
    8192: ("LL", 1),
    16384: ("LL", 2),
    32768: ("Simple", 1),
    65536: ("Simple", 2),
    131072: ("Simple", 4),
    262144: ("Simple", 4),
    1048576: ("Simple", 4),
    134217728: ("Simple", 4),
}


@pytest.mark.parametrize(("size", "printed"), PRINTED_CHOICES.items())
def test_printed_choices_and_channels_of_a_broadcast(size: int, printed: tuple[str, int]) -> None:
    choice = predict(rtx5090_socket(), "broadcast", size, V2_29_7).choice
    assert choice is not None
    assert (choice.algo, choice.proto, choice.channels) == ("Ring", *printed)


@pytest.mark.parametrize(
    ("size", "algo", "proto", "channels"),
    [
        # A sweep on 8xH100 with 2.30.7: ring with LL up to 1 MiB, NVLS from 2 MiB, no LL128 between
        (4096, "Ring", "LL", 1),
        (MIB, "Ring", "LL", 24),
        (2 * MIB, "NVLS", "Simple", 16),
        (256 * MIB, "NVLS", "Simple", 16),
    ],
)
def test_choices_printed_on_an_h100_node(size: int, algo: str, proto: str, channels: int) -> None:
    choice = predict(h100_node(), "allreduce", size, parse_version("2.30.7")).choice
    assert choice is not None
    assert (choice.algo, choice.proto, choice.channels) == (algo, proto, channels)


def test_nvls_on_an_h100_node_takes_15_8_ms_for_4_gib() -> None:
    choice = predict(h100_node(), "allreduce", 4 << 30, V2_29_7).choice
    assert choice is not None
    assert choice.algo == "NVLS"
    assert choice.time_us == pytest.approx(15_808, rel=0.001)


@pytest.mark.parametrize(
    ("algo", "proto", "predicted_us"),
    [
        ("Ring", "LL", 724),
        ("Ring", "LL128", 329),
        ("Ring", "Simple", 308),
        ("Tree", "Simple", 539),
        ("NVLS", "Simple", 444),
    ],
)
def test_four_h100_at_64_mib(algo: str, proto: str, predicted_us: float) -> None:
    prediction = predict(h100_node(4), "allreduce", 64 * MIB, V2_29_7)
    assert prediction.row(algo, proto).time_us == pytest.approx(predicted_us, abs=0.6)
    assert prediction.choice is not None
    assert (prediction.choice.algo, prediction.choice.proto) == ("Ring", "Simple")


@pytest.mark.parametrize(
    ("size", "printed_us"), [(4, 25.200462), (8, 25.200924), (1024, 25.331232)]
)
def test_times_printed_on_three_h100_nodes(size: int, printed_us: float) -> None:
    # "1024 Bytes -> Algo 0 proto 0 time 25.331232" (2.21/2.22 print the time)
    choice = predict(h100_three_nodes(), "allreduce", size, parse_version("2.22.3")).choice
    assert choice is not None
    assert (choice.algo, choice.proto) == ("Tree", "LL")
    assert choice.time_us == pytest.approx(printed_us, abs=2e-6)


def test_time_printed_for_a_forced_ring() -> None:
    # github.com/NVIDIA/nccl/issues/1595: "805306368 Bytes -> Algo 1 proto 2 time 3970.683594"
    prediction = predict(
        h100_node(), "allreduce", 805_306_368, parse_version("2.22.3"), algo="Ring", proto="Simple"
    )
    assert prediction.choice is not None
    assert prediction.choice.time_us == pytest.approx(3970.683594, abs=3e-4)


@pytest.mark.parametrize(
    ("size", "proto", "channels"), [(182_092, "LL", 10), (1_820_956, "LL128", 23)]
)
def test_channels_printed_on_four_a100(size: int, proto: str, channels: int) -> None:
    choice = predict(a100_four(), "allreduce", size, parse_version("2.27.3")).choice
    assert choice is not None
    assert (choice.algo, choice.proto, choice.channels) == ("Ring", proto, channels)


def test_coll_channels_of_known_machines() -> None:
    from advisor.model.nccl.channels import communicator_channels

    assert communicator_channels(h100_node(), V2_29_7) == 24
    assert communicator_channels(a100_four(), V2_29_7) == 24
    assert communicator_channels(rtx5090_socket(), V2_29_7) == 4


def test_one_rank_costs_nothing() -> None:
    one = build(
        nodes=1, ranks_per_node=1, compute_capability=90, ring={"channels": 1, "bw_intra": 1}
    )
    choice = predict(one, "allreduce", MIB, V2_29_7).choice
    assert choice is not None
    assert (choice.algo, choice.proto, choice.time_us) == ("Ring", "Simple", 0.0)


def test_ring_allreduce_adds_the_plateau_only_across_nodes() -> None:
    # Simple, 2 nodes: base 8.4 + (30 - 2) x max(3.4, 3) + 2 x 14, times 1.4 on sm80 and later
    two = build(
        nodes=2,
        ranks_per_node=8,
        compute_capability=90,
        ring={"channels": 8, "bw_intra": 45.0, "bw_inter": 45.0},
        tree={"pattern": 1, "channels": 8, "bw_intra": 45.0},
    )
    row = predict(two, "allreduce", 1 << 30, V2_29_7).row("Ring", "Simple")
    latency = 8.4 + 28 * 3.4 + 2 * 14
    assert row.latency_us == pytest.approx(latency)
    bandwidth = 8 * 45 * 16 / 30
    assert row.time_us == pytest.approx(1.4 * latency + (1 << 30) / (1000 * bandwidth))


def test_fp8_rings_over_eight_ranks_are_priced_out() -> None:
    two = h100_three_nodes()
    plain = predict(two, "reducescatter", MIB, V2_29_7).row("Ring", "Simple")
    fp8 = predict(two, "reducescatter", MIB, V2_29_7, dtype="float8_e4m3fn").row("Ring", "Simple")
    assert plain.time_us is not None
    assert fp8.time_us == pytest.approx(1024 * plain.time_us)


def test_nvls_refuses_reductions_it_cannot_do() -> None:
    average = predict(h100_node(), "reducescatter", MIB, V2_29_7, reduce_op="avg")
    assert not average.row("NVLS", "Simple").available
    assert "avg" in average.row("NVLS", "Simple").reason
    assert predict(h100_node(), "allgather", MIB, V2_29_7).row("NVLS", "Simple").available


def test_an_unavailable_row_has_no_time_no_bandwidth_and_a_reason() -> None:
    for op in FUNCTIONS:
        for row in predict(rtx5090_socket(), op, MIB, V2_29_7).rows:
            assert row.available == (row.time_us is not None) == (row.reason == "")
            assert row.available == (row.bandwidth_gbps > 0)


def test_ops_without_a_cost_model_are_refused() -> None:
    with pytest.raises(AdvisorError, match="alltoall"):
        predict(h100_node(), "alltoall", MIB, V2_29_7)
    with pytest.raises(AdvisorError, match="older"):
        predict(h100_node(), "allreduce", MIB, (2, 7, 8))


@given(
    version=st.sampled_from(known_versions()),
    op=st.sampled_from(FUNCTIONS),
    nodes=st.integers(1, 64),
    per_node=st.integers(1, 8),
    capability=st.sampled_from([70, 80, 86, 90, 100, 120]),
    channels=st.integers(1, 16),
    bandwidth=st.floats(0.1, 100),
    size=st.integers(0, 1 << 34),
)
def test_the_choice_is_the_smallest_available_time(
    version: tuple[int, int, int],
    op: str,
    nodes: int,
    per_node: int,
    capability: int,
    channels: int,
    bandwidth: float,
    size: int,
) -> None:
    graph = {"channels": channels, "bw_intra": bandwidth, "bw_inter": bandwidth}
    topology = build(
        nodes=nodes,
        ranks_per_node=per_node,
        compute_capability=capability,
        ring=graph,
        tree={**graph, "pattern": 1},
        nvls={**graph, "pattern": 5},
        collnet={**graph, "pattern": 6},
    )
    prediction = predict(topology, op, size, version)
    assert prediction.choice is not None
    times = [row.time_us for row in prediction.rows if row.time_us is not None]
    assert prediction.choice.time_us == min(times)
    assert 1 <= prediction.choice.channels <= 64
    for row in prediction.rows:
        assert row.algo in ALGORITHMS
        assert row.proto in PROTOCOLS
        assert row.latency_us >= 0
        assert row.bandwidth_gbps >= 0


@given(size=st.integers(1, 1 << 32), version=st.sampled_from(known_versions()))
def test_rings_take_longer_for_more_bytes(size: int, version: tuple[int, int, int]) -> None:
    for op in FUNCTIONS:
        small = predict(a100_four(), op, size, version).row("Ring", "Simple").time_us
        large = predict(a100_four(), op, size + 1024, version).row("Ring", "Simple").time_us
        assert small is not None
        assert large is not None
        assert small < large
