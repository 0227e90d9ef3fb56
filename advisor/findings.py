"""Findings are the product: every view (terminal, HTML, JSON, JUnit ...) renders these models.

``FindingsReport`` is what findings.json holds. Times are integer nanoseconds *per step* unless
the name says otherwise; sizes are bytes.
"""

from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

SCHEMA_VERSION = 3


class Severity(StrEnum):
    """How much a finding matters, worst first."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


SEVERITY_ORDER = {severity: place for place, severity in enumerate(Severity)}

CRITICAL_SHARE, WARNING_SHARE = 0.10, 0.03
"""Of the median step: from here on a recoverable time is critical, or a warning."""
SURE, LIKELY = 0.9, 0.5
"""Probability from which on a cause is sure, and below which something else is likelier."""
_WIDE = 4.0  # high end of a gain over its low end: beyond, it is of unknown size


def is_wide(low_ns: int | None, high_ns: int | None) -> bool:
    """Whether a gain's interval is so wide that no number inside it is to be said."""
    return low_ns is not None and high_ns is not None and high_ns > _WIDE * low_ns


class Confidence(StrEnum):
    """How a saving was found out, surest first; a sweep alone measures one (METRICS section 8)."""

    REPLAYED = "replayed"
    MODELLED = "modelled"
    RULE_OF_THUMB = "rule-of-thumb"


class Basis(StrEnum):
    """What a finding's probability rests on (advisor.engine.verdict.probability)."""

    RECORDED = "recorded"
    """A log or dump states it, or it costs no time of its own: no probability."""
    RULE = "rule"
    """How often the rule was right in the labs."""
    UNTRIED = "untried"
    """How often rules were right when no lab had tried them."""
    OPTION = "option"
    """It may give nothing: an option to try. No lab counts how often it gives something."""
    LOSS = "loss"
    """Time that is seen to be lost, with nobody behind it: no cause, so no probability of one."""
    EVIDENCE = "evidence"
    """The recording's own evidence, weighed against everything else that it could be."""


class VerdictKind(StrEnum):
    """The six shapes of a verdict (docs/reading.md)."""

    SURE = "sure"
    PROBABLE = "probable"
    UNKNOWN_COST = "unknown-cost"
    HEALTHY = "healthy"
    LOSSY = "lossy"
    INCONCLUSIVE = "inconclusive"


class OutcomeKind(StrEnum):
    """What became of one rule on one run."""

    FIRED = "fired"
    PASSED = "passed"
    NOT_APPLICABLE = "not-applicable"
    ERROR = "error"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class Outcome(_Model):
    """One rule's result. ``reason`` names the missing evidence or the error."""

    run: str
    rule: str
    outcome: OutcomeKind
    reason: str = ""
    mistakes: list[str] = Field(
        default=[],
        description="savings of the rule that cannot be, kept within the step: a bug of the rule",
    )
    how_to_capture: str = ""
    lacks: str = Field(default="", description="the missing evidence in a few words")
    not_in_the_job: bool = Field(
        default=False, description="what is missing is not of this job: no recording would hold it"
    )


class Note(_Model):
    """What must be known beside the findings: programs act on ``code`` and ``values``."""

    code: str = Field(description="of advisor.messages.NOTES")
    values: dict[str, Any] = {}
    text: str = Field(description="the same in words, without a full stop")


class Table(_Model):
    """A small table of evidence: ``rows`` are parallel to ``columns`` (units in the names)."""

    title: str
    columns: list[str]
    rows: list[list[Any]] = []
    note: str = ""


class Window(_Model):
    """The stretch of time that shows the finding best, for the timeline and ``advisor open``.

    ``start_ns`` and ``end_ns`` are on the clock of the store (epoch ns, before alignment).
    """

    start_ns: int
    end_ns: int
    ranks: list[int] = []
    step: int | None = None
    culprit_rank: int | None = None
    call_ids: list[int] = []


class Evidence(_Model):
    """Why we say so: numbers as tables, the query that produced them, the window to look at."""

    tables: list[Table] = []
    sql: str = ""
    window: Window | None = None
    facts: dict[str, Any] = {}


class ClaimedCalls(_Model):
    """Calls of one operation and process group of which a finding claims time."""

    op: str
    process_group: str | None = None
    calls: int = Field(description="in all used steps; a call of several ranks counts once")
    ns: int = Field(description="per step, mean over ranks")


class Effect(_Model):
    """Another rule's finding that a cause explains, and where that was."""

    rule: str
    where: str = ""

    def label(self) -> str:
        """'jitter (ranks 2, 5)'."""
        return f"{self.rule} ({self.where})" if self.where else self.rule


class Finding(_Model):
    """One problem, what it costs per step, the fix and the proof."""

    id: str = Field(description="anchor: unique in one report, stable for the same evidence")
    run: str
    rule: str
    severity: Severity
    title: str = Field(description="one short sentence that names the place")
    because: list[str] = Field(default=[], description="evidence, at most two short sentences")
    message: str
    probability: float | None = Field(
        default=None, description="that the cause is real, as the labs found it (0 to 1)"
    )
    basis: Basis | None = Field(default=None, description="what the probability rests on")
    category: str = ""
    ranks: list[int] = []
    hosts: list[str] = []
    links: list[str] = Field(default=[], description="'host a -> host b' or '2 -> 3'")
    one_of: bool = Field(
        default=False, description="one of these ranks, hosts or links is meant, which is open"
    )
    process_group: str | None = None
    where: str = Field(default="", description="short place for tables, e.g. 'rank 2', 'dp group'")
    savings_ns: int | None = Field(default=None, description="recoverable time per step")
    savings_low_ns: int | None = None
    savings_high_ns: int | None = None
    savings_share: float | None = Field(default=None, description="savings_ns / median step")
    claims: dict[str, int] = Field(
        default={},
        description="the time that it is about, ns per step: mean over ranks, by kind of time; of "
        "what findings listed before it are about too, what they leave, so that all claims "
        "together are no more than the step",
    )
    claimed_calls: list[ClaimedCalls] = Field(
        default=[], description="the calls of which that is, those of most time first"
    )
    confidence: Confidence = Confidence.RULE_OF_THUMB
    assumes: str = ""
    evidence: Evidence = Field(default_factory=Evidence)
    sets: dict[str, str] = Field(
        default={}, description="settings that the fix sets, whose replay is its gain"
    )
    fix: list[str] = Field(default=[], description="exact settings or code, in order")
    verify: str = ""
    wrong_if: list[str] = []
    see: list[str] = []
    merged: list[Effect] = Field(default=[], description="findings that this cause explains")

    def at_most_ns(self) -> int | None:
        """The upper end of a gain that may be nothing, of which no less is promised; else None."""
        if self.savings_ns is None or self.savings_low_ns is None or self.savings_low_ns > 0:
            return None
        return self.most_ns() or None

    def most_ns(self) -> int:
        """The upper end of its gain, 0 without one."""
        return max(self.savings_ns or 0, self.savings_high_ns or 0)

    def is_sure(self) -> bool:
        """Whether its cause is, by the number that stands beside it, as it is written."""
        return self.probability is None or round(self.probability, 2) >= SURE

    def is_option(self) -> bool:
        """Whether a change may give nothing: worth a try, and no cause of a loss."""
        unlikely = self.probability is not None and self.probability < LIKELY
        return self.basis is Basis.OPTION or unlikely

    def is_probable(self) -> bool:
        """Whether its cause is likely and not sure, which its words say."""
        likely = not self.is_option() and self.basis is not Basis.LOSS
        return bool(self.savings_ns) and likely and not self.is_sure()

    def is_of_unknown_cost(self) -> bool:
        """Whether the cause is sure and its cost is not: no number inside the interval is said."""
        wide = is_wide(self.savings_low_ns, self.savings_high_ns)
        return wide and self.is_sure() and self.basis not in (Basis.LOSS, Basis.OPTION)


class Verdict(_Model):
    """The first thing a reader sees: one of six shapes; programs act on kind, reason and values.

    ``cause`` is a rule id, ``healthy``, ``benchmark`` or ``unknown``; ``finding`` the id of the
    finding that it is about; ``reason`` the row of the decision table.
    """

    kind: VerdictKind
    title: str = Field(description="at most 140 characters")
    cause: str
    reason: str = ""
    severity: Severity = Severity.INFO
    finding: str | None = None
    run: str = Field(default="", description="whose verdict it is, where there are several runs")
    values: dict[str, Any] = {}
    savings_ns: int | None = None
    why: str = Field(default="", description="at most two sentences")
    next_steps: list[str] = Field(default=[], description="at most three commands or edits")

    def headline(self) -> str:
        """The title, with the run that it is about where there are several."""
        return f"{self.run}: {self.title}" if self.run else self.title


class RunSummary(_Model):
    """What was read for one run, as the reader of a report needs it."""

    run: str
    ranks_read: int
    world_size: int | None
    steps_complete: int
    steps_partial: int
    step_ns_median: int | None
    step_source: str
    events_read: int
    events_dropped: int
    inputs: list[str] = []
    recordings: list[str] = Field(
        default=[],
        description="the inputs that hold steps, which a comparison needs: no logs or benchmarks",
    )
    notes: list[Note] = []
    caveats: list[Note] = Field(
        default=[], description="beside the verdict: where steps come from, what is in none of them"
    )
    verdict: Verdict | None = Field(default=None, description="of this run, of several")


class FindingsReport(_Model):
    """findings.json. Findings are sorted: what ends a job, then by expected gain, then hints."""

    schema_version: int = SCHEMA_VERSION
    advisor_version: str
    command: str = ""
    runs: list[RunSummary]
    verdict: Verdict
    outcomes: list[Outcome]
    findings: list[Finding]
