"""What each rank's device did when: the spans that the breakdown unites (METRICS sections 2-3).

On a GPU these are the device events, each with the time of its launch (found by correlation id).
On a CPU-only trace the process is the device: collectives are the backend's spans (``gloo:*``) and
compute is the outermost operators. An operator that waits for a collective somewhere inside
(an autograd node that runs FSDP's hooks, say) counts only by the operators inside it that do not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.timeline.intervals import Bools, Int64s, Intervals
from advisor.store.columns import MISSING, rows
from advisor.store.events import Events
from advisor.vocabulary.operations import DATA_LOADING

KINDS = ("compute", "comm", "memory", "sync", "other")
COMPUTE, COMM, MEMORY, SYNC = range(4)

# Spans that a CPU backend records around its own work, on its own threads.
BACKEND_SPAN = r"^(gloo|mpi|ucc|xccl|hccl):"
# Operators that enqueue or await a collective: host work of communication, not compute.
LAUNCH_PREFIXES = ("c10d::", "_c10d_functional::", "_c10d_functional_autograd::", "symm_mem::")


_COLLECTIVE, _P2P, _MARKER, _LAUNCH, _OPERATOR, _LOADER = range(6)
"""What a host's span is, as a number: a text for each of millions takes longer than the query."""

# Sharded parameters are copied into a gather's buffer just before it.
_COPY_NS = 100_000


@dataclass(frozen=True)
class Timeline:
    """Spans of one rank's device, sorted by start; all arrays are parallel, times in ns.

    ``kind`` indexes :data:`KINDS`; ``launch`` (when the host asked for it, on ``thread``) and
    ``stream`` may be MISSING. ``on_device`` tells a GPU from a CPU-only rank. ``gaps_are_idle``:
    everything that ran was recorded, so that nothing ran between two spans; a table of chosen
    operations leaves out what it has no name for.
    """

    rank: int
    on_device: bool
    kind: NDArray[np.int64]
    start: Int64s
    end: Int64s
    stream: Int64s
    event_id: Int64s
    launch: Int64s
    thread: Int64s
    gaps_are_idle: bool = True
    in_graph: Bools | None = None  # launched by a replay of a CUDA graph; None: none was
    returned: Int64s | None = None  # when the call that launched each ended; None: not recorded

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def launch_delay_ns(self) -> int:
        """At most this long after its launch an event begins that waits for nothing else.

        The usual delay of events before which the device idled, and a short copy in between.
        """
        reached = np.maximum.accumulate(self.end)[:-1]
        launch, start = self.launch[1:], self.start[1:]
        alone = (launch != MISSING) & (launch > reached)
        if not alone.any():
            return 0
        return int(np.median((start - launch)[alone])) + _COPY_NS

    @cached_property
    def compute_stream(self) -> int:
        """The stream with the most time of compute; MISSING where nothing computes."""
        computes = self.kind == COMPUTE
        streams, place = np.unique(self.stream[computes], return_inverse=True)
        time = np.bincount(place, weights=(self.end - self.start)[computes])
        return int(streams[np.argmax(time)]) if len(streams) else int(MISSING)

    @cached_property
    def compute_starts(self) -> Int64s:
        """When each span that computes begins."""
        starts: Int64s = self.start[self.kind == COMPUTE]
        return starts

    def spans(self, *kinds: int) -> Intervals:
        """Union of the spans of the given kinds."""
        chosen = np.zeros(len(self), dtype=bool)
        for kind in kinds:
            chosen |= self.kind == kind
        return Intervals.of(self.start[chosen], self.end[chosen])


def timelines(events: Events) -> Iterator[Timeline]:
    """The timeline of every rank of a run, by rank."""
    for rank, kind, launches in rows(
        events.con,
        "SELECT rank, timeline, coalesce(launches, 0) > 0 FROM rank "
        "LEFT JOIN rank_content USING (run, rank) WHERE run = ? ORDER BY rank",
        [events.run],
    ):
        # Where work went to a device of which nothing was recorded, the host's time is not its.
        line = _device(events, rank) if kind != "host" or launches else None
        if line is None or (not len(line) and kind not in ("device", "host")):
            line = _host(events, rank)
        yield line


def _device(events: Events, rank: int) -> Timeline:
    found = events.read(
        rank,
        """
        WITH launch AS (
          SELECT rank, correlation, min(start_ns) AS launch_ns,
            arg_min(tid, start_ns) AS launch_tid, bool_or(contains(name, 'GraphLaunch'))
              AS in_graph, arg_min(start_ns + coalesce(dur_ns, 0), start_ns) AS returned_ns
          FROM event WHERE run = $1 AND rank BETWEEN $2 AND $3 AND class = 'runtime'
            AND correlation > 0 GROUP BY ALL)
        SELECT rank, start_ns,
               list_position(['compute', 'comm', 'memory', 'sync', 'other'], class) - 1 AS kind,
               start_ns + dur_ns AS end_ns, stream, event_id, launch_ns, launch_tid, returned_ns,
               correlation, coalesce(in_graph, false)::INTEGER AS in_graph
        FROM event LEFT JOIN launch USING (rank, correlation)
        ANTI JOIN (SELECT rank FROM rank WHERE run = $1 AND timeline = 'host') USING (rank)
        WHERE run = $1 AND rank BETWEEN $2 AND $3
          AND class IN ('compute', 'comm', 'memory', 'sync', 'other')
          AND device IS NOT NULL AND category IS DISTINCT FROM 'gpu_user_annotation'
          AND start_ns IS NOT NULL AND dur_ns >= 0
        ORDER BY rank, start_ns, event_id
        """,
    )
    return Timeline(
        rank=rank,
        on_device=True,
        kind=found["kind"].astype(np.int64),
        start=found["start_ns"],
        end=found["end_ns"],
        stream=found["stream"],
        event_id=found["event_id"],
        launch=found["launch_ns"],
        thread=found["launch_tid"],
        # Profilers of a device number all that it runs; op tables do not.
        in_graph=found["in_graph"] == 1 if (found["in_graph"] == 1).any() else None,
        returned=found["returned_ns"],
        gaps_are_idle=bool((found["correlation"] != MISSING).any()),
    )


def _host(events: Events, rank: int) -> Timeline:
    found = events.read(
        rank,
        # The patterns are tried on each distinct name, of which there are few, not on each event.
        f"""
        WITH told AS MATERIALIZED (
          SELECT name,
               CASE WHEN regexp_matches(name, '{BACKEND_SPAN}') THEN CASE
                      WHEN regexp_matches(name, 'send|recv') THEN {_P2P} ELSE {_COLLECTIVE} END
                    WHEN regexp_matches(name, '{DATA_LOADING}') THEN {_LOADER}
                    WHEN starts_with(name, 'FSDP::') THEN {_MARKER}
                    WHEN {" OR ".join(f"starts_with(name, '{p}')" for p in LAUNCH_PREFIXES)}
                      THEN {_LAUNCH}
                    ELSE {_OPERATOR} END AS role
          FROM (SELECT DISTINCT name FROM event WHERE run = $1 AND rank BETWEEN $2 AND $3))
        SELECT rank, coalesce(tid, -1) AS tid, start_ns, start_ns + dur_ns AS end_ns, event_id,
               coalesce(role, {_OPERATOR}) AS role
        FROM event LEFT JOIN told USING (name)
        WHERE run = $1 AND rank BETWEEN $2 AND $3 AND start_ns IS NOT NULL AND dur_ns > 0
          AND (class = 'cpu_op' OR role IN ({_COLLECTIVE}, {_P2P})
               OR class = 'annotation' AND device IS NULL AND role = {_LOADER}
               OR role = {_MARKER} AND category = 'user_annotation')
        ORDER BY rank, tid, start_ns, end_ns DESC, event_id
        """,
    )
    role = found["role"]
    communication = np.isin(role, (_COLLECTIVE, _P2P))
    chosen = np.flatnonzero(_working(found["tid"], found["start_ns"], found["end_ns"], role))
    rows = np.concatenate([chosen, np.flatnonzero(communication)])
    rows = rows[np.lexsort((found["event_id"][rows], found["start_ns"][rows]))]
    return Timeline(
        rank=rank,
        on_device=False,
        kind=np.where(communication[rows], COMM, COMPUTE).astype(np.int64),
        start=found["start_ns"][rows],
        end=found["end_ns"][rows],
        stream=found["tid"][rows],
        event_id=found["event_id"][rows],
        launch=np.full(len(rows), MISSING, dtype=np.int64),
        thread=np.full(len(rows), MISSING, dtype=np.int64),
    )


def _working(tid: Int64s, start: Int64s, end: Int64s, role: NDArray[Any]) -> Bools:
    """Which operators are compute: outermost, without communication inside, thread by thread.

    What a data loader runs on the training's thread (decoding, augmenting) is loading: none of the
    step's work, whoever does it.

    The arrays are sorted by thread, start and descending end, so that a parent stands before
    its children.
    """
    chosen = np.zeros(len(tid), dtype=bool)
    for thread in np.unique(tid):
        here = np.flatnonzero(tid == thread)
        roles = role[here]
        markers = np.sort(start[here][np.isin(roles, (_LAUNCH, _MARKER))])
        candidates = here[roles == _OPERATOR]
        loading = here[roles == _LOADER]
        loads = Intervals.of(start[loading], end[loading])
        candidates = candidates[~loads.contains(start[candidates])]
        if not len(markers):
            # A backend's own thread: what runs inside a collective's span is part of it.
            inside = here[roles == _COLLECTIVE]
            own = Intervals.of(start[inside], end[inside])
            candidates = candidates[~own.contains(start[candidates])]
        else:
            launches = here[roles == _LAUNCH]
            own = Intervals.of(start[launches], end[launches])
            candidates = candidates[~own.contains(start[candidates])]
        while len(candidates):
            starts, ends = start[candidates], end[candidates]
            reached = np.maximum.accumulate(ends)
            outermost = np.ones(len(candidates), dtype=bool)
            outermost[1:] = starts[1:] >= reached[:-1]
            inside_count = np.searchsorted(markers, ends) - np.searchsorted(markers, starts)
            waits = outermost & (inside_count > 0)
            chosen[candidates[outermost & ~waits]] = True
            parent = np.flatnonzero(outermost)[np.cumsum(outermost) - 1]
            candidates = candidates[~outermost & waits[parent]]
    return chosen
