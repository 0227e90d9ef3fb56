"""Read one run's events into what the derived tables are made from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.metrics.clocks.joint import joint_clocks
from advisor.metrics.clocks.offsets import Clock
from advisor.metrics.collectives.call import Call
from advisor.metrics.collectives.gloo import host_calls
from advisor.metrics.collectives.groups import (
    Group,
    RankInfo,
    assign_groups,
    known_world_size,
    process_groups,
    rank_infos,
    world_group,
)
from advisor.metrics.collectives.hosts import with_hosts
from advisor.metrics.collectives.match import Matched, from_matched, match, torn
from advisor.metrics.collectives.nccl import device_calls, members
from advisor.metrics.collectives.open_groups import contradicted, leave_open, pipeline_groups
from advisor.metrics.collectives.phases import set_phases
from advisor.metrics.collectives.spans import Spans, host_spans
from advisor.metrics.collectives.stream_groups import groups_by_ends
from advisor.metrics.host.activity import HostActivity, host_activity
from advisor.metrics.host.lead import Gaps, device_gaps
from advisor.metrics.lateness.absent import settle_absent
from advisor.metrics.lateness.waiting import split_waiting
from advisor.metrics.links.cost import Inputs
from advisor.metrics.links.ring_ends import RingEnds, clocks_beside_links
from advisor.metrics.models.fits import Kind, exclusive_transfers, fit_all
from advisor.metrics.steps.annotated import (
    Steps,
    annotated_steps,
    device_windows,
    last_incomplete,
)
from advisor.metrics.steps.lost_threads import without_lost_threads
from advisor.metrics.steps.optimizer import optimizer_steps
from advisor.metrics.steps.periods import period_steps
from advisor.metrics.steps.rough_clocks import (
    adrift,
    on_host,
    rough_offsets,
    unplaced,
    without_launches,
)
from advisor.metrics.steps.untimed import without_untimed
from advisor.metrics.steps.used import mark_used
from advisor.metrics.steps.whole import whole_trace, without_strays
from advisor.metrics.timeline.breakdown import Occupancy
from advisor.metrics.timeline.intervals import Int64s
from advisor.metrics.timeline.timeline import Timeline, timelines
from advisor.model.alpha_beta import AlphaBeta
from advisor.store.columns import MISSING
from advisor.store.events import Events
from advisor.vocabulary.phases import announce

# c10d's barrier is an all-reduce of one element (ProcessGroupNCCL::barrier: a byte, later a float).
_ONE_ELEMENT_BYTES = 4


@dataclass
class RankData:
    """Everything of one rank that the tables are made from."""

    info: RankInfo
    line: Timeline
    steps: Steps
    occupancy: Occupancy
    activity_step: Int64s
    spans: Spans
    activity: HostActivity
    gaps: Gaps | None  # of a GPU


@dataclass
class RunData:
    """Everything of one run."""

    run: str
    events: Events
    ranks: dict[int, RankData]
    groups: dict[str, Group]
    calls: dict[int, list[Call]]
    matched: Matched
    clocks: dict[int, Clock]
    exclusive: dict[int, dict[int, float]]
    fits: dict[Kind, AlphaBeta]
    gloo: bool
    ring_ends: RingEnds | None
    told: dict[str, Group]
    """Groups that no file names, by who leaves collectives together."""


def load_run(con: Any, run: str) -> RunData:
    """Read one run's events and match its collectives."""
    infos = with_hosts(rank_infos(con, run))
    groups, listed = process_groups(con, run), members(con, run)
    ranks: dict[int, RankData] = {}
    calls: dict[int, list[Call]] = {}
    events = Events(con, run)
    silent: dict[bool, RankData] = {}
    for number, line in enumerate(timelines(events), 1):
        announce("timelines of ranks", number, len(infos))
        info = infos[line.rank]
        if line.rank not in events and line.on_device in silent:
            ranks[line.rank] = replace(silent[line.on_device], info=info, line=line)
            calls[line.rank] = []
            continue
        marked = annotated_steps(events, line.rank)
        steps = device_windows(marked, line) if marked else whole_trace(line)
        if line.on_device:
            own, unseen = device_calls(events, line, listed), list[int]()
        else:  # and when it asked for others that its recording lost
            own, unseen = host_calls(events, line.rank, complete=info.complete)
        if not info.complete and marked:
            steps = last_incomplete(steps.without(unseen))
        steps = without_lost_threads(line, without_untimed(events, line, steps))
        _set_steps(own, steps)
        spans = host_spans(events, line.rank)
        set_phases(own, spans)
        calls[line.rank] = own
        occupancy, activity = Occupancy.of(line), host_activity(events, line.rank)
        ranks[line.rank] = RankData(
            info,
            line,
            steps,
            occupancy,
            _activity_steps(line, steps),
            spans,
            activity,
            device_gaps(line, occupancy, activity, _barriers(own)),
        )
        if line.rank not in events:
            silent[line.on_device] = ranks[line.rank]
    on_host = {rank for rank, one in ranks.items() if not one.line.on_device}
    groups = groups or world_group(calls, infos, on_host)
    pipelines = {} if groups else pipeline_groups(calls)
    assign_groups(calls, groups, infos, on_host)
    groups = groups | pipelines
    stepped = bool(ranks) and all(_annotated(one.steps) for one in ranks.values())
    announce("matching calls, clocks")
    cut = {rank for rank, one in ranks.items() if not one.info.complete}
    for rank in without_launches({rank: one.line for rank, one in ranks.items()}, cut):
        ranks[rank] = replace(ranks[rank], steps=unplaced(ranks[rank].steps, calls[rank]))
    steps_of = {rank: one.steps for rank, one in ranks.items()}
    # Equal calls compete for a partner where some are missing: their times decide.
    offsets = rough_offsets(steps_of) if stepped else {}
    # What runs on the host itself is in the step that it ran in, whatever was lost.
    lost = adrift(steps_of, calls, cut - on_host) if stepped else {}
    if lost:
        offsets |= lost
        from_matched(match(calls, groups, stepped=False, offsets=offsets), lost)
    matched = match(calls, groups, stepped, offsets)
    told: dict[str, Group] = {}
    if contradicted(calls, matched.columns):
        told = groups_by_ends(calls, known_world_size(infos))
        groups = groups | told
        leave_open(calls)
        matched = match(calls, groups, stepped, offsets)
    gloo = len(on_host) == len(ranks) and _only_gloo(con, run)
    found, told_with_them = _clocks(run, matched, infos, groups, gloo)
    if any(reason == "missing event" for _, _, reason in matched.unmatched):
        offsets |= {rank: clock.offset_ns for rank, clock in found.items()}
        matched = match(calls, groups, stepped, offsets)
        found, told_with_them = _clocks(run, matched, infos, groups, gloo)
    offsets |= {rank: clock.offset_ns for rank, clock in found.items()}
    if torn(matched.columns, offsets):
        matched = match(calls, groups, stepped, offsets, strict=True)
        found, told_with_them = _clocks(run, matched, infos, groups, gloo)
    if not any(_annotated(one.steps) for one in ranks.values()):
        _tell_steps_apart(events, ranks, calls, offsets)
    seeing = {rank for rank, one in ranks.items() if one.line.on_device and len(one.line)}
    # In a job on devices, hosts that made no call of their own show no step of the device.
    blind = {rank for rank in ranks.keys() - seeing if seeing and not calls[rank]}
    marked_steps = mark_used({rank: one.steps for rank, one in ranks.items()}, cut, blind)
    ranks = {rank: replace(one, steps=marked_steps[rank]) for rank, one in ranks.items()}
    split_waiting(matched.columns, groups, found)
    if not on_host:
        settle_absent(matched.columns, groups, {rank: one.occupancy for rank, one in ranks.items()})
    exclusive = exclusive_transfers(calls, groups, infos)
    fits = fit_all(matched.columns, exclusive, groups, infos)
    return RunData(
        run,
        events,
        ranks,
        groups,
        calls,
        matched,
        found,
        exclusive,
        fits,
        gloo=gloo,
        ring_ends=told_with_them,
        told=told,
    )


def _barriers(calls: Sequence[Call]) -> Int64s:
    """Events of the calls that carry nothing but the news that everybody came."""
    found = [
        call.event_id
        for call in calls
        if call.op == "barrier" or (call.bytes is not None and call.bytes <= _ONE_ELEMENT_BYTES)
    ]
    return np.array(found, dtype=np.int64)


def _only_gloo(con: Any, run: str) -> bool:
    """Whether no rank and no group names another backend than gloo."""
    backends = con.execute(
        "SELECT backend FROM rank WHERE run = ? UNION SELECT backend FROM process_group "
        "WHERE run = ?",
        [run, run],
    ).fetchall()
    return all(name is None or "gloo" in name for (name,) in backends)


def _clocks(
    run: str, matched: Matched, infos: dict[int, RankInfo], groups: dict[str, Group], gloo: bool
) -> tuple[dict[int, Clock], RingEnds | None]:
    """Every rank's clock; and what the ends of gloo's rings, which tell it too, say of links."""
    columns = matched.columns
    found = joint_clocks(columns, infos, on_host=gloo)
    if not gloo:
        return found, None
    split_waiting(columns, groups, found)
    return clocks_beside_links(
        Inputs(run, columns, {}, groups, infos, found, {}, {}, {}, gloo=gloo)
    )


def _annotated(steps: Steps) -> bool:
    return bool(steps.steps) and steps.steps[0].source in ("ProfilerStep", "annotation")


def _tell_steps_apart(
    events: Events,
    ranks: dict[int, RankData],
    calls: dict[int, list[Call]],
    offsets: dict[int, int],
) -> None:
    """Replace the whole trace as one step by optimizer steps or the collectives' period, if any;
    else by what is the work of all ranks."""
    lines = {rank: one.line for rank, one in ranks.items()}
    several = optimizer_steps(events, lines) or period_steps(calls, lines)
    for rank, steps in (several or without_strays(lines, offsets)).items():
        if not steps.steps:
            continue
        one = ranks[rank]
        if several and not one.info.complete:
            steps = last_incomplete(steps)
        steps = without_untimed(events, one.line, steps)
        ranks[rank] = replace(one, steps=steps, activity_step=_activity_steps(one.line, steps))
        _set_steps(calls[rank], steps)


def _activity_steps(line: Timeline, steps: Steps) -> Int64s:
    """A device event belongs to the step that launched it; without a launch, to its window."""
    by_window = steps.by_window(line.start)
    if not line.on_device or not on_host(steps):
        return by_window
    return np.where(line.launch == MISSING, by_window, steps.by_host(line.launch))


def _set_steps(calls: list[Call], steps: Steps) -> None:
    starts = np.array([c.start for c in calls], dtype=np.int64)
    asked = np.array([MISSING if c.enqueue is None else c.enqueue for c in calls], dtype=np.int64)
    found = steps.by_window(starts)
    if on_host(steps):
        found = np.where(asked == MISSING, found, steps.by_host(asked))
    for call, step in zip(calls, found, strict=True):
        call.step = None if step == MISSING else int(step)
