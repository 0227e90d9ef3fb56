"""Whether a finding names a fault's cause and its location, and whether its first fix mends it."""

from __future__ import annotations

import re

from advisor.findings import Finding
from benchmarks.gpulab.cases import Case
from benchmarks.gpulab.faults import FAULTS

_HEAVY_STAGE = "imbalanced-pipeline-stages"


def judge_cause(case: Case, finding: Finding) -> bool:
    """Whether a finding names the fault's cause, or what costs as much.

    A rank computes too long, or its stage does: that is the same only where it is all of its stage.
    """
    if finding.rule == _HEAVY_STAGE and case.place.stage < 0:
        return finding.rule in case.right and set(finding.ranks) == set(case.place.ranks)
    return finding.rule in case.right


def judge_place(case: Case, finding: Finding) -> str | None:
    """'right', 'candidates' (the truth is in a set that excludes somebody), 'wrong' or None."""
    place = case.place
    if not place.given:
        return None
    if place.stage >= 0:
        return _judge_stage(case, finding)
    if place.group:
        described = case.groups.get(finding.process_group or "", "")
        return "right" if place.group in described else "wrong"
    if place.edge:
        return _judge_edge(case, finding)
    if place.hosts:
        return _judge_hosts(case, finding)
    return _judge_set(set(place.ranks), set(finding.ranks), case.ranks)


def judge_fix(case: Case, finding: Finding) -> bool:
    """Whether what the user is told to do first is what mends this fault, or what costs as much."""
    first = finding.fix[0] if finding.fix else ""
    patterns = case.fixes
    if finding.rule in case.right - {*case.rules}:
        named = (fault for fault in FAULTS.values() if finding.rule in fault.rules)
        patterns = [pattern for fault in named for pattern in fault.fixes]
    return any(re.search(pattern, first) for pattern in patterns)


def _judge_set(truth: set[int], named: set[int], of: int) -> str:
    if named == truth:
        return "right"
    return "candidates" if truth < named and len(named) < of else "wrong"


def _judge_stage(case: Case, finding: Finding) -> str:
    words = re.search(r"stages? (\d+)", f"{finding.where} {finding.title}")
    if words:
        return "right" if int(words[1]) == case.place.stage else "wrong"
    return _judge_set(set(case.place.ranks), set(finding.ranks), case.ranks)


def _judge_edge(case: Case, finding: Finding) -> str:
    """A pair inside a host: the edge in either direction, or a set that holds it."""
    truth = set(case.place.edge)
    pairs = [pair for link in finding.links if (pair := _rank_pair(link))]
    if pairs:
        right = [pair for pair in pairs if set(pair) == truth]
        if len(right) == len(pairs):
            return "right"
        return "candidates" if right and len(pairs) < case.ranks else "wrong"
    named = set(finding.ranks)
    if named == truth:
        return "right"
    if truth <= named and len(named) < case.ranks:
        return "candidates"
    hosts = {n for name in finding.hosts if (n := host_number(name, case)) is not None}
    own = case.place.edge[0] // case.per_host
    return "candidates" if hosts == {own} and case.hosts > 1 else "wrong"


def _judge_hosts(case: Case, finding: Finding) -> str:
    truth = set(case.place.hosts)
    ends = {"send": (0,), "receive": (1,)}.get(case.place.direction, (0, 1))
    edges = [edge for link in finding.links if (edge := _host_edge(link, case))]
    edges = [edge for edge in edges if edge[0] != edge[1]]
    if edges:
        # Of two hosts each edge touches both: the right end must be the one that is meant.
        touching = [edge for edge in edges if any(edge[end] in truth for end in ends)]
        if len(touching) == len(edges) and truth <= {edge[e] for edge in touching for e in ends}:
            return "right"
        return "candidates" if touching and len(edges) < case.hosts else "wrong"
    named = {n for name in finding.hosts if (n := host_number(name, case)) is not None}
    if not named:
        named = {rank // case.per_host for rank in finding.ranks}
    if case.hosts == 2 and named == {0, 1}:
        # Both NICs carry the same bytes between two hosts: no recording tells one from the other.
        return "right"
    return _judge_set(truth, named, case.hosts)


def _host_edge(link: str, case: Case) -> tuple[int, int] | None:
    ends = [end.strip() for end in link.split("->")]
    if len(ends) != 2:
        return None
    hosts = []
    for end in ends:
        number = host_number(end, case)
        if number is None and (rank := re.search(r"^(?:rank )?(\d+)$", end)):
            number = int(rank[1]) // case.per_host
        if number is None:
            return None
        hosts.append(number)
    return hosts[0], hosts[1]


def _rank_pair(link: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"(?:rank )?(\d+)\s*->\s*(?:rank )?(\d+)", link.strip())
    return (int(found[1]), int(found[2])) if found else None


def host_number(name: str, case: Case) -> int | None:
    """Index of a host from its name (gpu-17-03 is 3), or from 'host 3'."""
    found = re.search(r"gpu-\d+-(\d+)$", name) or re.fullmatch(r"host (\d+)", name)
    return int(found[1]) if found else None
