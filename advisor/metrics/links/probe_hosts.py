"""Whether a probe was of the trace's hosts: only then is it evidence of the trace's links.

By name, where both name their hosts. Where the traces name none, rank N of the probe is taken for
rank N of the traces if both have the same ranks, which is said as an assumption.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from advisor.metrics.links.named import MOST_NAMED
from advisor.metrics.rings.locations import Home, is_nameless


class Joined(NamedTuple):
    """The place of each of the probe's ranks and of the trace's, by the same names."""

    where: Mapping[int, Home]
    home: Mapping[int, Home]
    assumed: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the probe was of every place of the traces."""
        return set(self.home.values()) <= set(self.where.values())


class Apart(NamedTuple):
    """A probe that is no evidence of the trace's links: ``why``, and whether of other hosts."""

    why: str
    other_hosts: bool = True


def join(probe: Mapping[int, str], home: Mapping[int, Home]) -> Joined | Apart:
    """The probe's ranks at the trace's places, or why it is not used.

    ``home`` is what stands for each trace rank's host: its name, or its ranks where it has none.
    """
    named = {rank: own for rank, own in home.items() if not is_nameless(own)}
    where = _by_name(probe, set(named.values()))
    if not probe:
        return Apart("the probe's ranks have no hosts, or several probes name different ones")
    if where is not None and (len(named) == len(home) or set(probe) != set(home)):
        joined = Joined(where, home)
    elif set(probe) == set(home) and all(_short(probe[r]) == _short(named[r]) for r in named):
        joined = Joined(probe, dict(probe), assumed=True)
    else:
        return Apart(
            f"the probe is of other hosts ({_names(probe)}) than the traces ({_names(home)})"
        )
    if len(set(joined.where.values())) > 1:
        return joined
    if len(set(joined.home.values())) > 1 or set(joined.where) != set(joined.home):
        return Apart("the probe is of other ranks than the traces, within one host", False)
    ranks: dict[int, Home] = {rank: rank for rank in joined.home}  # its ranks are the places
    return Joined(ranks, ranks, joined.assumed)


def use_of(joined: Joined | Apart, *, comparable: bool) -> tuple[str, str | None]:
    """What a probe is good for ('all', 'part', 'few', 'none', 'other'), and what to say of it.

    ``comparable``: it has enough links between places to compare one with another.
    """
    if isinstance(joined, Apart):
        why = f"{joined.why}: its figures are shown, but not used for the diagnosis"
        return "other" if joined.other_hosts else "none", why
    said = []
    if joined.assumed:
        said.append(
            "the traces do not name all hosts: the probe is taken to be of the same, rank by rank"
        )
    if not comparable:
        said.append("the probe has too few links between hosts to compare one with another")
    elif not joined.is_whole:
        said.append(f"the probe covers only some of the traces' hosts ({_names(joined.where)})")
    name = "few" if not comparable else "all" if joined.is_whole else "part"
    return name, "; ".join(said) or None


def _by_name(probe: Mapping[int, str], known: set[Home]) -> dict[int, Home] | None:
    """Each probe rank's host as the traces name it, with or without the domain."""
    short = Counter(_short(own) for own in known)
    names = {_short(own): own for own in known if short[_short(own)] == 1}
    names |= {str(own): own for own in known}
    found = {rank: names.get(host, names.get(_short(host))) for rank, host in probe.items()}
    of_all = {rank: own for rank, own in found.items() if own is not None}
    return of_all if len(of_all) == len(probe) else None


def _short(host: Home) -> str:
    return str(host).split(".")[0].lower()


def _names(hosts: Mapping[int, Home]) -> str:
    names = sorted({str(host) for host in hosts.values()})
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more
