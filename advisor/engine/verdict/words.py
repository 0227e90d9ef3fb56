"""A decision in words: title, at most two sentences of why, at most three commands or edits.

The words stand in :mod:`advisor.messages`; what they say is in ``Verdict.values``.
"""

import math
from typing import Any

from advisor.engine import how_to_record
from advisor.engine.causes import MACHINES
from advisor.engine.claims import COVERED
from advisor.engine.sandbox import Sandbox
from advisor.engine.verdict.choice import NOBODYS, SMALL, Decision, hides_more, mostly
from advisor.engine.verdict.facts import LOST, Shares, Situation
from advisor.engine.verdict.grade import ABOUT_FINDINGS, has_no_room, is_explained, severity_of
from advisor.engine.verdict.next_steps import (
    LEAST_STEPS,
    MOST_STEPS,
    larger,
    look_at,
    next_steps,
    of_finding,
    options,
    waits_in_turn,
)
from advisor.findings import Confidence, Finding, Severity, Verdict, VerdictKind
from advisor.messages import DOING, MOST_TITLE, VERDICTS, WHYS, say
from advisor.vocabulary.words import fitted, is_wide

_MOST_NAME = 60  # characters of what a host did
_HIDDEN_HOSTS = 4
# A finding's share is of a step so many times the typical one: it is of the mean step.
_IS_MEAN = 1.02
_ROUNDED = 1.05  # of what is exposed: a high end that is rounded up to two digits is no more
# Reasons whose titles say how much of the step is lost.
_SAYS_SHARES = {
    *("ranks-missing", "ranks-cut", "ranks-alone", "groups-missing", "one-step", "unmarked"),
}
_SAYS_IDLE = {"idle", "no-communication"}


def in_words(decision: Decision, it: Situation, sandbox: Sandbox) -> Verdict:
    """The verdict that readers see, with the values that it rests on."""
    values = _values(decision, it)
    code = _code(decision)
    titles = _titles(code, values, it)
    short = (text for text in titles if len(text) <= MOST_TITLE)
    title = next(short, fitted(titles[-1], MOST_TITLE))
    found = decision.finding
    believed = None if decision.reason == "probe-denies" else found
    if believed is not None:
        beside = []
        if _may_wait(believed, it):
            beside = [*how_to_record.all_ranks(sandbox, missing=True), *larger(believed, it)]
        why, steps = [*believed.because[:1]], of_finding(believed, beside)
        if not any(". " in text for text in why):
            why += _beside(believed, it, values)
            why += [*believed.because[1:], *_cores_beside(believed, it, values)]
    else:
        why, steps = _why(decision, values), next_steps(decision, it, sandbox)
    return Verdict(
        kind=decision.kind,
        reason=decision.reason,
        severity=severity_of(decision, it),
        title=title,
        cause=_cause(decision),
        finding=None if found is None else found.id,
        values=values,
        savings_ns=None if believed is None else believed.savings_ns,
        why=" ".join(why[:2]),
        next_steps=steps[:MOST_STEPS],
    )


def _titles(code: str, values: dict[str, Any], it: Situation) -> list[str]:
    """The title, and shorter ones for names that are long.

    What measures a link stands under NEXT too, interval and possible cause in the list.
    """
    shortest: dict[str, Any] = {"probed": True}
    if values.get("possible"):
        titles = [item.title.rstrip(".") for item in it.findings]
        shortest["possible"] = f"finding {titles.index(values['possible']) + 1}"
    shorter = ({"brief": False}, {"brief": True}, {"brief": True} | shortest)
    return [say(VERDICTS, code, values | one) for one in shorter]


def _code(decision: Decision) -> str:
    if decision.kind in ABOUT_FINDINGS:
        assert decision.finding is not None
        return decision.kind.value if decision.finding.savings_ns else "no-gain"
    return decision.reason


def _cause(decision: Decision) -> str:
    if decision.finding is not None and decision.reason != "probe-denies":
        return decision.finding.rule
    if decision.kind is VerdictKind.HEALTHY:
        return "healthy"
    return "benchmark" if decision.reason == "benchmark" else "unknown"


def _values(decision: Decision, it: Situation) -> dict[str, Any]:
    """Numbers and names that the words are made of."""
    facts = it.facts
    values: dict[str, Any] = {
        "step_ns": facts.step_ns,
        "whole_trace": facts.whole_trace,
        "is_mean": False,
        **facts.words(),
        "steps": facts.steps,
        "noise_ns": facts.noise_ns if facts.steps > 1 else None,
        "ranks_read": facts.ranks_read,
        "world_size": facts.world_size,
        **(it.shares._asdict() if it.shares is not None else {}),
    }
    if decision.reason == "exposed" and facts.steps < LEAST_STEPS:
        values["missing_steps"] = LEAST_STEPS - facts.steps
    if values.get("activations", 0) < SMALL:
        values.pop("activations", None)
    if it.shares is not None:
        more = it.shares.idle > it.shares.exposed and it.shares.idle >= LOST
        values |= {
            "idles_more": more,
            "says_exposed": facts.world_size == 1
            or decision.reason in _SAYS_SHARES | _SAYS_IDLE | {"healthy", "exposed"},
            "says_idle": decision.reason in _SAYS_IDLE
            or (more and decision.reason in _SAYS_SHARES),
        }
    if (found := decision.finding) is not None:
        of_ns = (found.savings_ns or 0) / (found.savings_share or math.inf)
        if of_ns > _IS_MEAN * it.step_ns:
            values |= {"step_ns": round(of_ns), "is_mean": True}
        values |= {
            "cause": found.title.rstrip("."),
            "rule": found.rule,
            "probability": found.probability,
            "gain_low_ns": found.savings_low_ns,
            "gain_ns": found.savings_ns,
            "gain_high_ns": found.savings_high_ns,
            "share": found.savings_share or (0.0 if it.step_ns else None),
            "is_wide": is_wide(found.savings_low_ns, found.savings_high_ns),
            "of_link": bool(found.links) or found.rule == "slow-ring-link",
            "probed": bool(found.evidence.facts.get("probe")),
            "probe_names": found.evidence.facts.get("probe_names"),
        }
        values |= {
            k: v
            for k in ("few_calls", "mostly", "long_messages")
            if (v := found.evidence.facts.get(k))
        }
    elif decision.kind in (VerdictKind.LOSSY, VerdictKind.HEALTHY):
        option, waits = next(iter(options(it)), None), waits_in_turn(it)
        if waits is not None and (mostly_of := waits.evidence.facts.get("mostly")):
            values["mostly"] = mostly_of
        values |= {"most_exposed": it.most_exposed,
                   "option": option.title if option else None,
                   "option_ns": option.most_ns() if option else None,
                   "possible": possible_cause(decision, it),
                   "in_turn": waits is not None,
                   "no_room": has_no_room(it),
                   "explained": is_explained(decision, it)}  # fmt: skip
        if it.shares is not None and it.shares.wait_known:
            values["beside"] = it.shares.beside(it.most_exposed)
        if decision.kind is VerdictKind.HEALTHY and (look := look_at(it)) is not None:
            values |= {"look": look.title.rstrip("."), "look_because": look.because[:1]}
    if facts.world_size == 1 and "look" not in values:
        # A device that works alone: what it computes is all that there is to say.
        bound = (item for item in it.findings if item.rule == "compute-bound")
        values["look_because"] = [text for item in bound for text in item.because[:1]]
    return values | _reason_values(decision, it)


def _beside(found: Finding, it: Situation, values: dict[str, Any]) -> list[str]:
    """What else is lost beside a finding, and why it may give more than there is to see."""
    if _cores_beside(found, it, values) or it.shares is None or not found.savings_ns:
        return []
    return _idle_beside(found, it, values) or _communication_beside(found, it, it.shares, values)


def _cores_beside(found: Finding, it: Situation, values: dict[str, Any]) -> list[str]:
    """What others take of the machine: where the cause leaves room, as the list says it too."""
    warned = (item for item in it.findings if item.severity is not Severity.INFO)
    held = next((item for item in warned if item.rule in MACHINES and item is not found), None)
    if held is None:
        return []
    return [say(WHYS, "beside-cores", values | {"held_ns": held.savings_ns})]


def _communication_beside(
    found: Finding, it: Situation, shares: Shares, values: dict[str, Any]
) -> list[str]:
    """Of communication that missing ranks may explain, and of a gain beyond what is exposed."""
    if found.savings_low_ns == 0 and (it.cut_ranks or it.missing_ranks):
        return [say(WHYS, "unread", {"cut": it.cut_ranks, "missing": it.missing_ranks})]
    if _may_wait(found, it):
        return [say(WHYS, "beside-missing", values | {"exposed": _left_exposed(found, it)})]
    exposed_ns = shares.exposed * it.step_ns
    beyond = mostly(found, "transfer") and not it.facts.whole_trace
    # A replay knows what else moves; a model does not.
    beyond = beyond and found.confidence is Confidence.REPLAYED
    if beyond and (found.savings_high_ns or 0) > _ROUNDED * exposed_ns:
        return [say(WHYS, "beyond", values)]
    return []


def _may_wait(found: Finding, it: Situation) -> bool:
    """Whether beside what a finding explains, missing ranks may explain a loss by itself."""
    if it.shares is None or it.shares.wait_known or it.facts.all_ranks:
        return False
    return _left_exposed(found, it) >= LOST


def _left_exposed(found: Finding, it: Situation) -> float:
    """What is exposed beside a finding, as a share of the step: all where it is of idle time."""
    gain = 0.0 if mostly(found, "idle") else (found.savings_ns or 0) / max(it.step_ns, 1)
    return it.shares.exposed - gain if it.shares is not None else 0.0


def _idle_beside(found: Finding, it: Situation, values: dict[str, Any]) -> list[str]:
    """Of idle time that no finding is about, where it is more than what this one may give."""
    idle_ns = it.shares.idle * it.step_ns if it.shares is not None else 0.0
    claimed = (item.claims.get(kind, 0) for item in it.findings for kind in ("idle", "queued"))
    left_ns = idle_ns - max(sum(claimed), (found.savings_ns or 0) * mostly(found, "idle"))
    if not found.savings_ns or left_ns < LOST * it.step_ns or left_ns <= found.most_ns():
        return []
    said = _reason_values(Decision(VerdictKind.LOSSY, "idle"), it)
    # What hosts do longer than is left, a finding is about.
    said["host_explains"] &= left_ns <= 2 * said["idling_ns"] <= 2 * left_ns
    return [say(WHYS, "beside", values | said | {"idle": left_ns / it.step_ns})]


def possible_cause(decision: Decision, it: Situation) -> str | None:
    """What leads the list of a loss without a likely cause, and may be one: not the loss itself.

    Else an option whose transfers may be most of what is exposed.
    """
    if decision.reason != "exposed" or it.shares is None:
        return None
    others = [item for item in it.findings if item.rule not in NOBODYS and not hides_more(it, item)]
    exposed_ns = it.shares.exposed * it.step_ns
    first = [item for item in others[:1] if item.severity is not Severity.INFO]
    whole = [item for item in others if item.is_option() and mostly(item, "transfer")
             and 0 < COVERED * exposed_ns <= item.most_ns()]  # fmt: skip
    found = next(iter(first + whole), None)
    return None if found is None else found.title.rstrip(".")


def host_explains(it: Situation) -> bool:
    """Whether most of what the devices idle is of one thing that the hosts do, and words name."""
    idle_ns = it.shares.idle * it.step_ns if it.shares is not None else 0.0
    return it.idling.get("kind") in DOING and 2 * it.idling.get("idle_ns", 0) >= idle_ns > 0


def _reason_values(decision: Decision, it: Situation) -> dict[str, Any]:
    """What one reason's words need beside the step."""
    match decision.reason:
        case "idle" | "captured":
            return {
                "host_explains": host_explains(it),
                "idling_kind": it.idling.get("kind"),
                "idling_ns": it.idling.get("idle_ns", 0),
                "idling_name": fitted(str(it.idling.get("name") or ""), _MOST_NAME),
                "doing": DOING,
                "leading_ns": it.leading_ns,
            }
        case "before":
            return {"before_ns": it.before_ns}
        case "ranks-cut":
            return {"cut": list(it.cut_ranks)}
        case "ranks-alone":
            return {"alone": list(it.alone_ranks), "blind": it.only_blind}
        case "ranks-missing":
            return {"missing": list(it.missing_ranks), "blind": it.only_blind}
        case "nothing-recorded":
            everywhere = len(it.empty_ranks) == it.facts.ranks_read
            return {"empty": [] if everywhere else list(it.empty_ranks)}
        case "never-met":
            return {"strangers": list(it.strangers)}
        case "no-device":
            return {"recorded": dict(it.instead), "device_used": it.device_used}
        case "no-communication":
            unknown = it.coverage if it.coverage and it.coverage.may_hide() else None
            said = unknown._asdict() if unknown else {}
            return {"lacks_kernels": it.lacks_kernels, "leading_ns": it.leading_ns, **said}
        case "unrecognised":
            return it.coverage._asdict() if it.coverage is not None else {}
        case "clocks":
            assert it.clocks is not None
            return {**it.clocks._asdict(), "hosts": list(it.clocks.hosts)[:_HIDDEN_HOSTS]}
        case "benchmark":
            assert it.benchmark is not None
            return it.benchmark._asdict()
        case "no-work" | "no-trace":
            counted = {"events": it.events, "ranks": it.traced_ranks, "findings": len(it.findings)}
            return {**counted, "losses": list(it.losses)[:2]}
        case "damaged":
            return {"lost": it.lost, "losses": list(it.losses)[:2]}
        case "no-complete-step":
            return {"losses": list(it.losses)[:2]}
    return {}


def _why(decision: Decision, values: dict[str, Any]) -> list[str]:
    # Shares of a step say nothing across two runs, nor where no device was recorded.
    has_shares = "exposed" in values and decision.reason not in {
        "never-met",
        "no-device",
        "damaged",
    }
    said = [say(WHYS, "step", values)] if has_shares else []
    if decision.reason in WHYS:
        said.append(say(WHYS, decision.reason, values))
    elif said:
        by_activations = decision.kind is VerdictKind.HEALTHY and "activations" in values
        words = say(WHYS, "activations" if by_activations else "noise", values)
        said += values.get("look_because") or [words]
    return [text for text in said if text]
