"""Backward passes of scripts that mark nothing: from autograd's nodes and the forward passes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.phases import set_phases
from advisor.metrics.collectives.spans import Spans, backward_passes

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


def call(op: str, asked: int, end: int) -> Call:
    return Call(0, op, asked, end, event_id=0, enqueue=asked, thread=1)


def test_an_optimizer_that_runs_its_closure_begins_after_the_backward_pass_in_it() -> None:
    # GIVEN Lightning's order: the optimizer's step runs forward and backward, then its own work
    marks = spans(
        ("Optimizer.step#AdamW.step", 1, 0, 100),
        ("DistributedDataParallel.forward", 1, 5, 30),
        (f"{NODE}: AccumulateGrad", 1, 40, 60),
    )
    calls = [call("broadcast", 10, 12), call("all_reduce", 50, 70), call("barrier", 80, 81)]
    set_phases(calls, marks)
    assert [one.phase for one in calls] == ["forward", "backward", "optimizer"]


@pytest.mark.parametrize(
    ("hook", "returns", "ahead"),
    [
        ("FSDP::forward_prefetch for layers.1", 25, True),
        ("FSDP::forward_prefetch for layers.1", 60, False),  # its own operator waits for it
        ("FSDP::pre_forward (layers.1)", 25, False),
    ],
)
def test_a_gather_is_ahead_where_it_is_prefetched_and_not_waited_for(
    hook: str, returns: int, ahead: bool
) -> None:
    marks = spans((hook, 1, 10, 70), ("FSDP::all_gather (layers.1)", 1, 15, returns))
    gather = call("all_gather", 20, 50)
    set_phases([gather], marks)
    assert (gather.module, gather.ahead) == ("layers.1", ahead)


STEP = "Optimizer.step#AdamW.step"


def sized(op: str, asked: int, size: int, group: str = "0") -> Call:
    return Call(0, op, asked, asked + 1, event_id=0, enqueue=asked, thread=1, bytes=size,
                group=group)  # fmt: skip


def test_what_a_script_reduces_between_backward_and_its_step_is_gradients() -> None:
    marks = spans((DDP, 1, 0, 9), (NODE, 2, 10, 20), (STEP, 1, 40, 50))
    calls = [
        sized("all_reduce", 5, 1 << 20),  # beside forward
        sized("all_reduce", 25, 1 << 20),
        sized("all_reduce", 30, 4),  # the norm that clips them
        sized("all_reduce", 55, 1 << 20),  # after the step
    ]
    set_phases(calls, marks)
    assert [one.is_gradient for one in calls] == [False, True, False, False]


@pytest.mark.parametrize("thread", [1, 2], ids=["script", "autograd"])
def test_a_last_bucket_that_waits_for_the_end_of_each_pass_is_of_it(thread: int) -> None:
    """ZeRO-1 that reduces in each of two micro-batches, what is left at the end of the pass: on
    autograd's thread that is the backward pass's; a script's own there may scatter activations."""
    marks = spans(
        (DDP, 1, 0, 9), (NODE, 2, 10, 20), (DDP, 1, 30, 39), (NODE, 2, 40, 50), (STEP, 1, 60, 70)
    )
    calls = [sized("reduce_scatter", at, 1 << 20) for at in (15, 22, 45, 52, 75)]
    for call in calls[:4]:
        call.thread = 2 if call.asked in (15, 45) else thread
    set_phases(calls, marks)
    assert [one.is_gradient for one in calls] == [thread == 2] * 4 + [False]
    assert calls[4].phase == "other"


@pytest.mark.parametrize(("marked", "phase"), [(False, "forward"), (True, "other")])
def test_what_runs_before_backward_is_forward_where_no_range_marks_it(
    marked: bool, phase: str
) -> None:
    marks = spans((NODE, 2, 20, 30), (STEP, 1, 40, 50), *([(DDP, 1, 12, 19)] if marked else []))
    early, late = sized("broadcast", 10, 1 << 20), sized("broadcast", 45, 1 << 20)
    set_phases([early, late], marks)
    assert (early.phase, late.phase) == (phase, "optimizer")


@pytest.mark.parametrize(
    ("size", "passes", "phase"),
    [
        pytest.param(1 << 20, 1, "optimizer", id="all that was updated"),
        pytest.param(1 << 20, 3, "optimizer", id="gradients sent in each of three passes"),
        pytest.param(1 << 17, 1, "other", id="logits"),
    ],
)
def test_what_is_gathered_behind_an_update_is_parameters_where_it_is_as_many(
    size: int, passes: int, phase: str
) -> None:
    steps = [((DDP, 1, n, n + 3), (NODE, 2, n + 5, n + 9)) for n in range(0, 10 * passes, 10)]
    marks = spans(*(mark for step in steps for mark in step), (STEP, 1, 40, 50))
    gradients = [sized("all_reduce", n + 6, 1 << 20) for n in range(0, 10 * passes, 10)]
    for gradient in gradients:
        gradient.module, gradient.thread = "bucket 0", 2
    gather = sized("all_gather", 55, size)
    set_phases([*gradients, gather], marks)
    assert all(gradient.is_gradient for gradient in gradients)
    assert gather.phase == phase


@pytest.mark.parametrize(
    ("size", "phase"),
    [
        pytest.param((1 << 20) + 8, "optimizer", id="all that was updated, padded"),
        pytest.param(3 << 18, "forward", id="features of a forward pass"),
    ],
)
def test_without_a_mark_of_forward_a_gather_of_as_many_is_of_the_update_before_it(
    size: int, phase: str
) -> None:
    """GIVEN ZeRO-1 without a wrapper (DeepSpeed): the recording begins with such a gather."""
    starts = range(0, 120, 40)
    marks = spans(
        *(m for n in starts for m in ((NODE, 2, n + 10, n + 20), (STEP, 1, n + 30, n + 35)))
    )
    gathers = [sized("all_gather", n + 2, size) for n in starts]
    gradients = [sized("all_reduce", n + 25, 1 << 20) for n in starts]
    set_phases([*gathers, *gradients], marks)
    assert {gather.phase for gather in gathers} == {phase}
    assert all(gradient.is_gradient for gradient in gradients)


def test_gathers_all_along_the_forward_pass_are_of_its_layers() -> None:
    """As many elements as are reduced, and operators of the forward pass between them."""
    starts = range(0, 120, 40)
    marks = spans(
        *(m for n in starts for m in ((NODE, 2, n + 10, n + 20), (STEP, 1, n + 30, n + 35)))
    )
    ran = np.array([n + at for n in starts for at in (3, 4, 6, 7)], dtype=np.int64)
    gathers = [sized("all_gather", n + at, 1 << 19) for n in starts for at in (2, 5, 8)]
    gradients = [sized("all_reduce", n + 25, 3 << 19) for n in starts]
    set_phases([*gathers, *gradients], replace(marks, operators=ran))
    assert {gather.phase for gather in gathers} == {"forward"}


def test_parameters_gathered_where_the_last_of_two_passes_reduces() -> None:
    """Megatron's distributed optimizer: its gather follows the step, the last one too."""
    starts = range(0, 120, 40)
    marks = spans(
        *(m for n in starts for m in ((NODE, 2, n + 5, n + 8), (NODE, 2, n + 10, n + 20))),
        *((STEP, 1, n + 30, n + 35) for n in starts),
    )
    ran = np.array([n + at for n in starts for at in (3, 4, 9)], dtype=np.int64)
    gathers = [sized("all_gather", n + 37, 1 << 20) for n in starts]
    gradients = [sized("all_reduce", n + 25, 1 << 20) for n in starts]
    set_phases([*gathers, *gradients], replace(marks, operators=ran))
    assert {gather.phase for gather in gathers} == {"optimizer"}


def test_a_group_that_scatters_activations_in_forward_reduces_no_gradients_in_backward() -> None:
    # GIVEN sequence parallelism in group 1 beside sharded parameters in group 2
    node = "autograd::engine::evaluate_function: torch::autograd::CppNode"
    marks = spans((node, 1, 20, 40), (STEP, 1, 50, 60))
    calls = [sized("reduce_scatter", 5, 1 << 20, "1"), sized("reduce_scatter", 25, 1 << 20, "1"),
             sized("reduce_scatter", 30, 1 << 20, "2")]  # fmt: skip
    set_phases(calls, marks)
    assert [one.is_gradient for one in calls] == [False, False, True]


def test_without_a_wrapper_an_operator_between_two_nodes_is_of_a_forward_pass() -> None:
    plain = spans((NODE, 1, 10, 14), (NODE, 1, 15, 19), (NODE, 1, 30, 34), (NODE, 1, 36, 39))
    assert list(backward_passes(plain).start) == [10]  # type: ignore[union-attr]
    ran = replace(plain, operators=np.array([2, 5, 21, 25, 40], dtype=np.int64))
    found = backward_passes(ran)
    assert found is not None
    assert list(found.start) == [10, 30]
    assert list(found.end) == [19, 39]


@pytest.mark.parametrize(
    ("sizes", "gradients"),
    [((9_000, 64, 64, 9_000, 64), [True, True, True, True, False]), ((64, 9_000), [False, True])],
)
def test_small_ones_amid_the_gradients_are_gradients(
    sizes: tuple[int, ...], gradients: list[bool]
) -> None:
    """Reduced by hand between the backward pass and the optimizer; a loss is summed behind."""
    leaves = [
        (f"{NODE.partition(':')[0]}::engine::evaluate_function: torch::autograd::AccumulateGrad",
         1, n, n + 1) for n in range(10)
    ]  # fmt: skip
    calls = [
        Call(0, "all_reduce", 100 + 10 * n, 105 + 10 * n, event_id=n, bytes=size, thread=1)
        for n, size in enumerate(sizes)
    ]
    set_phases(calls, spans(*leaves, ("Optimizer.step#Adam.step", 1, 200, 210)))
    assert [call.is_gradient for call in calls] == gradients


@pytest.mark.parametrize(
    ("sizes", "gradients"),
    [
        pytest.param([4] * 12, 0, id="scalars alone"),
        pytest.param([4] * 11 + [1 << 20], 1, id="scalars beside a large tensor"),
        pytest.param([1 << 20, 512, 256] * 4, 12, id="matrices and vectors of a model"),
    ],
)
def test_as_many_sums_as_parameters_are_gradients_where_some_are_large(
    sizes: list[int], gradients: int
) -> None:
    """GIVEN a backward pass with 8 parameters, 12 sums and the optimizer's step."""
    leaf = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    nodes = [(leaf, 2, 10 + 2 * n, 11 + 2 * n) for n in range(8)]
    own = spans((DDP, 1, 0, 9), *nodes, ("Optimizer.step#AdamW.step", 1, 900, 950))
    calls = [
        Call(0, "all_reduce", 100 + n, 101 + n, n, thread=1, bytes=size)
        for n, size in enumerate(sizes)
    ]
    set_phases(calls, own)
    assert sum(bool(call.is_gradient) for call in calls) == gradients


def test_what_the_threads_of_autograd_ask_for_between_two_nodes_is_backward() -> None:
    """Tensor parallelism's hooks run there; what the script's thread asks for is not of it."""
    nodes = [(NODE, 2, 10, 14), (NODE, 2, 20, 24), (STEP, 1, 40, 50)]
    own = replace(spans(*nodes), operators=np.array([1, 30], dtype=np.int64))
    calls = [
        Call(0, "all_reduce", asked, asked + 1, 0, thread=thread, enqueue=asked, bytes=1 << 20)
        for thread, asked in ((1, 5), (2, 16), (1, 35))
    ]
    set_phases(calls, own)
    assert [call.phase for call in calls] == ["forward", "backward", "other"]


def test_a_kernel_launched_before_the_recording_tells_no_phase() -> None:
    """GIVEN sharded gradients whose first reductions were asked for before the profiler ran."""
    marks = spans((FSDP, 1, 5, 9), (NODE, 2, 10, 20), (STEP, 1, 40, 50))
    early = Call(0, "reduce_scatter", 2, 3, 0, stream=7, bytes=1 << 20)
    own = Call(0, "reduce_scatter", 15, 30, 1, stream=7, thread=2, enqueue=15, bytes=1 << 20)
    set_phases([early, own], marks)
    assert own.is_gradient


@pytest.mark.parametrize(("took_ns", "gradients"), [(700_000, 3), (50_000, 0)])
def test_calls_of_unknown_size_are_gradients_where_they_take_long(
    took_ns: int, gradients: int
) -> None:
    marks = spans((DDP, 1, 0, 9), (NODE, 2, 10, 20), (STEP, 1, 40, 50))
    calls = [
        Call(0, "all_reduce", n, n + took_ns, n, thread=1, enqueue=n, stream=7)
        for n in (25, 27, 29)
    ]
    set_phases(calls, marks)
    assert sum(call.is_gradient for call in calls) == gradients


def test_parameters_gathered_behind_the_update_are_the_optimizers() -> None:
    """GIVEN ZeRO-1 by hand: gradients scattered, parameters gathered before the next forward."""
    marks = spans((DDP, 1, 0, 9), (NODE, 2, 10, 20), (STEP, 1, 40, 50), (DDP, 1, 80, 90))
    calls = [
        sized("all_gather", 5, 1 << 20),  # beside forward
        sized("reduce_scatter", 15, 1 << 20),
        sized("all_gather", 55, 1 << 20),
        sized("all_gather", 60, 8),  # a metric
        sized("all_gather", 65, 1 << 20, "1"),  # of a group that reduces no gradients
    ]
    calls[1].thread = 2
    set_phases(calls, marks)
    phases = [call.phase for call in calls]
    assert phases == ["forward", "backward", "optimizer", "other", "other"]


def test_calls_outside_of_a_backward_pass_that_was_seen_are_of_no_pass() -> None:
    """GIVEN gradients summed by hand only: the passes are known, though no call is in one."""
    marks = spans((NODE, 2, 10, 20), (STEP, 1, 40, 50))
    calls = [sized("all_reduce", 25, 1 << 20), sized("all_reduce", 30, 8)]
    set_phases(calls, marks)
    assert [call.phase for call in calls] == ["other", "other"]
    assert [call.is_gradient for call in calls] == [True, False]
    unseen = [sized("all_reduce", 25, 1 << 20)]
    set_phases(unseen, spans((STEP, 1, 40, 50)))
    assert unseen[0].phase is None
