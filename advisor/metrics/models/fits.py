"""Fits the cost of this run's collectives (METRICS section 7) and says how each call compares."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.metrics.collectives.call import Call, wire_name
from advisor.metrics.collectives.groups import Group, RankInfo, link_kind
from advisor.metrics.timeline.contention import exclusive_ns
from advisor.model.alpha_beta import AlphaBeta, fit
from advisor.vocabulary.operations import POINT_TO_POINT

Kind = tuple[str, int, str | None]


def exclusive_transfers(
    calls: Mapping[int, Sequence[Call]],
    groups: Mapping[str, Group],
    infos: Mapping[int, RankInfo],
) -> dict[int, dict[int, float]]:
    """rank -> {event_id: transfer time the call would have had the link for itself, ns}.

    Calls share what both go over: NVLink or NICs, each of them one way for messages sent and
    another for those received, and both ways for collectives.
    """
    result = {}
    known: dict[tuple[int | None, object], str | None] = {}
    for rank, own in calls.items():
        starts = np.array([call.start + (call.wait or 0) for call in own], dtype=np.int64)
        ends = np.array([call.end for call in own], dtype=np.int64)
        ways = _ways(own, groups, infos, known)
        alone = np.full(len(own), np.inf)
        for way in range(ways.shape[1]):
            over = ways[:, way]
            alone[over] = np.minimum(alone[over], exclusive_ns(starts[over], ends[over]))
        result[rank] = {c.event_id: float(t) for c, t in zip(own, alone, strict=True)}
    return result


def _ways(
    own: Sequence[Call],
    groups: Mapping[str, Group],
    infos: Mapping[int, RankInfo],
    known: dict[tuple[int | None, object], str | None],
) -> NDArray[np.bool_]:
    """Whether each call goes out inside the host, in there, out between hosts, and in.

    ``known``: the kind of link of each pair and group that was looked at.
    """
    result = np.empty((len(own), 4), dtype=bool)
    for number, call in enumerate(own):
        message = call.op in POINT_TO_POINT
        key = (call.rank, call.peer) if message else (None, call.group)
        if key not in known:
            known[key] = link_kind(call, groups, infos)
        link = known[key]
        out, back = call.op != "recv", call.op != "send"
        result[number, :2] = (out and link != "inter", back and link != "inter")
        result[number, 2:] = (out and link != "intra", back and link != "intra")
    return result


def fit_all(
    columns: Sequence[Mapping[int, Call]],
    exclusive: Mapping[int, Mapping[int, float]],
    groups: Mapping[str, Group],
    infos: Mapping[int, RankInfo],
) -> dict[Kind, AlphaBeta]:
    """One fit per (operation on the wire, group size, link kind); sets fitted_ns of the calls.

    A call's time is its slowest rank's, the link to itself (see contention.py).
    """
    samples: dict[Kind, list[tuple[int, float]]] = defaultdict(list)
    members: dict[Kind, list[Call]] = defaultdict(list)
    for column in columns:
        call = next(iter(column.values()))
        if not call.bytes or not call.group_size or call.group_size < 2:
            continue
        size = 2 if call.op in POINT_TO_POINT else call.group_size
        kind = (wire_name(call), size, link_kind(call, groups, infos))
        whole = all(c.t_is == "matched" for c in column.values())
        times = [exclusive[rank][c.event_id] for rank, c in column.items()]
        time = max(times) if whole else min(times)
        if time <= 0:
            continue
        samples[kind].append((max(c.bytes or 0 for c in column.values()), time))
        members[kind].extend(column.values())
    fits = {}
    for kind in sorted(samples, key=str):
        op, size, _ = kind
        found = fit(op, size, *np.array(samples[kind], dtype=np.float64).T)
        if found is None:
            continue
        fits[kind] = found
        for call in members[kind]:
            call.fitted = round(found.time_ns(call.bytes or 0))
            call.latency_share = found.latency_share(call.bytes or 0)
    return fits


def fit_record(run: str, kind: Kind, found: AlphaBeta) -> dict[str, Any]:
    """A row of ``alpha_beta``."""
    op, size, link = kind
    return {
        "run": run,
        "origin": "trace",
        "op": op,
        "group_size": size,
        "link_kind": link,
        "n_star_bytes": found.n_star_bytes,
        **found._asdict(),
    }
