"""What to do next, by a decision: at most three commands or edits.

The words stand in :mod:`advisor.messages` and in the rules' fixes.
"""

from collections.abc import Sequence
from typing import Any

from advisor.engine import how_to_record
from advisor.engine.causes import expected_ns
from advisor.engine.sandbox import Sandbox
from advisor.engine.verdict.choice import NOBODYS, SMALL, UNCOUNTED, Decision, mostly, unsized_ns
from advisor.engine.verdict.facts import LOST, Situation
from advisor.findings import Finding, Severity
from advisor.messages import STEPS, say
from advisor.vocabulary.words import estimate

MOST_STEPS = 3
LEAST_STEPS = 4  # with fewer, who is late is not told from who happened to be (straggler-rank)
_UNHELD = """
SELECT 1 FROM bench_curve WHERE tool = 'inspector' AND limit_gbps IS NULL AND largest_bytes >= 64e6
  AND NOT EXISTS (SELECT 1 FROM topology WHERE kind = 'machine') LIMIT 1
"""
"""The Inspector's records that no data sheet is held against."""
_STARTS = {"loading", "start", "allocator"}
_OF_KIND = {
    "data-loading": "data-loader-stall",
    "allocator": "allocator-retries",
    "synchronisation": "blocking-sync",
    "blocking-copy": "blocking-sync",
    "unused-parameter-scan": "unused-parameter-scan",
    "pause": "pause-in-every-step",
}
"""The rule that tells of what a host does while a device idles."""


def next_steps(decision: Decision, it: Situation, sandbox: Sandbox) -> list[str]:
    match decision.reason:
        case "ranks-missing" | "ranks-cut" | "ranks-alone":
            missing = decision.reason != "ranks-cut"
            if missing and it.only_blind:
                return [_of_device(sandbox), *_tries(it)]
            record = how_to_record.all_ranks(sandbox, missing=missing)
            # Of what a device idles the other ranks tell nothing: its cause is mended first.
            tries = _tries(it)
            before = 1 if _is_idle_most(it) else 0
            return [*tries[:before], *record, *tries[before:]]
        case "no-trace" if sandbox.records(_UNHELD):
            return [say(STEPS, "inspected", {}), *how_to_record.all_ranks(sandbox)]
        case "no-work" | "nothing-recorded" | "no-trace" | "damaged":
            return how_to_record.all_ranks(sandbox)
        case "unrecognised":
            if not it.facts.all_ranks:
                return how_to_record.all_ranks(sandbox)
            return [say(STEPS, "unknown-kernels", {})]
        case "no-communication":
            idles = it.shares is not None and it.shares.idle >= LOST
            host = [_of_host(it)] if idles else []
            if it.coverage is not None and (it.coverage.may_hide() or it.facts.all_ranks):
                host.insert(0, say(STEPS, "unknown-kernels", {}))
            if it.facts.steps < 2:
                return [*how_to_record.more_steps(sandbox), *host]
            if it.facts.all_ranks and host:
                return host
            return [*host, *how_to_record.all_ranks(sandbox)]
        case "never-met":
            return [say(STEPS, "one-run", {})]
        case "no-device":
            alone = sandbox.holds("facts", "(SELECT bool_and(alone) FROM rank_content)", {})
            return [_of_device(sandbox), *([] if alone else how_to_record.all_ranks(sandbox))]
        case "groups-missing":
            return how_to_record.groups(sandbox)
        case "one-step" | "no-complete-step" | "unmarked" | "before":
            return [*how_to_record.more_steps(sandbox), *_tries(it)]
        case "clocks":
            few = it.clocks is not None and len(it.clocks.hosts) <= 2
            steps = ["third-host" if few else "probe", "with-probe", "clocks"]
            return [say(STEPS, step, {}) for step in steps]
        case "exposed":
            if unsized_ns(it) >= LOST * it.step_ns:
                return [say(STEPS, "sizes", {}), *_tries(it)]
            if it.facts.steps < LEAST_STEPS:
                return [*_tries(it), *how_to_record.more_steps(sandbox)]
            if (waits := waits_in_turn(it)) is not None:
                return [*_tries(it), *waits.fix]
            return [*_tries(it), say(STEPS, "sweep", {})]
        case "idle":
            # Whether each step begins like the only one, more steps show.
            first = how_to_record.more_steps(sandbox) if it.leading_ns else []
            return [*first, _of_host(it), *_tries(it)]
        case "captured":
            return [say(STEPS, "replay", {})]
        case "probe-denies":
            assert decision.finding is not None
            return of_finding(decision.finding)
        case "benchmark":
            assert it.benchmark is not None
            table = it.benchmark
            lacks = table.lacks_ranks, table.lacks_hardware, table.lacks_hosts
            asked = zip(("ranks", "hardware", "rank-list"), lacks, strict=True)
            ran_on = {"device": table.printed, "across": table.across}
            ask = [say(STEPS, what, ran_on) for what, is_missing in asked if is_missing]
            return [*ask, say(STEPS, "with-traces", {})]
        case "healthy":
            look = look_at(it)
            if look is None or look in options(it)[:2]:
                return _tries(it)
            return [*_tries(it), *look.fix[:1]]
    return _tries(it)


def _is_idle_most(it: Situation) -> bool:
    """Whether devices idle longer than is exposed, and a likely cause is about that."""
    best = next(iter(options(it)), None)
    if best is None or best.is_option() or it.shares is None:
        return False
    return it.shares.idle > it.shares.exposed and mostly(best, "idle")


def _of_host(it: Situation) -> str:
    """What to read of the host's part in the idle time; a start does not measure what follows."""
    kind = it.idling.get("kind")
    if it.facts.steps < 2 and kind in _STARTS and it.idling["idle_ns"] >= LOST * it.step_ns:
        return say(STEPS, "after-start", {"is_torch": it.facts.is_torch})
    if kind == "paging":
        return say(STEPS, "paging", {})
    named = kind == "pause" and it.idling.get("name") is not None
    return say(STEPS, "host", {"rule": _OF_KIND.get(str(kind), "launch-bound"), "named": named})


def _of_device(sandbox: Sandbox) -> str:
    """Who records the runtime records the device too: its events were lost, not left out."""
    launched = "SELECT 1 FROM rank_content SEMI JOIN without_device USING (rank) WHERE launches > 0"
    return say(STEPS, "device-lost" if sandbox.records(launched) else "device", {})


def of_finding(found: Finding, record: Sequence[str] = ()) -> list[str]:
    """Its fixes, how to ``record`` what is missing beside it, and the proof."""
    proof = [say(STEPS, "proof", {"verify": found.verify})] if found.verify else []
    fixes = found.fix[: max(1, MOST_STEPS - len(record) - len(proof))]
    return [*fixes, *record, *proof][:MOST_STEPS]


def larger(found: Finding, it: Situation) -> list[str]:
    """How to try what is likely and expected to give more than a sure cause that leads."""
    likely = (item for item in options(it) if not item.is_option() and item.fix)
    more = (item for item in likely if expected_ns(item) > expected_ns(found))
    return [say(STEPS, "try", _try(item, it)) for item in more][:1]


def _tries(it: Situation) -> list[str]:
    """How to try what may give something and may give nothing."""
    return [say(STEPS, "try", _try(item, it)) for item in options(it) if item.fix][:2]


def _try(item: Finding, it: Situation) -> dict[str, Any]:
    """What the words on a finding that may give something are made of; an option has no gain that
    is sure."""
    ends = (item.savings_low_ns, item.savings_high_ns)
    return {
        "probability": None if item.is_option() else item.probability,
        "per_step": it.facts.words()["per_step"],
        "cause": item.title.rstrip("."),
        "gain": estimate(item.savings_ns or 0, *ends),
        "gain_ns": item.most_ns(),
        "fix": item.fix[0],
    }


def options(it: Situation) -> Sequence[Finding]:
    """Findings that may be worth a try where the verdict is about none: likely ones first, of these
    those that give most.

    Options, and causes that are likely and yet not what the step is lost to.
    """
    least = SMALL * it.step_ns
    worth = [
        item
        for item in it.findings
        if (item.is_option() or (item.severity is not Severity.INFO and item.rule not in NOBODYS))
        and it.step_ns
        and (item.savings_ns or 0) >= least
    ]
    return sorted(worth, key=lambda item: (item.is_option(), -item.most_ns()))


def look_at(it: Situation) -> Finding | None:
    """What may cost much, how much no recording tells."""
    uncounted = (
        item
        for item in it.findings
        if item.rule in UNCOUNTED or item.evidence.facts.get("only_there")
    )
    return next((item for item in uncounted if item.savings_ns is None or item.is_option()), None)


def waits_in_turn(it: Situation) -> Finding | None:
    """Waiting with nobody behind it that is most of what is exposed, and too little to lead."""
    exposed_ns = it.shares.exposed * it.step_ns if it.shares is not None else 0.0
    return next(
        (
            item
            for item in it.findings
            if item.rule == "jitter" and exposed_ns and 2 * (item.savings_ns or 0) >= exposed_ns
        ),
        None,
    )
