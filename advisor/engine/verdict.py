"""The sentence a reader sees first: the one cause that matters most, or that there is none."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.engine.benchmark import of_benchmark
from advisor.engine.clock_doubt import clock_doubt, doubt_first, with_doubt
from advisor.engine.evaluate import WARNING_SHARE
from advisor.engine.facts import Facts
from advisor.engine.no_work import without_work
from advisor.engine.recorded import not_recorded
from advisor.engine.recording import all_ranks, groups, more_steps
from advisor.engine.sandbox import Sandbox
from advisor.engine.suspicion import (
    WORTH_A_TRY,
    in_words,
    options,
    suspected,
    waits_for_nobody,
)
from advisor.engine.unread import partly_read_share, seen_without
from advisor.engine.unseen import as_far_as_seen
from advisor.findings import Finding, Note, Outcome, OutcomeKind, Severity, Verdict
from advisor.vocabulary.words import duration, lower_first, percent, ranks_text

# A device idle for half of the step has a problem, though not one of communication.
_MOSTLY_IDLE = 0.5
_SMALL_PART = 0.01
# Mean and typical step differ by this share: a share of the one is no share of the other.
_MEAN_DIFFERS = 0.02
_FEW_EVENTS = 100  # per step and rank; a real step holds thousands
_OPEN_SHARE = 0.10  # what a hidden link may cost is the first thing to say from here on
_HEALTHY_STEPS = 2  # one step alone is no ground to call a run healthy that waits


def verdict_of(
    findings: Sequence[Finding],
    outcomes: Sequence[Outcome],
    sandbox: Sandbox,
    facts: Facts,
    notes: Sequence[Note] = (),
) -> Verdict:
    """The worst finding at warning or above; else healthy, or what is missing to tell.

    ``notes`` are what the readers say of their files.
    """
    top = next((item for item in findings if item.severity != Severity.INFO), None)
    where = _where_time_goes(sandbox, facts)
    if top is not None:
        return _blame(top) if where is None else _beside(top, findings, sandbox, facts)
    if where is None:
        return _unknown_without_steps(findings, outcomes, sandbox, notes)
    exposed_share, idle_share, wait_known, numbers = where
    blind = not_recorded(sandbox, facts, idle_share, numbers, notes)
    if blind is not None:
        return blind
    told, cut = _ranks_told(sandbox) if exposed_share >= WARNING_SHARE else (0, "")
    untold = not (wait_known or facts.all_ranks)
    untold = untold or partly_read_share(sandbox, facts) >= WARNING_SHARE
    if exposed_share >= WARNING_SHARE and (cut or untold):
        world = f" of {facts.world_size}" if facts.world_size else ""
        seen, tries = seen_without(findings, WARNING_SHARE)
        return Verdict(
            title=f"{percent(exposed_share)} of the step is exposed communication"
            f"{_as_far_as_told(sandbox, facts)}; {told}{world} ranks cannot tell "
            f"whether it waits for a late rank or for the network.{seen}",
            cause="unknown",
            why=f"{cut} {numbers}".lstrip(),
            next_steps=[all_ranks(sandbox), *tries],
        )
    if exposed_share >= WARNING_SHARE and sandbox.records(
        "SELECT 1 AS one FROM collective WHERE starts_with(process_group, 'not recorded') LIMIT 1"
    ):
        return Verdict(
            title=f"{percent(exposed_share)} of the step is exposed communication; "
            "which process group a call belongs to is not recorded, so that ranks cannot be "
            "compared.",
            cause="unknown",
            why=numbers,
            next_steps=[groups(sandbox)],
        )
    if facts.steps < _HEALTHY_STEPS and exposed_share >= WARNING_SHARE:
        return Verdict(
            title=f"{percent(exposed_share)} of the step is exposed communication; "
            f"{_suspicion(findings)}one recorded step is too little to say what it loses "
            "every time.",
            cause="unknown",
            why=numbers,
            next_steps=[more_steps(sandbox)],
        )
    if idle_share >= _MOSTLY_IDLE:
        return Verdict(
            title=f"The device idles for {percent(idle_share)} of the step, and communication is "
            f"not why: {percent(exposed_share)} of the step is exposed.",
            cause="unknown",
            why=numbers,
            next_steps=[
                "see what the host does in that time: advisor explain launch-bound, "
                "advisor explain data-loader-stall",
                *([more_steps(sandbox)] if facts.steps < 5 else []),
            ],
        )
    waits = waits_for_nobody(findings)
    others = [item for item in findings if item is not waits]
    unsure = suspected(others, sandbox, facts, numbers)
    doubt = clock_doubt(findings, sandbox, facts, numbers, WARNING_SHARE)
    if unsure is not None:
        return unsure if doubt is None else with_doubt(unsure, doubt)
    if doubt is not None and doubt.share >= _OPEN_SHARE:
        return doubt.verdict
    exposed = f"{percent(exposed_share)} of the step is exposed"
    most, tries = options(others, facts)
    small = any(item.savings_ns for item in others)
    beside = ""
    if waits is not None:
        beside = f"; {in_words(waits, facts)}"
        tries = [*tries, *(f"if the machine had no other job: {fix}" for fix in waits.fix[:1])]
    if most:
        limit = f"{duration(most)} of every {duration(facts.step_ns or 0)}"
        title = f"No sure gain in communication: {exposed}; what is listed to try may "
        title += f"give up to {limit}, or hardly any{beside}."
    elif small:
        title = f"Hardly anything to gain in communication: {exposed}, and what could be changed "
        title += f"gives less than {percent(WORTH_A_TRY)} of the step{beside}."
    elif waits is not None:
        title = f"Nothing to gain in communication settings: {exposed}{beside}."
    elif exposed_share < WARNING_SHARE:
        title = f"Nothing to gain in communication: {exposed}."
    else:
        title = (
            f"Nothing to gain in communication that this recording shows: {exposed}, and no rule "
            "finds a cause that a change would remove."
        )
    if doubt is not None:
        title = f"{title.removesuffix('.')}; a slow link that clocks hide is not excluded."
    plain = Verdict(title=title, cause="healthy", savings_ns=0, why=numbers, next_steps=tries)
    plain = as_far_as_seen(plain, sandbox, facts)
    return plain if doubt is None else with_doubt(plain, doubt)


def _beside(top: Finding, findings: Sequence[Finding], sandbox: Sandbox, facts: Facts) -> Verdict:
    """The worst finding, and the link that clocks may hide where more is exposed than it gives.

    That link comes first where it may cost more than the finding and all that the finding gives.
    """
    blame = _blame(top)
    if any(item.rule == "slow-ring-link" for item in findings):
        return blame
    least = max(WARNING_SHARE, top.savings_share or 0.0)
    doubt = clock_doubt(findings, sandbox, facts, "", least)
    if doubt is None:
        return blame
    # What the finding gives may be in the same calls: the doubt is about what is left of them.
    left_ns = doubt.hidden_ns - max(top.savings_ns or 0, top.savings_high_ns or 0)
    if left_ns >= max(_OPEN_SHARE * (facts.step_ns or 0), top.savings_ns or 0):
        return doubt_first(doubt, blame)
    return with_doubt(blame, doubt)


def _few_events(sandbox: Sandbox, facts: Facts) -> int:
    """How many events were read where they are too few for exact shares of the step; else 0."""
    (read,) = sandbox.records("SELECT coalesce(sum(events_read), 0) AS events FROM rank")
    events = int(read["events"])
    return events if events < _FEW_EVENTS * facts.steps * facts.ranks_read else 0


def _ranks_told(sandbox: Sandbox) -> tuple[int, str]:
    """How many ranks count in the steps, and which were read but cut too short for that."""
    whole = {row["rank"] for row in sandbox.records("SELECT rank FROM whole_rank")}
    read = [row["rank"] for row in sandbox.records("SELECT rank FROM rank ORDER BY rank")]
    if not whole or whole.issuperset(read):
        return len(read), ""
    lost = ranks_text([rank for rank in read if rank not in whole])
    return len(whole), f"The recording of rank {lost} is cut too short to count."


def _as_far_as_told(sandbox: Sandbox, facts: Facts) -> str:
    """The doubt that belongs beside a share of the step; '' where the recording is ample."""
    doubts = []
    if events := _few_events(sandbox, facts):
        doubts.append(f"only {events} events")
    if facts.steps == 1:
        doubts.append("one step")
    return f", as far as {' of '.join(doubts)} can tell" if doubts else ""


def _suspicion(findings: Sequence[Finding]) -> str:
    """The finding that explains the exposed communication, though not for sure."""
    for item in findings:
        if any(effect.startswith("exposed-communication") for effect in item.merged):
            return f"{lower_first(item.title.rstrip('.'))}, but "
    return ""


def _blame(top: Finding) -> Verdict:
    amount = f": {_recoverable(top)} can be recovered" if top.savings_ns else ""
    title = top.title.rstrip(".")
    return Verdict(
        title=f"{title}{amount}.",
        cause=top.rule,
        savings_ns=top.savings_ns,
        why=top.message,
        next_steps=[*top.fix[:2], *([f"prove it: {top.verify}"] if top.verify else [])],
    )


def _recoverable(top: Finding) -> str:
    """'about 12 ms of every step (6 %)', or both ends where one number would promise too much."""
    gain, share = top.savings_ns or 0, top.savings_share
    if (at_most := top.at_most_ns()) is not None:
        of_step = f" (up to {percent(share * at_most / gain)})" if share is not None else ""
        return f"up to {duration(at_most)} of every step{of_step}"
    ends = top.gain_range_ns()
    if ends is None:
        of_step = f" ({percent(share)})" if share is not None else ""
        return f"about {duration(gain)} of every step{of_step}"
    low, most = ends
    shares = ""
    if share is not None:
        shares = f" ({percent(share * low / gain)} to {percent(share * most / gain)})"
    return f"{duration(low)} to {duration(most)} of every step{shares}"


def _unknown_without_steps(
    findings: Sequence[Finding],
    outcomes: Sequence[Outcome],
    sandbox: Sandbox,
    notes: Sequence[Note],
) -> Verdict:
    broken = sum(outcome.outcome == OutcomeKind.ERROR for outcome in outcomes)
    traced = sandbox.records("SELECT count(*) AS steps FROM step")[0]["steps"]
    if traced:
        title = "No complete step was found, so nothing can be said per step."
        step = more_steps(sandbox)
    else:
        benchmark = of_benchmark(sandbox)
        if benchmark is not None:
            return benchmark
        if (unknown := without_work(sandbox)) is not None and not findings:
            return unknown
        seen = f" ({len(findings)} to look at)" if findings else ""
        title = f"Logs and dumps alone show no urgent finding{seen}; no trace was given."
        step = "add traces of all ranks: advisor explain all-ranks"
    why = (
        f"{broken} rules failed."
        if broken
        else "".join(f"{note.text}. " for note in notes[:2]).strip()
    )
    return Verdict(title=title, cause="unknown", why=why, next_steps=[step])


def _where_time_goes(sandbox: Sandbox, facts: Facts) -> tuple[float, float, bool, str] | None:
    """Shares of exposed communication and idle, whether waiting is known, the numbers in words."""
    if not facts.steps or not facts.step_ns:
        return None
    (row,) = sandbox.records(
        "SELECT avg(window_ns)::DOUBLE AS mean_ns, "
        "sum(exposed_comm_ns)::DOUBLE / sum(window_ns) AS exposed, "
        "sum(compute_ns)::DOUBLE / sum(window_ns) AS compute, "
        "sum(idle_ns)::DOUBLE / sum(window_ns) AS idle, "
        "sum(hidden_comm_ns)::DOUBLE / nullif(sum(comm_ns), 0) AS overlap, "
        "coalesce(bool_and(exposed_wait_ns IS NOT NULL), false) AS wait_known FROM rank_step"
    )
    if row["exposed"] is None:
        return None
    overlap = f", {percent(row['overlap'])} of communication hidden" if row["overlap"] else ""
    noise = ""
    if facts.noise_ns is not None and facts.steps > 1:
        # One step shows no scatter: the floor that rules use there is assumed, not measured.
        noise = f"; differences under {duration(facts.noise_ns)} are noise"
    rest = 1.0 - row["exposed"] - row["compute"] - row["idle"]
    copies = f", memory copies and other work {percent(rest)}" if rest >= _SMALL_PART else ""
    events = _few_events(sandbox, facts)
    little = (
        f" All of this rests on {events} recorded events: too little for exact shares."
        if events
        else ""
    )
    of = ""
    if abs(row["mean_ns"] - facts.step_ns) > _MEAN_DIFFERS * facts.step_ns:
        # Times per step are means over steps; beside the median one, their shares would differ.
        of = f", {duration(row['mean_ns'])} in the mean, of which"
    numbers = (
        f"A step takes {duration(facts.step_ns)}{of}: compute {percent(row['compute'])}, exposed "
        f"communication {percent(row['exposed'])}, idle {percent(row['idle'])}{copies}{overlap} "
        f"({facts.steps} step{'s' if facts.steps != 1 else ''}{noise}).{little}"
    )
    return float(row["exposed"]), float(row["idle"]), bool(row["wait_known"]), numbers
