"""Which of the estimated layouts is recommended, and in which order the others stand.

Of each strategy its fastest layout that fits is a row; within 3 % of the fastest row the one that
leaves memory free, then the simpler, then of fewer stages, is recommended. A pipeline's degrees
hardly differ within the model's error: the next rows are other degrees that it cannot tell from
these, one with another degree of tensor parallelism before the fastest. Behind them stand the
fastest of each other kind (data, tensor, pipeline, expert) that is not much slower, then the rest;
of those within 3 % of each other the simpler first.
"""

from collections.abc import Iterable, Sequence
from math import log

from advisor.model.plan_estimate import Estimate

_TIE = 1.03
# Layouts that the model cannot tell apart: of 33 published ones with pipelines planned over
# published MFU has a standard deviation of 7.3 % (of one layout on several numbers of GPUs 2.4 %).
ALIKE = 1.08
_MOST_ALIKE = 2
# Up to what computing forward again costs a layout of another kind stands before variants.
_ANOTHER_KIND = 4 / 3


def in_order(tried: Sequence[Estimate]) -> tuple[list[Estimate], Estimate | None, Estimate]:
    """The rows in their order, the recommended one (None where nothing fits), the fastest."""
    by_degrees: dict[tuple[str, int, int], Estimate] = {}
    best: dict[str, Estimate] = {}
    for item in tried:
        layout = item.layout
        key = (layout.strategy, layout.tensor, layout.pipeline)
        if key not in by_degrees or _better(item, by_degrees[key]):
            by_degrees[key] = item
        if layout.strategy not in best or _better(item, best[layout.strategy]):
            best[layout.strategy] = item
    ranked = sorted(best.values(), key=lambda item: (not item.fits, item.step_s))
    fastest = ranked[0]
    chosen = _choose(ranked)
    best_of_kind = {
        item.layout.kind: item
        for item in reversed(ranked)
        if item.step_s <= _ANOTHER_KIND * fastest.step_s
    }
    if chosen is not None:
        best_of_kind[chosen.layout.kind] = chosen
    ranked.sort(
        key=lambda item: (
            item is not chosen,
            not item.fits,
            item is not best_of_kind.get(item.layout.kind),
            int(log(item.step_s / fastest.step_s) / log(_TIE)) if item.fits else 0,
            item.layout.complexity if item.fits else 0,
            item.step_s,
        )
    )
    if chosen is not None:
        ranked[1:1] = _alike(chosen, by_degrees.values())
    return ranked, chosen, fastest


def _alike(chosen: Estimate, others: Iterable[Estimate]) -> list[Estimate]:
    """Other degrees of a pipeline that are as fast, for all that the model can say: with another
    degree of tensor parallelism first, as what differs more tells more.
    """
    if chosen.layout.pipeline == 1:
        return []
    own = (chosen.layout.tensor, chosen.layout.pipeline)
    found = [
        item
        for item in others
        if item.layout.strategy == chosen.layout.strategy
        and (item.layout.tensor, item.layout.pipeline) != own
        and item.fits
        and item.step_s <= ALIKE * chosen.step_s
    ]
    found.sort(key=lambda item: item.step_s)
    wider = [item for item in found if item.layout.tensor != chosen.layout.tensor]
    wider.sort(key=lambda item: -item.layout.tensor)
    return [*wider[:1], *(item for item in found if item not in wider[:1])][:_MOST_ALIKE]


def tied(chosen: Estimate, tried: Iterable[Estimate]) -> list[tuple[int, int]]:
    """Other degrees of tensor and pipeline parallelism that are as fast as the chosen ones for all
    that the model can say, the fastest first.
    """
    fastest: dict[tuple[int, int], float] = {}
    for item in tried:
        degrees = (item.layout.tensor, item.layout.pipeline)
        if item.fits and item.step_s <= ALIKE * chosen.step_s:
            fastest[degrees] = min(item.step_s, fastest.get(degrees, item.step_s))
    fastest.pop((chosen.layout.tensor, chosen.layout.pipeline), None)
    return sorted(fastest, key=fastest.__getitem__)


def _better(one: Estimate, other: Estimate) -> bool:
    """Fitting first, then faster; with equal times the one that recomputes nothing, then the
    larger micro-batch that leaves room.

    Of those that do not fit the one that needs least.
    """
    if one.fits != other.fits:
        return one.fits
    if not one.fits:
        return one.memory_bytes < other.memory_bytes
    if abs(one.step_s - other.step_s) > 0.002 * other.step_s:
        return one.step_s < other.step_s
    if one.settings.checkpointing != other.settings.checkpointing:
        return other.settings.checkpointing
    if one.is_roomy != other.is_roomy:
        return one.is_roomy
    larger = one.layout.micro_batch > other.layout.micro_batch
    return larger if one.is_roomy else not larger


def _choose(ranked: Sequence[Estimate]) -> Estimate | None:
    fitting = [item for item in ranked if item.fits]
    if not fitting:
        return None
    fastest = min(item.step_s for item in fitting)
    close = [item for item in fitting if item.step_s <= _TIE * fastest]
    return min(
        close, key=lambda i: (not i.is_roomy, i.layout.complexity, i.layout.pipeline, i.step_s)
    )
