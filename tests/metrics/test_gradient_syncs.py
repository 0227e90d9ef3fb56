"""How often a step gathers the same parameters, with and without names of modules."""

from __future__ import annotations

import pytest

from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.gradients import bucket_rows, sync_rows
from advisor.metrics.collectives.phases import set_phases
from tests.metrics.test_backward_passes import NODE, spans

SIZES = (1 << 20, 1 << 20, 3 << 20)  # of the modules
FORWARD = "FullyShardedDataParallel.forward"


def step_of(
    micro_batches: int, *, regather: bool, reduced: tuple[int, ...] = SIZES, named: bool = False
) -> int | None:
    """``gathers`` of a step of FSDP that reduces in its last micro-batch only."""
    calls, marks, now = [], [], 0

    def ask(op: str, size: int, module: int) -> None:
        nonlocal now
        now += 2
        calls.append(
            Call(0, op, now, now + 1, event_id=len(calls), enqueue=now, thread=1, bytes=size,
                 group="0", step=1, module=f"layers.{module}" if named else None)
        )  # fmt: skip

    for micro in range(micro_batches):
        begin = now
        for module, size in enumerate(SIZES):
            if regather or micro == 0:
                ask("all_gather", size, module)
        marks.append((FORWARD, 1, begin, now + 1))
        begin = now = now + 2
        for module, size in enumerate(SIZES):
            if regather:
                ask("all_gather", size, module)
        for module, size in enumerate(reduced if micro == micro_batches - 1 else ()):
            ask("reduce_scatter", size, module)
        now += 2
        marks.append((NODE, 1, begin, now))
        now += 2
    found = spans(*marks)
    set_phases(calls, found)
    (row,) = sync_rows("run", 0, calls, found, {1: (0, now)})
    assert (row["micro_batches"], row["syncs"]) == (micro_batches, 1)
    return row["gathers"]  # type: ignore[no-any-return]


@pytest.mark.parametrize("named", [True, False], ids=["FSDP2", "FSDP1"])
@pytest.mark.parametrize(
    ("micro_batches", "regather", "gathers"), [(1, True, 2), (3, True, 6), (3, False, 1)]
)
def test_gathers_of_a_module_are_counted(
    named: bool, micro_batches: int, regather: bool, gathers: int
) -> None:
    assert step_of(micro_batches, regather=regather, named=named) == gathers


def test_buckets_of_other_sizes_than_the_modules_tell_nothing() -> None:
    assert step_of(3, regather=True, reduced=(sum(SIZES),)) is None


@pytest.mark.parametrize(
    ("sizes", "gradients"),
    [
        ((4, 9216, 4, 3_000_000), [True, True, True, True]),
        ((9216, 3_000_000, 4), [False, False, False]),
        ((3_000_000, 4), [True, False]),
    ],
    ids=["one call per parameter", "before the backward pass", "one flat tensor and a norm"],
)
def test_what_is_reduced_by_hand_between_backward_and_optimizer(
    sizes: tuple[int, ...], gradients: list[bool]
) -> None:
    """Four parameters; small calls are gradients where there is one for each of them."""
    leaf = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    early = len(sizes) == 3
    begin = 10 if early else 100
    calls = [
        Call(0, "all_reduce", begin + 2 * i, begin + 2 * i + 1, event_id=i, enqueue=begin + 2 * i,
             thread=1, dtype="Float", in_elements=size // 4)
        for i, size in enumerate(sizes)
    ]  # fmt: skip
    found = spans(
        ("Optimizer.zero_grad#SGD.zero_grad", 1, 1, 2),
        *((leaf, 2, 50 + i, 51 + i) for i in range(4)),
        ("Optimizer.step#SGD.step", 1, 200, 210),
    )
    set_phases(calls, found)
    assert [call.is_gradient for call in calls] == gradients


@pytest.mark.parametrize(
    ("by_hand", "gradients"),
    [((2_000_000, 2_000_000), False), ((2_000_000,), True)],
    ids=["as many bytes", "a part that DDP ignores"],
)
def test_what_ddp_has_reduced_is_no_gradient_again(
    by_hand: tuple[int, ...], gradients: bool
) -> None:
    hooked = [(0, "bucket 0", 22, 1_000_000), (1, "bucket 1", 30, 3_000_000)]
    calls = [
        Call(0, "all_reduce", now, now + 1, event_id=n, enqueue=now, thread=2, bytes=size,
             group="0", step=1, module=module)
        for n, module, now, size in hooked
    ] + [
        Call(0, "all_reduce", 50 + n, 51 + n, event_id=9 + n, enqueue=50 + n, thread=1, bytes=size,
             group="0", step=1)
        for n, size in enumerate(by_hand)
    ]  # fmt: skip
    leaf = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    found = spans(
        ("Optimizer.zero_grad#SGD.zero_grad", 1, 1, 2),
        *((leaf, 2, now - 1, now + 1) for *_, now, _ in hooked),
        ("Optimizer.step#SGD.step", 1, 60, 70),
    )
    set_phases(calls, found)
    assert [call.is_gradient for call in calls] == [True, True, *([gradients] * len(by_hand))]


def test_hybrid_sharding_sums_gradients_over_its_replicas() -> None:
    """FSDP2 asks for both reductions in one range; an all-reduce of activations is in none."""
    asked = [("reduce_scatter", 22), ("all_reduce", 24), ("all_reduce", 32)]
    calls = [
        Call(0, op, now, now + 1, event_id=now, enqueue=now, thread=2, bytes=4_000_000, step=1)
        for op, now in asked
    ]
    found = spans(
        ("Optimizer.zero_grad#AdamW.zero_grad", 1, 1, 2), (NODE, 2, 10, 40),
        ("FSDP::post_backward_reduce (layers.0)", 2, 20, 30),
        ("Optimizer.step#AdamW.step", 1, 50, 60),
    )  # fmt: skip
    set_phases(calls, found)
    assert [call.is_gradient for call in calls] == [True, True, False]


def test_lora_gathers_frozen_weights_that_nothing_reduces() -> None:
    # FSDP2 names its units but the root, and reduces the adapters alone.
    units = [None, "layers.0", "layers.1"]
    calls = [
        Call(0, "all_gather", now, now + 1, event_id=now, enqueue=now, thread=1, bytes=size,
             group="0", step=1, module=unit, ahead=None if unit is None else False)
        for micro in range(3)
        for place, (unit, size) in enumerate(zip(units, SIZES, strict=True))
        for now in (20 * micro + 2 * place, 20 * micro + 8 + 2 * place)
    ]  # fmt: skip
    reduced = Call(0, "reduce_scatter", 57, 58, event_id=99, thread=1, bytes=9, group="0", step=1)
    reduced.is_gradient = True
    marks = spans(*((FORWARD, 1, 20 * m, 20 * m + 7) for m in range(3)),
                  *((NODE, 1, 20 * m + 8, 20 * m + 19) for m in range(3)))  # fmt: skip
    (row,) = sync_rows("run", 0, [*calls, reduced], marks, {1: (0, 60)})
    assert (row["micro_batches"], row["gathers"]) == (3, 6)


_D, _G, _C = 300_000, 650_000, 120_000  # gradients of a model each, in one bucket


@pytest.mark.parametrize(
    ("passes", "updates", "syncs", "micro_batches", "early"),
    [
        # Real images, generated ones, the discriminator's update; then the generator's own.
        (((_D,), (_D,), "step", (_D, _G), "step"), 2, 2, 2, [True, False, False, False]),
        (((_G,), (_C,), "step", "step"), 1, 1, 2, [False, False]),  # an actor and its critic
        (((_G,), (_G,), (_G,), "step"), 1, 3, 3, [True, True, False]),
        (((_G,), "step", (_G,), "step", (_G,), "step"), 3, 1, 1, [False] * 3),  # PPO's epochs
    ],
    ids=["GAN", "actor and critic", "accumulation", "several updates"],
)
def test_gradients_are_reduced_again_for_the_same_update_only(
    passes: tuple[tuple[int, ...] | str, ...],
    updates: int,
    syncs: int,
    micro_batches: int,
    early: list[bool],
) -> None:
    calls, marks, now = [], [], 0
    for one in passes:
        now += 10
        if one == "step":
            marks.append(("Optimizer.step#Adam.step", 1, now, now + 5))
            continue
        marks += [("DistributedDataParallel.forward", 1, now, now + 2), (NODE, 1, now + 3, now + 9)]
        for number, size in enumerate(one):
            calls.append(
                Call(0, "all_reduce", now + 4 + number, now + 5 + number, event_id=len(calls),
                     enqueue=now + 4 + number, thread=1, bytes=int(size), group="0", step=1,
                     module="bucket")
            )  # fmt: skip
    found = spans(*marks)
    set_phases(calls, found)
    (row,) = sync_rows("run", 0, calls, found, {1: (0, now + 10)})
    assert (row["updates"], row["syncs"], row["micro_batches"]) == (updates, syncs, micro_batches)
    assert row["early_bytes"] == sum(
        call.bytes or 0 for call, again in zip(calls, early, strict=True) if again
    )
    assert [row["early"] for row in bucket_rows("run", 0, calls, found)] == early


@pytest.mark.parametrize(
    ("op", "size", "group", "module", "phase"),
    [
        ("broadcast", 1, "0", None, "forward"),  # buffers, by hand
        ("broadcast", 9, "0", None, "forward"),  # more than there are parameters
        ("broadcast", 3, "0", None, "optimizer"),
        ("broadcast", 9, "1", None, "other"),  # to a group that reduces no gradients: data
        ("all_gather", 1, "0", "layers.0", "forward"),  # a unit's, of which only the root is marked
        ("all_gather", 1, "0", None, "other"),
    ],
)
def test_what_is_asked_for_between_an_update_and_a_marked_forward_pass(
    op: str, size: int, group: str, module: str | None, phase: str
) -> None:
    calls = [
        Call(0, op, 5, 6, event_id=0, enqueue=5, thread=1, bytes=size << 20, group=group,
             module=module),
        Call(0, "all_reduce", 35, 36, event_id=1, enqueue=35, thread=1, bytes=3 << 20, group="0",
             module="bucket 0"),
    ]  # fmt: skip
    set_phases(calls, spans(("Optimizer.step#SGD.step", 1, 1, 2), (NODE, 1, 30, 40),
                            ("DistributedDataParallel.forward", 1, 10, 20)))  # fmt: skip
    assert [call.phase for call in calls] == [phase, "backward"]
