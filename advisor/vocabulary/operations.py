"""What a collective is called, how large its elements are, and how its bandwidth is counted.

Sizes and bandwidths are those of nccl-tests (doc/PERFORMANCE.md of NVIDIA/nccl-tests).
"""

from __future__ import annotations

import json
import re
from typing import Any

# First match wins; names come from torch's record_param_comms ('allreduce',
# '_allgather_base', 'reduce_scatter_tensor_coalesced'), c10d operators ('c10d::alltoall_base_'),
# backends' spans ('gloo:all_gather', 'nccl:_reduce_scatter_base') and kernel names
# ('ncclDevKernel_AllReduce_Sum_f32_RING_LL', 'ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t').
_OPERATIONS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), operation)
    for pattern, operation in (
        (r"sendrecv|send_recv|batch_isend|coalesced_p2p", "other"),
        (r"all[_-]?reduce|cross_device_reduce|multimem_all_reduce", "all_reduce"),
        (r"reduce[_-]?scatter", "reduce_scatter"),
        (r"all[_-]?gather", "all_gather"),
        (r"all[_-]?to[_-]?all", "all_to_all"),
        (r"broad_?cast|bcast", "broadcast"),
        (r"barrier", "barrier"),
        (r"reduce", "reduce"),
        (r"gather", "gather"),
        (r"scatter", "scatter"),
        (r"dispatch|combine", "all_to_all"),
        (r"\bi?send|_send", "send"),
        (r"\bi?recv|_recv", "recv"),
    )
)

# After one of these no rank goes on before every rank has come: their ends can be compared.
SYNCHRONISING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
POINT_TO_POINT = frozenset({"send", "recv"})

_WIDTHS: dict[str, tuple[str, int]] = {}
for _torch_name, _width, _aliases in (
    ("float64", 8, "double"),
    ("float32", 4, "float"),
    ("float16", 2, "half f16"),
    ("bfloat16", 2, "bf16 __nv_bfloat16"),
    ("float8_e4m3fn", 1, "f8e4m3 float8_e4m3 fp8_e4m3 __nv_fp8_e4m3"),
    ("float8_e5m2", 1, "f8e5m2 fp8_e5m2 __nv_fp8_e5m2"),
    ("float8_e4m3fnuz", 1, ""),
    ("float8_e5m2fnuz", 1, ""),
    ("float8_e8m0fnu", 1, ""),
    ("int64", 8, "long longint longlong i64"),
    ("int32", 4, "int i32"),
    ("int16", 2, "short shortint"),
    ("int8", 1, "char signedchar i8 int8_t"),
    ("uint64", 8, "unsignedlong u64"),
    ("uint32", 4, "unsignedint u32"),
    ("uint16", 2, "unsignedshort"),
    ("uint8", 1, "byte unsignedchar u8 uint8_t"),
    ("bool", 1, ""),
    ("complex32", 4, "complexhalf complex<half>"),
    ("complex64", 8, "complexfloat complex<float>"),
    ("complex128", 16, "complexdouble complex<double>"),
):
    for _alias in (_torch_name, *_aliases.split()):
        _WIDTHS[_alias] = (_torch_name, _width)


def operation(name: str) -> str:
    """The operation that any recorded name means; ``'other'`` when it cannot be told."""
    for pattern, found in _OPERATIONS:
        if pattern.search(name):
            return found
    return "other"


def element(name: str | None) -> tuple[str | None, int | None]:
    """Torch's lower-case name and the bytes of one element; unknown types keep their name."""
    if not name:
        return None, None
    plain = name.strip().lower().replace(" ", "").replace("c10::", "").replace("torch.", "")
    return _WIDTHS.get(plain, (plain, None))


def message_bytes(
    op: str, in_elements: int | None, out_elements: int | None, size: int | None, width: int | None
) -> int | None:
    """Message size S (METRICS section 4): all_gather counts its output, the rest their input.

    ``size`` is the number of ranks; an all_gather of which only the input is known has n times
    that. None when an element's width or the count is unknown.
    """
    if width is None:
        return None
    if op == "all_gather":
        if out_elements:
            return out_elements * width
        return in_elements * size * width if in_elements is not None and size else None
    if op == "reduce_scatter" and in_elements is None and out_elements is not None and size:
        return out_elements * size * width
    elements = in_elements if in_elements is not None else out_elements
    return None if elements is None else elements * width


def bus_factor(op: str, size: int | None) -> float | None:
    """busbw / algbw for ``size`` ranks; None for operations without a bandwidth."""
    if op in ("broadcast", "reduce", "send", "recv"):
        return 1.0
    if not size or size < 1:
        return None
    if op == "all_reduce":
        return 2.0 * (size - 1) / size
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return (size - 1) / size
    return None


def parse_json(text: str | None) -> Any:
    """The value of a recorded JSON text; None when absent, cut or damaged."""
    if not text:
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def split_bytes(
    splits: str | None, elements: int | None, width: int | None
) -> tuple[int, ...] | None:
    """Bytes to each member of the group, in its order, of an uneven all_to_all.

    ``splits`` is the recorded text ``[160, 32, 32]``: elements, or rows of equal length
    (c10d's ``input_split_sizes`` count along the first dimension). None for even splits (``[]``),
    for lists that the profiler cut (over 30 members) and for numbers that do not fit ``elements``.
    """
    counts = parse_json(splits)
    if not isinstance(counts, list) or elements is None or width is None:
        return None
    if not counts or not all(type(count) is int and count >= 0 for count in counts):
        return None
    total = sum(counts)
    if not total or elements % total:
        return None
    row = elements // total * width
    return tuple(count * row for count in counts)


def elements_in(dims: Any) -> int | None:
    """Elements of one recorded argument: a shape ``[64, 512]`` or (nested) lists of shapes.

    An empty list is how the profiler writes an argument that is not a tensor: None.
    """
    if not isinstance(dims, list) or not dims:
        return None
    if all(isinstance(size, int) and not isinstance(size, bool) for size in dims):
        product = 1
        for size in dims:
            product *= size
        return product
    parts = [elements_in(part) for part in dims if isinstance(part, list)]
    known = [part for part in parts if part is not None]
    return sum(known) if known else None
