"""Names, sizes and bandwidth factors of collectives."""

from __future__ import annotations

import pytest

from advisor.vocabulary.bandwidth import bus_factor
from advisor.vocabulary.dtypes import element
from advisor.vocabulary.operations import elements_in, message_bytes, operation


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("c10d::alltoall_base_", "all_to_all"),
        ("all_to_allv", "all_to_all"),
        ("grads-reduce-scatter", "reduce_scatter"),
        ("embedding-grads-all-reduce", "all_reduce"),
        ("gloo:barrier", "barrier"),
        ("c10d::send", "send"),
        ("c10d::recv_", "recv"),
        ("nccl:recv 0<-1", "recv"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "reduce_scatter"),
        ("ncclKernel_Reduce_RING_LL_Sum_float", "reduce"),
        # One NCCL kernel serves every kind of send and receive: its name tells nothing.
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "other"),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "other"),
    ],
)
def test_names_of_all_backends_mean_one_operation(name: str, expected: str) -> None:
    assert operation(name) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Float", ("float32", 4)),
        ("c10::BFloat16", ("bfloat16", 2)),
        ("unsigned char", ("uint8", 1)),
        ("long int", ("int64", 8)),
        ("Float8_e4m3fn", ("float8_e4m3fn", 1)),
        ("c10::Float8_e5m2", ("float8_e5m2", 1)),
        ("c10::complex<float>", ("complex64", 8)),
        ("Bool", ("bool", 1)),
        ("int4_packed", ("int4_packed", None)),
        ("9223372036854775808", (None, None)),  # damage of the field
        (None, (None, None)),
    ],
)
def test_element_widths(name: str | None, expected: tuple[str | None, int | None]) -> None:
    assert element(name) == expected


def test_sizes_are_those_of_nccl_tests() -> None:
    # 4 ranks, each with 100 floats in.
    assert message_bytes("all_reduce", 100, 100, 4, 4) == 400
    assert message_bytes("all_gather", 100, 400, 4, 4) == 1600
    assert message_bytes("all_gather", 100, None, 4, 4) == 1600
    assert message_bytes("reduce_scatter", 400, 100, 4, 4) == 1600
    assert message_bytes("reduce_scatter", None, 100, 4, 4) == 1600
    assert message_bytes("all_to_all", 100, 100, 4, 4) == 400
    assert message_bytes("all_reduce", 100, 100, 4, None) is None


def test_bus_factors_are_those_of_nccl_tests() -> None:
    assert bus_factor("all_reduce", 8) == 2 * 7 / 8
    assert bus_factor("reduce_scatter", 8) == 7 / 8
    assert bus_factor("broadcast", 8) == 1
    assert bus_factor("all_gather", None) is None
    assert bus_factor("barrier", 8) is None


def test_elements_of_recorded_shapes() -> None:
    assert elements_in([64, 512]) == 64 * 512
    assert elements_in([[10], [2, 3]]) == 16
    assert elements_in([[[7], [8]]]) == 15
    assert elements_in([]) is None
    # A tensor of one number has no dimensions, and neither has what is no tensor.
    assert elements_in([], "float") == 1
    assert elements_in([], "Scalar") is None
    assert elements_in([[]], ["float"]) == 1
    assert elements_in([[], [3]], "TensorList") == 4
    assert elements_in([[[]], [], []], ["TensorList", "", "Scalar"]) == 1
    assert elements_in("[1") is None
