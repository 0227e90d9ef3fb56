"""Ranks that were not read: a gain that is time in calls with them is never sure.

A rank whose file is missing may be the one that all others wait for. Their time in the calls of
its group is then waiting, not transfer, and no setting of the communication ends it. Sizes, counts
and repeated traffic stay what they are; what they would give back is at most that time, and perhaps
nothing. What the bytes take over all links of the device, by its data sheet, is no waiting: where
that is most of the time, it is sure. Links and ranks are judged by evidence of their own, not by
this.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.engine.facts import Facts
from advisor.engine.rule import Rule
from advisor.engine.sandbox import Sandbox
from advisor.findings import Severity
from advisor.vocabulary.words import some_ranks

# Single calls that lost their partner (a lost event, an edge of the recording) change no gain.
_MOST_PARTLY = 0.1
# Where every rank was read, calls that lost an event are as the others, unless these are fewer.
_MOST_LOST = 0.5
_MOST = 0.5
# Among a finding's facts: the low end of its gain if nobody waited for those who are missing.
_LOW_IF_READ = "low_if_all_read_ns"

# A switch that sums takes each byte of an all_reduce once from each rank; rings take most twice.
_MOVED = (
    "greatest(0, exposed_transfer_ns - transfer_ns * (1 - least(1, coalesce(busbw_gbps / "
    "CASE WHEN op = 'all_reduce' THEN 2 * (group_size - 1) / group_size ELSE 1 END / "
    "(SELECT max(coalesce(link_gbps, pcie_gbps)) FROM run_device), 0))))"
)
_TIME = (
    "SELECT coalesce(sum(exposed_transfer_ns) FILTER (WHERE partly_read), 0)::DOUBLE AS partly_ns, "
    f"coalesce(sum({_MOVED}) FILTER (WHERE partly_read), 0)::DOUBLE AS moved_ns, "
    "coalesce(sum(exposed_transfer_ns), 0)::DOUBLE AS all_ns, "
    "list(DISTINCT process_group) FILTER (WHERE partly_read) AS groups, "
    "count(DISTINCT (rank, step)) AS rank_steps FROM call "
    "WHERE ($op IS NULL OR op = $op) AND ($of_group IS NULL OR process_group = $of_group)"
)
_MISSING = (
    "SELECT DISTINCT m.rank AS rank, m.rank IN (SELECT rank FROM rank) AS is_cut, "
    "m.rank IN (SELECT rank FROM blind_rank) AS is_blind "
    "FROM group_member m WHERE process_group = $of_group "
    "AND m.rank NOT IN (SELECT rank FROM whole_rank) ORDER BY 1"
)
_READ = (
    "SELECT avg((m.rank IN (SELECT rank FROM whole_rank))::INT) AS share "
    "FROM group_member m WHERE process_group = $of_group "
    "HAVING count(*) > 1"
)
_KNOWN = "SELECT 1 AS one FROM process_group WHERE process_group = $of_group AND len(ranks) > 1"


def as_far_as_read(rule: Rule, row: Mapping[str, Any], sandbox: Sandbox) -> dict[str, Any]:
    """``row`` with ``unread_words``: which ranks its calls lack, as a sentence; '' for none.

    Where the rule's gain is time in calls that some of their ranks are missing from, its low end
    becomes zero and its severity at most info, or as much less as may be waiting where the links
    take most of that time; of a cause that is counted, in a group of which most ranks were read,
    only the gain is open (``is_counted``). A column ``counted`` of the rule's SQL says of which
    rows.
    """
    if not rule.savings.in_calls:
        return {**row, "unread_words": ""}
    scope = {"op": row.get("op"), "of_group": row.get("process_group")}
    (time,) = sandbox.records(_TIME, scope)
    if _told_by_the_rest(time, sandbox):
        return {**row, "unread_words": ""}
    words = _sentence(time["groups"], sandbox)
    changed = {**row, "unread_words": f"{words}."}
    if row.get("savings_low_ns") is not None:
        changed[_LOW_IF_READ] = row["savings_low_ns"]
    if time["moved_ns"] >= _MOST * time["partly_ns"] and row.get("savings_low_ns"):
        waited = (time["partly_ns"] - time["moved_ns"]) / time["all_ns"]
        most = f", at most {waited:.0%} of it by what the links carry".replace("%", " %")
        low_ns = round(row["savings_low_ns"] * (1 - waited))
        return {**changed, "savings_low_ns": low_ns, "unread_words": f"{words}{most}."}
    if row.get("savings_ns") is not None:
        changed |= {"savings_low_ns": 0, "unread_words": f"{words}, and the gain may be none."}
    if rule.savings.counted and row.get("counted", True) and _mostly_read(time["groups"], sandbox):
        return {**changed, "is_counted": True}
    if row.get("severity"):
        changed["severity"] = Severity.INFO.value
    return changed


def partly_read_share(sandbox: Sandbox, facts: Facts) -> tuple[float, bool]:
    """Share of the step that is exposed in calls which lack a rank, beyond waits that are known;
    and whether the links take most of all that is exposed in calls for these calls' bytes."""
    (time,) = sandbox.records(_TIME, {"op": None, "of_group": None})
    if not facts.step_ns or not time["rank_steps"]:
        return 0.0, False
    if _all_read(time["groups"] or [], sandbox) and _told_by_the_rest(time, sandbox):
        return 0.0, False
    share = float(time["partly_ns"] / time["rank_steps"] / facts.step_ns)
    return share, bool(time["moved_ns"] > _MOST * time["all_ns"])


def _told_by_the_rest(time: Mapping[str, Any], sandbox: Sandbox) -> bool:
    """Whether so little of the time lacks a rank that the rest tells what all of it is."""
    if time["partly_ns"] <= _MOST_PARTLY * time["all_ns"]:
        return True
    few = time["partly_ns"] <= _MOST_LOST * time["all_ns"]
    return few and _all_read(time["groups"], sandbox)


def _all_read(groups: Sequence[str | None], sandbox: Sandbox) -> bool:
    """Whether every rank of these groups was read: their calls lack single events, or its end."""
    # The first that was not ends the search: a file can name thousands of groups.
    return all(_is_known(group, sandbox) and not _absent([group], sandbox) for group in groups)


def _mostly_read(groups: Sequence[str | None], sandbox: Sandbox) -> bool:
    """Whether most of the ranks of each of these groups were read."""
    shares = [sandbox.records(_READ, {"of_group": group}) for group in groups if group is not None]
    return bool(shares) and all(found and found[0]["share"] > 0.5 for found in shares)


def _is_known(group: str | None, sandbox: Sandbox) -> bool:
    return bool(group is not None and sandbox.records(_KNOWN, {"of_group": group}))


def _missing(groups: Sequence[str | None], sandbox: Sandbox) -> list[dict[str, Any]]:
    known = [group for group in groups if group is not None]
    return [row for group in known for row in sandbox.records(_MISSING, {"of_group": group})]


def _absent(groups: Sequence[str | None], sandbox: Sandbox) -> list[dict[str, Any]]:
    """Those of which no call was read."""
    return [row for row in _missing(groups, sandbox) if row["is_blind"] or not row["is_cut"]]


def _sentence(groups: Sequence[str | None], sandbox: Sandbox) -> str:
    """Who is missing from the calls of ``groups``, and where waiting for them shows."""
    known = [group for group in groups if group is not None]
    rows = _missing(groups, sandbox)
    absent = {int(row["rank"]) for row in rows if not row["is_cut"]}
    blind = {int(row["rank"]) for row in rows if row["is_blind"]}
    cut = {int(row["rank"]) for row in rows if row["is_cut"]} - absent
    if absent:
        who = f"{some_ranks(sorted(absent))} of {'its' if len(known) == 1 else 'their'} group"
        who += "s were" if len(known) > 1 else f" {'were' if len(absent) > 1 else 'was'}"
        why = f"{who[:1].upper()}{who[1:]} not read"
        those = "them" if len(absent) > 1 else "it"
    elif cut and cut <= blind:
        verb, those = ("lack", "them") if len(cut) > 1 else ("lacks", "it")
        why = f"{some_ranks(sorted(cut)).capitalize()} {verb} device events"
    elif cut:
        why, those = f"The recording of {some_ranks(sorted(cut))} is cut", "it"
    else:
        why, those = "These calls were not found on all ranks", "the others"
    return f"{why}: waiting for {those} is in this time"
