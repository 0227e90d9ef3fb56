"""Backward passes of scripts that mark nothing: from autograd's nodes and the forward passes."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.metrics.collectives.phases import Spans, backward_passes

NODE = "autograd::engine::evaluate_function: AddmmBackward0"
DDP = "DistributedDataParallel.forward"
FSDP = "FSDP::pre_forward (layers.0)"


def spans(*rows: tuple[str, int, int, int]) -> Spans:
    """Rows are (name, thread, start, end)."""
    ordered = sorted(rows, key=lambda row: row[2])
    names = sorted({row[0] for row in rows})
    columns = [np.array([row[i] for row in ordered], dtype=np.int64) for i in (1, 2, 3)]
    code = np.array([names.index(row[0]) for row in ordered], dtype=np.int64)
    return Spans(names, code, *columns)


@pytest.mark.parametrize("autograd_thread", [1, 2], ids=["cpu", "cuda"])
@pytest.mark.parametrize("forward", [DDP, FSDP])
def test_a_forward_pass_separates_two_backward_passes(forward: str, autograd_thread: int) -> None:
    found = backward_passes(
        spans(
            (forward, 1, 0, 10),
            (NODE, autograd_thread, 10, 14),
            (NODE, autograd_thread, 15, 19),
            (forward, 1, 20, 30),
            (NODE, autograd_thread, 30, 34),
            (NODE, autograd_thread, 36, 39),
        )
    )
    assert found is not None
    assert list(found.start) == [10, 30]
    assert list(found.end) == [19, 39]


def test_a_part_computed_again_in_the_backward_pass_begins_no_other() -> None:
    found = backward_passes(
        spans((FSDP, 1, 0, 5), (NODE, 1, 10, 30), (FSDP, 1, 12, 14), (NODE, 1, 31, 40))
    )
    assert found is not None
    assert list(found.start) == [10]


def test_own_marks_win_and_nothing_is_made_up() -> None:
    marked = spans(
        ("## backward ##", 1, 0, 50), (NODE, 1, 5, 9), (DDP, 1, 10, 11), (NODE, 1, 12, 13)
    )
    found = backward_passes(marked)
    assert found is not None
    assert list(found.start) == [0]
    assert backward_passes(spans((DDP, 1, 0, 10))) is None
