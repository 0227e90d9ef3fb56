"""FLOPs of one operator from its recorded shapes: matrix products, convolutions, attention.

A multiply and an add are two FLOPs. What is counted is what ran: recomputed activations count
again, and a causal mask saves nothing (whether a kernel skips the masked half is not recorded).
"""

import json
import re
from math import prod
from typing import Any, NamedTuple

from advisor.vocabulary.dtypes import short_name

NO_SHAPES = "no shapes recorded"
NO_STRIDES = "no strides recorded"
NO_FLOATS = "not floating point"
ODD_SHAPES = "shapes of a form that is not known"

NAME = (
    r"aten::(linear|matmul|_?scaled_mm|mm|bmm|(b?addb?mm|_addmm_activation)_?|convolution"
    r"|convolution_backward|_?scaled_dot_product_\w*attention(_for_cpu|_overrideable)?(_backward)?)"
)
"""Names of operators that :func:`operator_flops` knows, as a pattern for the whole name."""


class Work(NamedTuple):
    """Arithmetic of one call, and the element type of its operands."""

    flops: float
    dtype: str


def operator_flops(
    name: str, dims: str | None, types: str | None, concrete: str | None
) -> Work | str:
    """FLOPs of a call from the JSON the profiler wrote about its inputs, or why not."""
    shapes = _json(dims)
    if not shapes:
        return NO_SHAPES
    kinds = [kind for kind in _json(types) if isinstance(kind, str)]
    operation = name.removeprefix("aten::").rstrip("_")
    skip = 1 if re.fullmatch(r"b?addb?mm|_addmm_activation", operation) else 0
    element = kinds[skip] if len(kinds) > skip else ""
    dtype = short_name(element)
    if dtype is None:
        return NO_FLOATS if element else NO_SHAPES
    try:
        flops = _flops(operation, shapes[skip:], _json(concrete))
    except (IndexError, TypeError, ValueError):
        return ODD_SHAPES
    return Work(float(flops), dtype) if flops is not None else NO_STRIDES


def flops_of_shapes(name: str, dims: str | None, concrete: str | None) -> float | None:
    """FLOPs of a call where element types do not matter; None where its shapes do not tell."""
    operation = name.removeprefix("aten::").rstrip("_")
    skip = 1 if re.fullmatch(r"b?addb?mm|_addmm_activation", operation) else 0
    try:
        return _flops(operation, _json(dims)[skip:], _json(concrete))
    except (IndexError, TypeError, ValueError):
        return None


def _flops(operation: str, shapes: list[Any], concrete: list[Any]) -> int | None:
    if operation == "convolution":
        return _convolution(shapes, concrete)
    if operation == "convolution_backward":
        return _convolution_backward(shapes, concrete)
    if "scaled_dot_product" in operation:
        backward = operation.endswith("_backward")  # the output's gradient stands first
        query, key, value = (_shape(item, 3) for item in shapes[backward : backward + 3])
        return _attention(query, key, value, backward=backward)
    left, right = _shape(shapes[0], 1), _shape(shapes[1], 1)
    if operation == "linear":
        return 2 * prod(left) * prod(right[:-1])
    return _product(left, right)


def _product(left: list[int], right: list[int]) -> int:
    """``torch.matmul``: [..., m, k] times [..., k, n] with the leading dimensions broadcast."""
    rows = left[-2] if len(left) > 1 else 1
    columns = right[-1] if len(right) > 1 else 1
    if left[-1] != right[-2 if len(right) > 1 else -1]:
        raise ValueError("inner dimensions differ")
    first, second = left[:-2][::-1], right[:-2][::-1]
    batch = 1
    for place in range(max(len(first), len(second))):
        sizes = [shape[place] for shape in (first, second) if place < len(shape)]
        batch *= 0 if 0 in sizes else max(sizes)
    return 2 * batch * rows * left[-1] * columns


def _convolution(shapes: list[Any], concrete: list[Any]) -> int | None:
    """Each output element takes the products of one filter; transposed, each input element."""
    given, weight = _shape(shapes[0], 3), _shape(shapes[1], 3)
    if len(concrete) < 7:
        return None
    if concrete[6] == "True":
        return 2 * prod(given) * prod(weight[1:])
    stride, padding, dilation = (_list(concrete[place]) for place in (3, 4, 5))
    space = [
        (size + 2 * _at(padding, i) - _at(dilation, i) * (kernel - 1) - 1) // _at(stride, i) + 1
        for i, (size, kernel) in enumerate(zip(given[2:], weight[2:], strict=True))
    ]
    return 2 * given[0] * prod(space) * prod(weight)


def _convolution_backward(shapes: list[Any], concrete: list[Any]) -> int | None:
    """As much as forward for the input's gradient, and for the weight's, where they are wanted."""
    outgoing, given, weight = (_shape(shapes[place], 3) for place in range(3))
    if len(concrete) < 11:
        return None
    wanted = str(concrete[10]).strip("[]").replace(" ", "").split(",")
    if len(wanted) != 3 or not set(wanted) <= {"True", "False"}:
        return None
    once = (
        2 * prod(given) * prod(weight[1:])
        if concrete[7] == "True"
        else 2 * outgoing[0] * prod(outgoing[2:]) * prod(weight)
    )
    return once * wanted[:2].count("True")


def _attention(query: list[int], key: list[int], value: list[int], *, backward: bool) -> int:
    """Scores and their product with the values; backward they are recomputed: five products."""
    if query[-1] != key[-1] or key[-2] != value[-2]:
        raise ValueError("not [..., sequence, width]")
    pairs = prod(query[:-1]) * key[-2]
    scores, weighted = 2 * pairs * query[-1], 2 * pairs * value[-1]
    return 3 * scores + 2 * weighted if backward else scores + weighted


def _shape(value: Any, least: int) -> list[int]:
    if not isinstance(value, list) or not all(type(size) is int and size >= 0 for size in value):
        raise ValueError("not a shape")
    if len(value) < least:
        raise ValueError("too few dimensions")
    return value


def _json(text: str | None) -> list[Any]:
    try:
        value = json.loads(text) if text else []
    except ValueError:
        return []
    return value if isinstance(value, list) else []


def _list(text: Any) -> list[int]:
    return [int(item) for item in str(text).strip("[]").split(",")]


def _at(values: list[int], place: int) -> int:
    """One value stands for all dimensions."""
    return values[place if len(values) > 1 else 0]
