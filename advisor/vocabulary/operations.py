"""What a collective is called, and how large its message is.

Sizes are those of nccl-tests (doc/PERFORMANCE.md of NVIDIA/nccl-tests).
"""

import json
import re
from functools import lru_cache
from typing import Any

from advisor.vocabulary.dtypes import element
from advisor.vocabulary.numbers import MOST_BYTES, within

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
        (r"all[_-]?(to|2)[_-]?all", "all_to_all"),
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

# NCCL, nccl-tests, the Inspector and torch spell whole names differently.
_CANONICAL = {
    spelling: name
    for name, spellings in {
        "all_reduce": "allreduce",
        "all_gather": "allgather allgatherbase allgatherv allgatherintotensor",
        "reduce_scatter": "reducescatter reducescatterbase reducescattertensor",
        "all_to_all": "alltoall alltoallv alltoallbase",
        "broadcast": "broadcast broadcastoop",
        "barrier": "barrier allbarrier",
        "send_recv": "sendrecv",
        **{name: name for name in ("reduce", "gather", "scatter", "send", "recv", "hypercube")},
    }.items()
    for spelling in spellings.split()
}

# After one of these no rank goes on before every rank has come: their ends can be compared.
SYNCHRONISING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})
# Ranks wait for one root, or it for them; who waits for nobody leaves before the last has come.
ROOTED = frozenset({"broadcast", "scatter", "reduce", "gather"})
POINT_TO_POINT = frozenset({"send", "recv"})


@lru_cache(maxsize=10_000)
def operation(name: str) -> str:
    """The operation that any recorded name means; ``'other'`` when it cannot be told."""
    for pattern, found in _OPERATIONS:
        if pattern.search(name):
            return found
    return "other"


def canonical_op(name: str) -> str | None:
    """The store's name of an operation (``AllReduce``, ``all_reduce_perf`` → ``all_reduce``).

    None when the name is not known.
    """
    base = name.rsplit("/", 1)[-1].rsplit(":", 1)[-1].lower()
    base = base.removesuffix("_perf").removeprefix("nccl")
    key = re.sub(r"[^a-z]", "", base).removesuffix("coalesced")
    return _CANONICAL.get(key)


def message_bytes(
    op: str, in_elements: int | None, out_elements: int | None, size: int | None, width: int | None
) -> int | None:
    """Message size S (METRICS section 4): all_gather counts its output, the rest their input.

    ``size`` is the number of ranks; an all_gather of which only the input is known has n times
    that. None when an element's width or the count is unknown,
    or no message has as many.
    """
    if width is None:
        return None
    elements = in_elements if in_elements is not None else out_elements
    if op == "all_gather" and out_elements:
        elements = out_elements
    elif op == "all_gather":
        elements = in_elements * size if in_elements is not None and size else None
    elif op == "reduce_scatter" and in_elements is None and out_elements is not None and size:
        elements = out_elements * size
    return None if elements is None else within(elements * width, 0, MOST_BYTES)


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


def elements_in(dims: Any, kinds: Any = None) -> int | None:
    """Elements of one recorded argument: a shape ``[64, 512]`` or (nested) lists of shapes.

    The profiler writes an empty list for an argument that is not a tensor (None), and also for a
    tensor of one number (1): ``kinds``, what it says of the same argument's type, tells which.
    """
    if not isinstance(dims, list):
        return None
    if not dims:
        return 1 if isinstance(kinds, str) and element(kinds)[1] is not None else None
    if all(isinstance(size, int) and not isinstance(size, bool) for size in dims):
        product = 1
        for size in dims:
            product *= size
        return within(product, 0, MOST_BYTES)
    listed = kinds if isinstance(kinds, list) and len(kinds) == len(dims) else [None] * len(dims)
    parts = [
        1 if kinds == "TensorList" and part == [] else elements_in(part, kind)
        for part, kind in zip(dims, listed, strict=True)
        if isinstance(part, list)
    ]
    known = [part for part in parts if part is not None]
    return within(sum(known), 0, MOST_BYTES) if known else None


PICKLES, UNPICKLES = "_object_to_tensor", "_tensor_to_object"
"""Functions of torch with which every collective of Python objects pickles and unpickles: ranges of
our recordings and, where stacks were recorded, functions end in their names."""
DATA_LOADING = r"^enumerate\(DataLoader\)#|^## data ##$|DataLoaderIter\.__next__"
"""Spans of torch.utils.data's iterators; '## data ##' is our own recordings' range."""
