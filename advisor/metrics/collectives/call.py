"""One collective call of one rank, as the trace tells it, before it is matched across ranks."""

from collections.abc import Iterable
from dataclasses import dataclass

from advisor.metrics.timeline.intervals import Intervals
from advisor.vocabulary.bandwidth import bus_factor
from advisor.vocabulary.dtypes import element
from advisor.vocabulary.operations import POINT_TO_POINT, message_bytes, split_bytes

REACHED = "upper bound, reached"
"""``t_is`` of a call that lacks a rank, and nobody waited for it (lateness/absent.py)."""
TOLERANCE_NS = 200_000
"""Recorded times of one clock may contradict each other by so much: it drifts within a recording,
and a span closes a little after its collective."""

_OF_PARTS = frozenset({"all_gather", "reduce_scatter"})  # PyTorch takes uneven ones apart by rank


@dataclass(slots=True)
class Call:
    """A row of ``collective`` in the making. Times ns on the rank's clock, sizes bytes."""

    rank: int
    op: str
    start: int
    end: int
    event_id: int
    wire_op: str | None = None
    library: str | None = None  # who runs it: 'nccl', 'gloo', 'deep_ep' ...
    group: str | None = None
    group_size: int | None = None
    seq: int | None = None
    dtype: str | None = None
    in_elements: int | None = None
    out_elements: int | None = None
    bytes: int | None = None
    peer: int | None = None
    ends: tuple[tuple[str, int], ...] = ()
    """Sends and receives that one kernel holds, in order, with the peer's place in the group."""
    messages: tuple[tuple[str, int, int | None], ...] = ()
    """Where one kernel holds several sends and receives: kind, the other end's rank and bytes."""
    enqueue: int | None = None
    thread: int | None = None  # thread that asked for it
    stream: int | None = None
    step: int | None = None
    phase: str | None = None
    module: str | None = None
    ahead: bool | None = None  # FSDP2: asked for in another unit's turn, and not waited for there
    in_split: str | None = None  # as recorded
    split_bytes: tuple[int, ...] | None = None
    is_gradient: bool = False
    exposed_transfer: int = 0  # shared with calls that transfer at the same time
    # Filled by matching.
    call_id: int = -1
    matched: int = 1
    wait: int | None = None
    transfer: int | None = None
    t_is: str | None = None
    last_rank: int | None = None
    algbw: float | None = None
    busbw: float | None = None
    seq_is_counted: bool = False  # by matching, not recorded
    fitted: int | None = None
    latency_share: float | None = None

    def set_size(self) -> None:
        """Work out dtype name, message size and its parts from the element counts."""
        name, width = element(self.dtype)
        if self.op == "all_to_all":
            self.split_bytes = split_bytes(self.in_split, self.in_elements, width)
        self.bytes = self.count_bytes()
        self.dtype = name

    def count_bytes(self) -> int | None:
        """Its message size, bytes, as far as is known of its elements, type and group by now."""
        _, width = element(self.dtype)
        return message_bytes(self.op, self.in_elements, self.out_elements, self.group_size, width)

    @property
    def is_timed(self) -> bool:
        """Whether no waiting for a rank that was not read is in its time."""
        return self.t_is in ("matched", REACHED)

    @property
    def asked(self) -> int:
        """When the host asked for it, ns; its own start where that was not recorded."""
        return self.start if self.enqueue is None else self.enqueue

    @property
    def signature(self) -> tuple[str, str | None, int | None]:
        """What must agree between the ranks of one call when there is no sequence number.

        all_to_all may be uneven, so that its size differs between ranks; of a gather or scatter
        gloo records the root's tensors alone, so that size and dtype tell only who the root is; a
        send is its peer's receive. A type without a known width may be a damaged name.
        """
        if self.op in ("gather", "scatter"):
            return self.op, None, None
        op = "send" if self.op == "recv" else self.op
        dtype = self.dtype if element(self.dtype)[1] is not None else None
        return op, dtype, None if op == "all_to_all" else self.bytes

    @property
    def kind(self) -> tuple[str, str | None, int | None]:
        """The signature without the size of what may be uneven: each rank's part of a gather, or of
        a scattered sum, has its own."""
        op, dtype, size = self.signature
        return op, dtype, None if op in _OF_PARTS else size

    @property
    def is_message(self) -> bool:
        """Whether it is a send, a receive, or several of them, and no collective."""
        return self.op in POINT_TO_POINT or bool(self.messages)

    @property
    def factor(self) -> float | None:
        """busbw / algbw."""
        return bus_factor(self.op, self.group_size)


def wire_name(call: Call) -> str:
    """The operation whose cost the call has: what really ran."""
    name = call.wire_op or call.op
    return "send" if name == "recv" else name


def when_moving(calls: Iterable[Call]) -> Intervals:
    """When data of a rank's calls moves: after the last peer came to each (METRICS section 3).

    A rank that waits in one call while another of its calls transfers is transferring. A call
    whose waiting is not known counts as transfer throughout.
    """
    known = list(calls)
    return Intervals.of(
        [call.start + (call.wait or 0) for call in known], [call.end for call in known]
    )
