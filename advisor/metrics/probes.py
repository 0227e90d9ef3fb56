"""What a probe of the same links adds to a diagnosis: places that are slow, and fitted costs.

The probe's ranks are brought to the trace's hosts as probe_hosts.py says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.metrics.fits import fit_record
from advisor.metrics.link_cost import Culprit, Inputs, Share, bandwidth, link_row, of_host
from advisor.metrics.pair_hosts import FEWEST, by_host
from advisor.metrics.pair_timings import Pair, Suspect, suspects, timed_pairs
from advisor.metrics.places import Home
from advisor.metrics.probe_hosts import Apart, Joined, join, use_of
from advisor.model.alpha_beta import fit

# What a pair's rate is good for.
_SPREAD = 0.2
# Calls that move this much more than a slow link gives did not go over it when it was slow.
_FASTER = 1.25
# Rows of ``topology`` that say what a probe was used for (probe_hosts.use_of).
USE = "probe-use"


@dataclass(frozen=True)
class Probed:
    """A place that the probe found slow; rates in GB/s."""

    culprit: Culprit
    gbps: float
    expected_gbps: float
    pairs: int

    @property
    def share(self) -> Share:
        """Excess of a call that the link limits."""
        left = self.gbps / self.expected_gbps
        return max(1 - (1 + _SPREAD) * left, 0.0), 1 - left, 1 - (1 - _SPREAD) * left

    def is_at(self, other: Culprit) -> bool:
        """Whether this is the other place, or the end of it that is slow."""
        theirs = other.near | (other.far or frozenset()) | frozenset(other.candidates)
        return not self.culprit.near.isdisjoint(theirs) and (
            self.culprit.far is None or not self.culprit.far.isdisjoint(theirs)
        )

    def numbers(self) -> dict[str, Any]:
        """For the evidence."""
        return {
            "probe_gbps": round(self.gbps, 4),
            "probe_expected_gbps": round(self.expected_gbps, 4),
            "probe_pairs": self.pairs,
        }


@dataclass(frozen=True)
class Probe:
    """Single links, and the host of each of the probe's ranks."""

    pairs: tuple[Pair, ...]
    hosts: Mapping[int, str]

    def places(self, home: Mapping[int, Home]) -> list[Probed] | None:
        """Slow places among the trace's ranks; None where it shows nothing of them.

        It was of other hosts, or has too few links between them to compare.
        """
        joined = join(self.hosts, home)
        if isinstance(joined, Apart):
            return None
        where, home = joined.where, joined.home
        ranks: dict[Home, list[int]] = defaultdict(list)
        for rank, own in home.items():
            ranks[own].append(rank)
        names, merged = by_host(self.pairs, where)
        if len(merged) < FEWEST:
            return None  # too few to compare
        by_place: dict[tuple[int, ...], Probed] = {}
        for suspect in suspects(merged):
            by_place.setdefault(suspect.ranks, _probed(suspect, [ranks[n] for n in names]))
        return list(by_place.values())

    def covers(self, culprit: Culprit, home: Mapping[int, Home]) -> bool:
        """Whether links of every host that a place may be on were measured."""
        joined = join(self.hosts, home)
        ranks = culprit.near | (culprit.far or frozenset()) | frozenset(culprit.candidates)
        return isinstance(joined, Joined) and all(
            joined.home.get(rank) in set(joined.where.values()) for rank in ranks
        )

    def use_row(self, run: str, home: Mapping[int, Home]) -> dict[str, Any] | None:
        """The row of ``topology`` that says what the probe is used for; None without traces."""
        if not home:
            return None
        joined, comparable = join(self.hosts, home), self.places(home) is not None
        name, said = use_of(joined, comparable=comparable)
        return {"run": run, "kind": USE, "name": name, "value": said}


def _probed(suspect: Suspect, ranks: Sequence[Sequence[int]]) -> Probed:
    near = ranks[suspect.ranks[0]]
    if suspect.kind in ("sender", "receiver"):
        culprit = of_host(near)
    else:
        far = ranks[suspect.ranks[1]]
        culprit = Culprit("edge", near[0], far[0], frozenset(near), frozenset(far),
                          (near[0], far[0]))  # fmt: skip
    return Probed(culprit, suspect.gbps, suspect.expected_gbps, suspect.pairs)


def probe_rows(data: Inputs, probed: Sequence[Probed]) -> list[dict[str, Any]]:
    """Rows of the places that only the probe shows, where the traced calls ran at their rate."""
    rows = []
    for one in probed:
        moved = bandwidth(data, one.culprit)
        if moved is not None and moved <= _FASTER * one.gbps:
            evidence = {"probe": "shows", **one.numbers()}
            rows.append(link_row(data, one.culprit, one.share, calls=one.pairs,
                                 expected_from="probe", evidence=evidence))  # fmt: skip
    return rows


def read_probe(con: Any, run: str) -> Probe | None:
    """The pairs of a probe's result that was given along with the traces; None without one."""
    hosts = con.execute(
        "SELECT DISTINCT rank, host FROM topology WHERE run = ? AND kind = 'probe-rank'", [run]
    ).fetchall()
    if len(dict(hosts)) < len(hosts):
        hosts = []  # several probes of different hosts: a rank's number says nothing
    rows = con.execute(
        "SELECT src, dst, bytes, median(time_us) FROM bench WHERE run = ? AND tool = 'probe' "
        "AND src IS NOT NULL GROUP BY ALL ORDER BY ALL",
        [run],
    ).fetchall()
    times: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for src, dst, size, time_us in rows:
        times[src, dst][size] = 1e3 * time_us
    pairs = timed_pairs(times)
    return Probe(tuple(pairs), dict(hosts)) if pairs else None


def benchmark_fits(con: Any, run: str) -> list[dict[str, Any]]:
    """Rows of ``alpha_beta`` from the collectives of a probe or of nccl-tests."""
    hosts = dict(
        con.execute(
            "SELECT kind, count(DISTINCT host) FROM topology WHERE run = ? "
            "AND kind IN ('probe-rank', 'bench-host') GROUP BY kind",
            [run],
        ).fetchall()
    )
    rows = con.execute(
        "SELECT tool, op, ranks, list(bytes ORDER BY bytes, in_place, time_us), "
        "list(1e3 * time_us ORDER BY bytes, in_place, time_us) FROM bench "
        "WHERE run = ? AND tool IN ('probe', 'nccl-tests') AND src IS NULL AND ranks > 1 "
        "AND time_us > 0 GROUP BY ALL ORDER BY ALL",
        [run],
    ).fetchall()
    found = []
    for tool, op, ranks, sizes, times in rows:
        fitted = fit(op, ranks, sizes, times, misfit=True)
        if fitted is not None:
            kind = (op, ranks, _link_kind(tool, hosts))
            found.append({**fit_record(run, kind, fitted), "origin": tool})
    return found


def _link_kind(tool: str, hosts: Mapping[str, int]) -> str | None:
    """Of a probe's calls, whose ranks name their hosts; nccl-tests name theirs where several."""
    if tool == "probe":
        known = hosts.get("probe-rank", 0)
        return None if not known else "inter" if known > 1 else "intra"
    return "inter" if hosts.get("bench-host", 0) > 1 else None
