"""Whether a finding names the place where a fault was made."""

from __future__ import annotations

import re
from collections.abc import Mapping

from advisor.findings import Finding
from benchmarks.lab.case import Case


def judge_place(
    case: Case, finding: Finding, groups: Mapping[str, str] | None = None
) -> str | None:
    """'right', 'candidates' (the truth is in a set that excludes somebody), 'wrong' or None."""
    place = case.place
    if place.group:
        described = (groups or {}).get(finding.process_group or "", "")
        return "right" if place.group in described else "wrong"
    if place.hosts:
        return _judge_host(case, finding)
    if place.ranks:
        return _judge_set(set(place.ranks), set(finding.ranks), case.faulty.ranks)
    return None


def _judge_host(case: Case, finding: Finding) -> str:
    host = case.place.hosts[0]
    edges = [edge for link in finding.links if (edge := _edge(link, case))]
    if edges:
        # One direction: the edge must leave (or enter) the host. Both: either of its edges will
        # do, a ring shows the slower of the two.
        ends = {"send": (0,), "receive": (1,)}.get(case.place.direction, (0, 1))
        touching = [edge for edge in edges if any(edge[end] == host for end in ends)]
        if len(touching) == len(edges):
            return "right"
        return "candidates" if touching and len(edges) < case.faulty.hosts else "wrong"
    named = {number for name in finding.hosts if (number := _host_number(name)) is not None}
    if not named:
        named = {case.faulty.host_of(rank) for rank in finding.ranks}
    return _judge_set({host}, named, case.faulty.hosts)


def _judge_set(truth: set[int], named: set[int], of: int) -> str:
    if named == truth:
        return "right"
    return "candidates" if truth < named and len(named) < of else "wrong"


def _edge(link: str, case: Case) -> tuple[int, int] | None:
    """Host indices of a link named 'host a -> host b' or, by ranks, '2 -> 3'."""
    ends = [end.strip() for end in link.split("->")]
    if len(ends) != 2:
        return None
    hosts = []
    for end in ends:
        number = _host_number(end)
        if number is None and (rank := re.search(r"\d+$", end)):
            number = case.faulty.host_of(int(rank.group()))
        if number is None:
            return None
        hosts.append(number)
    return hosts[0], hosts[1]


def _host_number(name: str) -> int | None:
    match = re.search(r"-h(\d+)$", name)
    return int(match.group(1)) if match else None
