"""What sections say of their pictures: data only. :mod:`advisor.report.charts` draws them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor.report.data_table import DataTable

_SOLID = 0.95  # of its time: what is busy for more is drawn as busy all the time

# Kinds of time with the words a reader sees, in the order in which they are stacked.
KINDS: dict[str, str] = {
    "compute": "compute",
    "wait": "waiting for a peer",
    "transfer": "exposed transfer",
    "comm": "exposed communication",
    "hidden-comm": "hidden communication",
    "memory": "memory copies",
    "other": "other device work",
    "idle": "idle",
    "idle-host": "idle: host was late",
    "idle-gap": "idle: launch gap",
    "idle-sync": "idle: synchronisation",
}


@dataclass(frozen=True)
class Bar:
    """One row or column: its label and its parts in ns by kind, which add up to it."""

    label: str
    parts_ns: Mapping[str, float]
    emphasis: bool = False


@dataclass(frozen=True)
class StackedBars:
    """Rows on one scale from zero. ``longest_ns`` widens it, so that runs can be compared."""

    bars: Sequence[Bar]
    axis: str = "ms per step"
    longest_ns: float = 0.0


@dataclass(frozen=True)
class StepBar:
    """The step as one bar of shares, and in it what a finding would give back.

    The gain (low, middle, high, shares too) lies in the parts of ``kinds``, the first of them most;
    ``mark`` says what it is, ``rest`` (on pointing at it) what lies elsewhere. No middle where only
    the interval is known: then its low end counts.
    """

    shares: Mapping[str, float]
    kinds: Sequence[str] = ()
    gain: tuple[float, float | None, float] | None = None
    mark: str = ""
    rest: str = ""

    def outlined(self) -> float:
        """The share of the step that would go: the middle of the gain, else its low end; or 0."""
        if self.gain is None:
            return 0.0
        low, middle, _ = self.gain
        return low if middle is None else middle

    def could_go(self, part: float | None = None) -> tuple[float, float] | None:
        """From where to where :meth:`outlined`, or another ``part`` of the step lies: in the first
        of the kinds, then in those beside it.

        Shorter than the gain where these kinds are; None without any of them or without a gain.
        """
        ends: dict[str, tuple[float, float]] = {}
        position = 0.0
        for kind in KINDS:
            if (share := self.shares.get(kind, 0.0)) > 0:
                ends[kind] = position, position + share
                position += share
        own = [span for kind, span in ends.items() if is_of(kind, self.kinds)]
        first = self.kinds[:1]
        most = next((span for kind, span in ends.items() if is_of(kind, first)), None)
        if most is None or self.gain is None:
            return None
        gain = min(self.outlined() if part is None else part, position)
        start, end = most
        for left, right in own:
            end = right if left == end else end
        for left, right in reversed(own):
            start = left if right == start else start
        stop = most[1] if gain <= most[1] - most[0] else min(end, most[0] + gain)
        return max(start, stop - gain), stop


def is_of(kind: str, kinds: Sequence[str]) -> bool:
    """'idle' has parts by cause; what was not parted into waiting and transfer is both."""
    of = {kind, kind.partition("-")[0], *(("wait", "transfer") if kind == "comm" else ())}
    return not of.isdisjoint(kinds)


@dataclass(frozen=True)
class StepColumns:
    """A column per step: a bad step stands out from its neighbours."""

    bars: Sequence[Bar]
    longest_ns: float = 0.0


@dataclass(frozen=True)
class GainBar:
    """A gain with its interval, ns, on the scale of all gains of the table; no ``middle_ns`` where
    only the interval is known."""

    low_ns: float
    middle_ns: float | None
    high_ns: float
    most_ns: float
    kind: str
    words: str


@dataclass(frozen=True)
class StepTime:
    """One setting's step time in ns with its interval; ``chosen`` stands out. ``only_between``: no
    more is known than its interval."""

    label: str
    step_ns: float
    low_ns: float | None = None
    high_ns: float | None = None
    chosen: bool = False
    guess: bool = False
    only_between: bool = False


@dataclass(frozen=True)
class Dots:
    """Step times on one axis; within ``band_ns`` nothing has changed from ``baseline_ns``."""

    times: Sequence[StepTime]
    baseline_ns: float | None = None
    band_ns: tuple[float, float] | None = None
    what: str = "step time"


@dataclass(frozen=True)
class HeatMap:
    """Rows of cells, ns; ``full_ns`` has the strongest colour. ``strong`` rows are named first."""

    rows: Sequence[str]
    columns: Sequence[str]
    cells_ns: Sequence[Sequence[float]]
    full_ns: float
    axis: str
    strong: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Matrix:
    """From rows to columns: measured share of the expected; ``text`` says both."""

    names: Sequence[str]
    ratio: Sequence[Sequence[float | None]]
    text: Sequence[Sequence[str]]


@dataclass(frozen=True)
class CallGroup:
    """Calls of one size: bytes, median busbw in GB/s, how many, and their transfer time in ns.

    ``calls`` is 0 where a benchmark does not say how often it called.
    """

    size_bytes: float
    busbw_gbps: float
    calls: int
    time_ns: float
    upper_bound: bool = False


@dataclass(frozen=True)
class Fit:
    """t = k*alpha + m*S*beta in ns (METRICS section 7); ``factor`` turns algbw into busbw."""

    alpha_ns: float
    beta_ns_per_byte: float
    k: float
    m: float
    factor: float
    n_star_bytes: float | None
    largest_bytes: float

    def busbw_gbps(self, size_bytes: float) -> float:
        """Bytes per ns are GB/s."""
        time_ns = self.k * self.alpha_ns + self.m * size_bytes * self.beta_ns_per_byte
        return self.factor * size_bytes / time_ns if time_ns > 0 else 0.0


@dataclass(frozen=True)
class BusBandwidth:
    """Bandwidth against size: measured calls, the fitted curve, and the hardware's ceiling."""

    groups: Sequence[CallGroup]
    fit: Fit | None = None
    ceiling_gbps: float | None = None
    ceiling: str = ""


@dataclass(frozen=True)
class Span:
    """Activity of one kind; times in ns from the crop's start. ``label`` is written if it fits.

    A ``folded`` span stands for several with gaps between them, in which others may lie: in
    the communication lane its label is for hovering only. ``filled`` is the share of its time in
    which it is busy: its bar is as high, so that an idle device does not look busy.
    """

    kind: str
    start_ns: float
    end_ns: float
    label: str = ""
    culprit: bool = False
    folded: bool = False
    filled: float = 1.0

    @property
    def is_low(self) -> bool:
        """Whether its bar is drawn lower than a full one."""
        return self.filled < _SOLID


@dataclass
class RankLane:
    """The spans of one rank."""

    rank: int
    spans: list[Span] = field(default_factory=list)
    culprit: bool = False


@dataclass(frozen=True)
class Timeline:
    """A crop of ``length_ns``: lanes of compute and communication; it starts ``from_ns`` after
    ``since``, e.g. 'a step'."""

    lanes: Sequence[RankLane]
    length_ns: float
    from_ns: float
    since: str


Bars = StackedBars | StepBar | StepColumns | GainBar
Drawing = Bars | Dots | HeatMap | Matrix | BusBandwidth | Timeline


@dataclass
class Figure:
    """A picture, a table, or one line of text: its title is the finding, not the axis.

    ``description`` is the text alternative, ``legend`` pairs of kind and words. The table of a
    picture is folded unless it ``shows_table``.
    """

    id: str
    title: str
    description: str = ""
    drawing: Drawing | None = None
    legend: Sequence[tuple[str, str]] = ()
    table: DataTable | None = None
    note: str = ""
    shows_table: bool = False


def legend_for(kinds: Sequence[str]) -> list[tuple[str, str]]:
    """The legend of the kinds used, in the order of :data:`KINDS`."""
    return [(kind, words) for kind, words in KINDS.items() if kind in kinds]
