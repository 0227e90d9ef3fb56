"""Every replayed change of a run as all views name it: one name, one gain, one interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.findings import Finding
from advisor.messages import WHATIF, say
from advisor.report.gain import (
    change_name,
    delays,
    gain_kind,
    gain_words,
    interval,
    rests_on,
    sets,
)
from advisor.report.tables import Row, late_together, rows
from advisor.store.store import Store
from advisor.vocabulary.words import about, named_ranks, span

LEAST = 0.01  # of the step: less is no gain to speak of


@dataclass(frozen=True)
class Replayed:
    """A change, the step under it and what it gives, ns per step, with 90 % intervals.

    ``replayed_ns``: the unchanged step, replayed. ``inconclusive``: the step depends on what the
    recording does not tell; ``extrapolates``: on sizes that it does not hold;
    ``is_advised``: a finding advises just this; ``only_between``: what it gives is known as an
    interval alone.
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
    is_advised: bool = False
    only_between: bool = False

    @property
    def gain_ns(self) -> float:
        """Time per step that the change gives back (negative: it costs)."""
        return self.measured_ns - self.step_ns

    @property
    def kind(self) -> str:
        """``saves``, ``may-save``, ``costs`` or ``nothing`` (gain.py), or ``unknown``."""
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
        ends = span(self.step_low_ns, self.step_high_ns)
        return ends if self.only_between else f"{about(self.step_ns)} ({ends})"

    def as_found(self, findings: Sequence[Finding]) -> Replayed:
        """With the gain of the finding that makes this change, or the interval of the one that
        rests on this replay: a cause has one gain, and no other value of its setting gives more.
        """
        low, middle, high = self._gain()
        own = next((item for item in findings if sets(item, self.name)), None)
        based = own or next((item for item in findings if rests_on(item, middle)), None)
        other = next((item for item in findings if sets(item, f"{self.setting}=")), None)
        if own is not None:
            low, middle, high = _gain_of(own)
        elif other is not None and middle > 0:
            low, middle, high = map(min, self._gain(), _gain_of(other))
        else:
            low, high = interval(low, middle, high, findings)
        now = self.measured_ns
        same = replace(self, is_advised=own is not None,
                       only_between=based is not None and based.is_of_unknown_cost())  # fmt: skip
        if (low, middle, high) == self._gain():
            return same
        return replace(same, gain_low_ns=low, gain_high_ns=high, step_ns=now - middle,
                       step_low_ns=now - high, step_high_ns=now - low)  # fmt: skip

    def _gain(self) -> tuple[float, float, float]:
        return self.gain_low_ns, self.gain_ns, self.gain_high_ns

    def _words(self) -> str:
        return gain_words(*self._gain(), LEAST * self.measured_ns, self.only_between)


def replayed(store: Store, run: str, findings: Sequence[Finding]) -> list[Replayed]:
    """What was replayed of a run as it was read, the largest gain first.

    Without the lateness of ranks that is the effect of a finding: that says what mending it gives.
    """
    found = [row for row in rows(store, "SELECT * FROM whatif WHERE run = ?", [run])
             if row["measured_step_ns"]]  # fmt: skip
    # A rank stands for its host where that is late as a whole.
    hosts = {("without-lateness", str(rank)): own
             for rank, own in late_together(store, run).items()}  # fmt: skip
    effects = [row for row in found
               if _is_effect(row, hosts.get((row["setting"], row["value"])), findings)]  # fmt: skip
    also = {row["step_ns"] for row in effects}  # of all late ranks: no more than of these
    changes = [
        _of(row, hosts.get((row["setting"], row["value"]))).as_found(findings)
        for row in found
        if not row["is_current"]
        and row not in effects
        and not (row["value"] == "all" and row["step_ns"] in also)
    ]
    return sorted(
        changes, key=lambda it: (it.extrapolates, -it.gain_low_ns, it.step_ns, not it.is_advised)
    )


def _gain_of(finding: Finding) -> tuple[float, float, float]:
    gain = float(finding.savings_ns or 0)
    low, high = finding.savings_low_ns, finding.savings_high_ns
    return gain if low is None else low, gain, gain if high is None else high


def _of(row: Row, host: Sequence[int] | None) -> Replayed:
    measured = row["measured_step_ns"]
    low, high = row["gain_low_ns"], row["gain_high_ns"]
    if low is None:  # stores of earlier releases
        low, high = (measured - (row[end] or row["step_ns"])
                     for end in ("step_high_ns", "step_low_ns"))  # fmt: skip
    return Replayed(
        name=change_name(row["setting"], named_ranks(host) if host else row["value"]),
        setting=row["setting"],
        step_ns=row["step_ns"],
        step_low_ns=measured - high if row["step_low_ns"] is None else row["step_low_ns"],
        step_high_ns=measured - low if row["step_high_ns"] is None else row["step_high_ns"],
        measured_ns=measured,
        replayed_ns=row["replayed_step_ns"],
        gain_low_ns=low,
        gain_high_ns=high,
        extrapolates=bool(row["extrapolates"]),
        inconclusive=bool(row["inconclusive"]),
    )


def _is_effect(row: Row, host: Sequence[int] | None, findings: Sequence[Finding]) -> bool:
    """Whether a rank's lateness is the effect of a finding, which says what mending it gives.

    ``host``: the ranks that are late with it as a whole; a host is late where one of them is.
    """
    if row["setting"] != "without-lateness" or not (host or row["value"].isdecimal()):
        return False
    effect = f"straggler-rank (rank {row['value']})"
    late = host or [int(row["value"])]
    gain_ns = row["measured_step_ns"] - row["step_ns"]
    return any(
        (effect in item.merged or delays(item, late)) and not rests_on(item, gain_ns)
        for item in findings
    )
