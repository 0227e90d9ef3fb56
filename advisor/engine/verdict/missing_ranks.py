"""Rows of the decision table for what was not read: ranks, and the groups that calls are of."""

from dataclasses import replace

from advisor.engine.verdict.choice import (
    LARGE,
    Decision,
    best,
    idles_for,
    inconclusive,
    mostly,
)
from advisor.engine.verdict.facts import LOST, Shares, Situation
from advisor.findings import Finding, VerdictKind

# What a host does by itself while its device idles: kinds of gaps.
_HOSTS_OWN = ("pause", "data-loading", "garbage-collection", "allocator")
_OF_SURE_CAUSE = frozenset({VerdictKind.SURE, VerdictKind.UNKNOWN_COST})


def missing_peers(it: Situation, shares: Shares) -> Decision | None:
    """Communication larger than any finding gives, of which nothing tells what is waiting."""
    if shares.wait_known or it.facts.all_ranks or shares.exposed < LOST:
        return None
    missing = ranks_missing(it, shares)
    return missing and (_whoever_is_missing(it, shares) or host_works(it, shares) or missing)


def _whoever_is_missing(it: Situation, shares: Shares) -> Decision | None:
    """The best of the sure causes that stand by themselves, though a likely one may give more.

    Where most ranks were read one does if its low end is large, which missing ranks took from what
    they may change. They have no part in what idles by itself: of more than is exposed.
    """

    def stands(item: Finding) -> bool:
        if _mostly_read(it) and (item.savings_low_ns or 0) >= LARGE * it.step_ns:
            return True
        return mostly(item, "idle") and (item.savings_ns or 0) >= shares.exposed * it.step_ns

    sure = [item for item in it.findings if item.is_sure() and stands(item)]
    found = best(replace(it, findings=sure), LARGE)
    return found if found is not None and found.kind in _OF_SURE_CAUSE else None


def ranks_missing(it: Situation, shares: Shares) -> Decision | None:
    """Exposed communication that no finding explains, with ranks that are cut or not read."""
    if shares.exposed < LARGE or it.carried or _explained(it, shares):
        return None
    if it.cut_ranks and it.partly_read:
        return inconclusive("ranks-cut")
    # Of a job that was read whole, calls that were not matched lack no rank.
    unknown = not it.facts.all_ranks and (not shares.wait_known or it.partly_read >= LARGE)
    return inconclusive("ranks-missing") if unknown else None


def _explained(it: Situation, shares: Shares) -> bool:
    """Whether what was found may be all that is exposed, or is idle time of more than that.

    A likely cause in these very calls need give back half of it only: the rest may be waiting. Of
    one that is counted, and so holds whoever is missing (partly_read.py), the high end counts.
    """
    exposed_ns = shares.exposed * it.step_ns
    top = next((item for item in it.findings if item.savings_ns), None)
    if top is None:
        return False
    is_counted = not top.is_option() and top.savings_low_ns == 0
    in_them = is_counted or (
        not top.is_option() and top.is_sure() and mostly(top, "wait", "transfer")
    )
    # Causes beside each other count together: none of them is an effect of another.
    likely = sum(item.savings_ns or 0 for item in it.findings if not item.is_option())
    gives_ns = max(top.most_ns() if is_counted else top.savings_ns or 0, likely)
    return gives_ns >= (0.5 if in_them else 1.0) * exposed_ns


def _mostly_read(it: Situation) -> bool:
    """Whether fewer ranks are missing or cut than were read whole."""
    missing = {*it.missing_ranks, *it.cut_ranks}
    return 0 < 2 * len(missing) < (it.facts.world_size or 0)


def groups_missing(it: Situation, shares: Shares) -> Decision | None:
    """Ranks that cannot be compared, as nothing says which of them a call joins."""
    if shares.exposed < LARGE or it.groups_known:
        return None
    return inconclusive("groups-missing")


def nobody_to_compare(it: Situation, _: Shares) -> Decision | None:
    """Who never waits may be the one that all others wait for."""
    return inconclusive("ranks-alone") if it.alone_ranks else None


def host_works(it: Situation, shares: Shares) -> Decision | None:
    """What a host does while its device idles is seen without the other ranks, and in one step."""
    own = shares.idle >= shares.exposed and idles_for(it, shares, *_HOSTS_OWN)
    return Decision(VerdictKind.LOSSY, "idle") if own else None
