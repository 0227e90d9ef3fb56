"""What a probe of the same links adds to a diagnosis: places that are slow, and fitted costs.

The probe's ranks are brought to the trace's hosts as probe_hosts.py says.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from advisor.metrics.links.cost import (
    Culprit,
    Inputs,
    Share,
    bandwidth,
    link_row,
    named_row,
    of_host,
)
from advisor.metrics.links.durations import FEWEST_CALLS
from advisor.metrics.links.pair_hosts import by_host
from advisor.metrics.links.pair_timings import SPREAD, Pair, Suspect, suspects, timed_pairs
from advisor.metrics.links.probe_hosts import Apart, Joined, join, use_of
from advisor.metrics.models.fits import fit_record
from advisor.metrics.rings.locations import Home
from advisor.model.alpha_beta import fit

# Rows of ``topology`` that say what a probe was used for (probe_hosts.use_of).
USE = "probe-use"


class Probed(NamedTuple):
    """A place that the probe found slow; rates in GB/s."""

    culprit: Culprit
    gbps: float
    expected_gbps: float
    pairs: int

    @property
    def share(self) -> Share:
        """Excess of a call that the link limits."""
        left = self.gbps / self.expected_gbps
        return max(1 - (1 + SPREAD) * left, 0.0), 1 - left, 1 - (1 - SPREAD) * left

    def is_at(self, other: Culprit) -> bool:
        """Whether this is the other place, one of its links, or the end of it that is slow.

        A host that sends slowly is not at a link that it receives over, nor the other way round.
        """
        if other.kind == "candidates":
            theirs = other.near | (other.far or frozenset()) | frozenset(other.candidates)
            return not self.culprit.near.isdisjoint(theirs) and (
                self.culprit.far is None or not self.culprit.far.isdisjoint(theirs)
            )
        (sends, receives), (sent, received) = _slow_ends(self.culprit), _slow_ends(other)
        at = (not sends.isdisjoint(sent), not receives.isdisjoint(received))
        return all(at) if self.culprit.far is not None and other.far is not None else any(at)

    def numbers(self) -> dict[str, Any]:
        """For the evidence."""
        return {
            "probe_gbps": round(self.gbps, 4),
            "probe_expected_gbps": round(self.expected_gbps, 4),
            "probe_pairs": self.pairs,
        }


class Probe(NamedTuple):
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
        if len(merged) < FEWEST_CALLS:
            return None  # too few to compare
        by_place: dict[tuple[int, ...], list[Suspect]] = defaultdict(list)
        for suspect in suspects(merged):
            by_place[suspect.ranks].append(suspect)
        return [_probed(same, [ranks[n] for n in names]) for same in by_place.values()]

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


def _slow_ends(place: Culprit) -> tuple[frozenset[int], frozenset[int]]:
    """The ranks that may send slowly at a place, and those that may receive slowly."""
    if place.far is not None:
        return place.near, place.far
    none: frozenset[int] = frozenset()
    sends = none if place.direction == "receive" else place.near
    return sends, none if place.direction == "send" else place.near


def _probed(same: Sequence[Suspect], ranks: Sequence[Sequence[int]]) -> Probed:
    """The place of suspects that are one: a host may be slow both ways. The slowest comes first."""
    first = same[0]
    near = ranks[first.ranks[0]]
    if first.kind in ("sender", "receiver"):
        direction = "both" if len(same) > 1 else "send" if first.kind == "sender" else "receive"
        culprit = of_host(near, direction)
    else:
        far = ranks[first.ranks[1]]
        culprit = Culprit("edge", near[0], far[0], frozenset(near), frozenset(far),
                          (near[0], far[0]))  # fmt: skip
    return Probed(culprit, first.gbps, first.expected_gbps, sum(one.pairs for one in same))


def probe_rows(data: Inputs, probed: Sequence[Probed], *, alone: bool) -> list[dict[str, Any]]:
    """Rows of the places that the probe shows and the traces' own evidence does not.

    ``alone``: the traces show no place at all. Then the one that costs most is what limits the
    calls over it, where these ran at its rate. All others are named, without a cost.
    """
    shown = []
    for one in probed if alone else ():
        moved = bandwidth(data, one.culprit)
        if moved is not None and (1 - SPREAD) * moved <= one.gbps:
            evidence = {"probe": "shows", **one.numbers()}
            row = link_row(data, one.culprit, one.share, calls=one.pairs,
                           expected_from="probe", evidence=evidence)  # fmt: skip
            shown.append((one, row))
    first = max(shown, key=lambda item: item[1]["excess_ns_per_step"], default=None)
    named = [
        named_row(data, one.culprit, calls=one.pairs,
                  evidence={"probe": "names", **one.numbers()})
        for one in probed if first is None or one is not first[0]
    ]  # fmt: skip
    return named if first is None else [first[1], *named]


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
    """Rows of ``alpha_beta`` from the collectives of a benchmark, over all its tables."""
    ((probe_hosts,),) = con.execute(
        "SELECT count(DISTINCT host) FROM topology WHERE run = ? AND kind = 'probe-rank'", [run]
    ).fetchall()
    rows = con.execute(
        "SELECT tool, op, ranks, len(hosts) AS n, list(bytes ORDER BY bytes, in_place, time_us), "
        "list(1e3 * time_us ORDER BY bytes, in_place, time_us) FROM bench "
        "WHERE run = ? AND tool <> 'inspector' AND src IS NULL AND ranks > 1 "
        "AND time_us > 0 GROUP BY ALL ORDER BY ALL",
        [run],
    ).fetchall()
    found = []
    for tool, op, ranks, hosts, sizes, times in rows:
        fitted = fit(op, ranks, sizes, times, misfit=True)
        if fitted is not None:
            kind = (op, ranks, _link_kind(probe_hosts if tool == "probe" else hosts))
            found.append({**fit_record(run, kind, fitted), "origin": tool})
    return found


def _link_kind(hosts: int | None) -> str | None:
    return None if not hosts else "inter" if hosts > 1 else "intra"
