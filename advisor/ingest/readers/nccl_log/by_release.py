"""Causes that the release of a log cannot have: its lines are named as if those were not listed."""

from collections import defaultdict
from dataclasses import replace

from advisor.errors import AdvisorError
from advisor.ingest.readers.nccl_log.collected import Collected, Kept
from advisor.ingest.readers.nccl_log.facts import Fact
from advisor.model.nccl.effects import in_releases, passing
from advisor.model.nccl.messages import named
from advisor.model.nccl.version import NcclVersion, parse_version


def keep_to_releases(collected: Collected) -> None:
    """By the releases that a line's host prints, else the run's; without any nothing changes."""
    of_host: defaultdict[str, set[NcclVersion]] = defaultdict(set)
    for kept, said in collected.of(Fact):
        if (said.kind, said.name) == ("version", "nccl"):
            try:
                of_host[kept.slot.host].add(parse_version(str(said.value)))
            except AdvisorError:  # as garbled as a log may be: a release that is not known
                continue
    every = {release for own in of_host.values() for release in own}
    limited = in_releases()
    result: list[Kept] = []
    for kept in collected.kept:
        fact = kept.record
        if isinstance(fact, Fact) and fact.kind == "warning" and fact.name in limited:
            possible = of_host.get(kept.slot.host) or every
            if possible and not any(release in limited[fact.name] for release in possible):
                other = named(str(fact.value), is_warning=True, release=max(possible))
                if other is None and fact.name in passing():
                    continue
                kept = replace(kept, record=replace(fact, name=other or ""))
        result.append(kept)
    collected.kept[:] = result
