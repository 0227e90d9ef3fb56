"""Every replayed change of a run as all views name it: one name, one gain, one interval."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.findings import Finding
from advisor.messages import CHANGES, GAINS, WHATIF, say
from advisor.report.tables import Row, group_names, late_together, rows
from advisor.store.store import Store
from advisor.vocabulary.words import about, named_ranks, span

_SAME = 0.01  # of a gain: a finding that rests on this very replay

LEAST = 0.01  # of the step: less is no gain to speak of
GIVES = ("saves", "may-save")
_OF_CALLS = {"without-calls", "gradient-sync", "gradient-bits"}


@dataclass(frozen=True)
class Replayed:
    """A change, the step under it and what it gives, ns per step, with 90 % intervals.

    ``replayed_ns``: the unchanged step, replayed. ``inconclusive``: the step depends on what the
    recording does not tell; ``extrapolates``: on sizes that it does not hold;
    ``finding``: the id of the one whose gain it gives; ``only_between``: what it gives is known as
    an interval alone.
    """

    name: str
    setting: str
    step_ns: float
    step_low_ns: float
    step_high_ns: float
    measured_ns: float
    replayed_ns: float
    gain_low_ns: float
    gain_high_ns: float
    extrapolates: bool = False
    inconclusive: bool = False
    finding: str = ""
    only_between: bool = False

    @property
    def gain_ns(self) -> float:
        """Time per step that the change gives back (negative: it costs)."""
        return self.measured_ns - self.step_ns

    @property
    def kind(self) -> str:
        """``saves``, ``may-save``, ``costs`` or ``nothing`` (:func:`gain_kind`), or ``unknown``."""
        if self.inconclusive and self.step_low_ns <= self.measured_ns <= self.step_high_ns:
            return "unknown"
        return gain_kind(*self._gain(), LEAST * self.measured_ns)

    @property
    def gain(self) -> str:
        """What it gives in words."""
        text = say(WHATIF, "unknown", {}) if self.kind == "unknown" else self._words()
        return f"{text}; {say(WHATIF, 'extrapolated', {})}" if self.extrapolates else text

    @property
    def step(self) -> str:
        """The step under it, '148 ms (99–280 ms)'."""
        # What saves is rounded to no longer step than now.
        most = self.measured_ns if self.step_high_ns <= self.measured_ns else math.inf
        ends = span(self.step_low_ns, self.step_high_ns, most)
        return ends if self.only_between else f"{about(self.step_ns)} ({ends})"

    def behind(self, findings: Sequence[Finding]) -> Finding | None:
        """The finding whose gain this change gives: its code makes it, or it rests on this replay.

        Not of what delays a rank: that says itself what mending it gives.
        """
        own = next((item for item in findings if sets(item, self.name)), None)
        return own or next((item for item in findings if _rests_on(item, self.gain_ns)), None)

    def as_found(self, findings: Sequence[Finding]) -> "Replayed":
        """With the gain of the finding behind it: a cause has one, and no other value of a setting
        gives more than the one that a finding advises.
        """
        low, middle, high = self._gain()
        own = self.behind(findings)
        other = next((item for item in findings if sets(item, f"{self.setting}=")), None)
        if own is not None:
            low, middle, high = ends_ns(own)
        elif other is not None and middle > 0:
            low, middle, high = map(min, self._gain(), ends_ns(other))
        now = self.measured_ns
        same = replace(self, finding=own.id if own else "",
                       only_between=own is not None and own.is_of_unknown_cost())  # fmt: skip
        if (low, middle, high) == self._gain():
            return same
        return replace(same, gain_low_ns=low, gain_high_ns=high, step_ns=now - middle,
                       step_low_ns=now - high, step_high_ns=now - low)  # fmt: skip

    def _gain(self) -> tuple[float, float, float]:
        return self.gain_low_ns, self.gain_ns, self.gain_high_ns

    def _words(self) -> str:
        now = self.measured_ns
        return gain_words(*self._gain(), LEAST * now, self.only_between, now)


def replayed(store: Store, run: str, findings: Sequence[Finding]) -> list[Replayed]:
    """What was replayed of a run as it was read, the largest gain first.

    Of changes that give time only those that a finding asks for, one for each: what else a replay
    gives is part of another cause, or not worth a finding. What gives nothing, or costs, is left.
    """
    # A rank stands for its host where that is late as a whole.
    hosts = {("without-lateness", str(rank)): own
             for rank, own in late_together(store, run).items()}  # fmt: skip
    groups = group_names(store, run)
    changes = [
        _of(row, hosts.get((row["setting"], row["value"])), groups).as_found(findings)
        for row in rows(store, "SELECT * FROM whatif WHERE run = ?", [run])
        if row["measured_step_ns"] and not row["is_current"]
    ]
    changes.sort(key=lambda it: (it.extrapolates, -it.gain_low_ns, it.step_ns))
    listed: dict[str, Replayed] = {}
    for it in changes:
        if it.kind in GIVES and it.finding:
            best = listed.get(it.finding, it)
            # What a finding's code sets is the name under which it is known.
            asked = "=" in it.name and "=" not in best.name
            listed[it.finding] = it if asked else best
    return [*listed.values(), *(it for it in changes if it.kind not in GIVES)]


def lines(changes: Sequence[Replayed]) -> list[tuple[str, str, str]]:
    """(change, what it gives, the step under it) of each that gives time; the values of a setting
    that give nothing, and those that cost, together."""
    found = [(it.name, it.gain, it.step) for it in changes if it.kind in GIVES]
    others: dict[tuple[str, str], list[Replayed]] = {}
    for it in changes:
        if it.kind not in GIVES:
            name, equals, _ = it.name.partition("=")
            others.setdefault((name + equals, it.kind), []).append(it)
    for (name, kind), own in others.items():
        if len(own) == 1:
            found.append((own[0].name, own[0].gain, own[0].step))
            continue
        values = sorted((it.name.removeprefix(name) for it in own), key=_as_number)
        low, high = min(it.step_ns for it in own), max(it.step_ns for it in own)
        now = own[0].measured_ns
        gain = say(GAINS, f"several-{kind}", {"low_ns": low - now, "high_ns": high - now})
        found.append((name + ", ".join(values), gain, span(low, high)))
    return found


def not_replayed(
    changes: Sequence[Replayed], findings: Sequence[Finding], now_ns: float
) -> list[tuple[str, str]]:
    """(finding, what it gives) of those that say a gain which no replayed change shows."""
    shown = {it.finding for it in changes}
    return [
        (item.title, gain_words(*ends_ns(item), 0.0, item.is_of_unknown_cost(), now_ns))
        for item in findings
        if item.savings_ns and item.id not in shown
    ]


def _as_number(value: str) -> float:
    return float(value) if value.replace(".", "", 1).isdecimal() else 0.0


def _value(row: Row, groups: Mapping[str | None, str]) -> str:
    """A change's value; of calls, 'tiny all_reduce of all 8 ranks', not torch's group '0'."""
    value: str = row["value"]
    what, _, group = value.rpartition(" ")
    named = row["setting"] in _OF_CALLS and what and group in groups
    return f"{what} of {groups[group]}" if named else value


def _of(row: Row, host: Sequence[int] | None, groups: Mapping[str | None, str]) -> Replayed:
    return Replayed(
        name=_change_name(row["setting"], named_ranks(host) if host else _value(row, groups)),
        setting=row["setting"],
        step_ns=row["step_ns"],
        step_low_ns=row["step_low_ns"],
        step_high_ns=row["step_high_ns"],
        measured_ns=row["measured_step_ns"],
        replayed_ns=row["replayed_step_ns"],
        gain_low_ns=row["gain_low_ns"],
        gain_high_ns=row["gain_high_ns"],
        extrapolates=bool(row["extrapolates"]),
        inconclusive=bool(row["inconclusive"]),
    )


def gain_kind(low_ns: float, middle_ns: float, high_ns: float, least_ns: float = 0.0) -> str:
    """``saves`` or ``costs`` where the interval leaves out zero, else ``may-save`` or ``nothing``.

    A gain whose high end is at most ``least_ns`` is nothing to speak of.
    """
    if low_ns > 0 and middle_ns > least_ns:
        return "saves"
    if high_ns < 0:
        return "costs"
    return "may-save" if middle_ns > least_ns else "nothing"


def gain_words(
    low_ns: float,
    middle_ns: float,
    high_ns: float,
    least_ns: float = 0.0,
    only_between: bool = False,
    step_ns: float = math.inf,
) -> str:
    """'saves 12 ms (8–15 ms)', 'may save up to 12 ms, or nothing'; per step.

    ``only_between``: 'saves 0.6–15 ms', for nothing inside the interval is known. No end is
    rounded above ``step_ns``, as in findings.
    """
    kind = gain_kind(low_ns, middle_ns, high_ns, least_ns)
    return say(GAINS, kind, {"low_ns": low_ns, "middle_ns": middle_ns, "high_ns": high_ns,
                             "only_between": only_between, "step_ns": step_ns})  # fmt: skip


def _change_name(setting: str, value: str) -> str:
    """The change as users write it, 'bucket_cap_mb=25', or in words where no setting does it."""
    return say(CHANGES, setting, {"value": value}) if setting in CHANGES else f"{setting}={value}"


def ends_ns(finding: Finding) -> tuple[float, float, float]:
    """Low, middle and high of what a finding gives; the middle stands for an unknown end."""
    gain = float(finding.savings_ns or 0)
    low, high = finding.savings_low_ns, finding.savings_high_ns
    return gain if low is None else low, gain, gain if high is None else high


def _rests_on(finding: Finding, gain_ns: float) -> bool:
    """Whether what a finding saves is this very gain of a replay."""
    return gain_ns > 0 and abs((finding.savings_ns or 0) - gain_ns) <= _SAME * gain_ns


def sets(finding: Finding, change: str) -> bool:
    """Whether a finding's fix sets this: 'bucket_cap_mb=25', or 'bucket_cap_mb=' to any value."""
    return bool(finding.savings_ns) and any(
        change in (f"{name}=", f"{name}={value}") for name, value in finding.sets.items()
    )


def delays(finding: Finding, ranks: Sequence[int]) -> bool:
    """Whether others wait for these ranks because of what the finding says of some of them."""
    named = finding.savings_ns and finding.claims.get("wait") and finding.ranks
    return bool(named) and {*finding.ranks} <= {*ranks}
