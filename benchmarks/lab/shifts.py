"""Whether a finding hangs on a clock: recordings scored with one host's clock off, against as is.

No shift of one host's clock may change a finding (METRICS 5). Each recording is diagnosed as it is
and with one host's clock moved by each of some constants: a host drawn from the case's id, or
every host in turn. What counts is what a reader acts on: the first cause, the place, and whether
the gain's interval still holds the real one. A clock that is off takes evidence away, so less may
be said; what may not happen is that something wrong is.
"""

from __future__ import annotations

import fnmatch
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.lab import case as lab_case
from benchmarks.lab.case import CASE_FILE
from benchmarks.lab.edits import drawn_host, shift_one_clock
from benchmarks.lab.score import WORKERS, Score, accepted_of, score_folder


@dataclass(frozen=True)
class Shifted:
    """One recording with the clock of ``host`` moved by ``by_ms``, against the same as it is."""

    id: str
    kind: str
    is_control: bool
    host: int
    by_ms: float
    cause: bool
    """The same rule comes first, and the accepted one at the same place of the list."""
    place: bool
    """The same ranks, hosts or links are named."""
    gain: bool
    """The interval holds the real gain if it did before, and the estimate moved by under 10 %."""
    alarms: bool
    """Nothing at warning or above is new."""
    accuses: bool
    """A place or a cause is named at warning or above that is wrong and was not named before."""
    before: str
    after: str


def score_shifts(
    folder: Path,
    *,
    only: Sequence[str] = ("*",),
    shifts_ms: Sequence[float],
    every_host: bool = False,
    say: Callable[[str], None],
) -> list[Shifted]:
    """Every recording under ``folder`` whose id matches one of ``only`` and that is not edited."""
    folders = sorted(
        path.parent
        for path in folder.glob(f"*/{CASE_FILE}")
        if any(fnmatch.fnmatch(path.parent.name, pattern) for pattern in only)
        and not lab_case.read(path.parent).edit
    )
    found: list[Shifted] = []
    score = partial(_score, shifts_ms=tuple(shifts_ms), every_host=every_host)
    with ProcessPoolExecutor(WORKERS) as pool:
        for own in pool.map(score, folders):
            found += own
            lines = [f"{own[0].id}: {own[0].before}"]
            lines += [f"    host {x.host} {x.by_ms:+g} ms: {x.after}" for x in own if _off(x)]
            say("\n".join(lines))
    return found


def _off(one: Shifted) -> bool:
    return not (one.cause and one.place and one.gain and one.alarms)


def _score(folder: Path, *, shifts_ms: Sequence[float], every_host: bool) -> list[Shifted]:
    case = lab_case.read(folder)
    before = score_folder(folder)
    accepted = accepted_of(case)
    hosts = range(case.faulty.hosts) if every_host else (drawn_host(case),)
    found = []
    for host in hosts:
        for by_ms in shifts_ms:
            with tempfile.TemporaryDirectory() as scratch:
                shift_one_clock(folder, Path(scratch) / case.id, case, host, by_ms)
                after = score_folder(Path(scratch) / case.id)
            found.append(compared(before, after, host, by_ms, accepted))
    return found


def compared(
    before: Score, after: Score, host: int, by_ms: float, accepted: Sequence[str] = ()
) -> Shifted:
    """What of a score is left with a clock moved; rules in ``accepted`` name the fault."""
    return Shifted(
        id=before.id,
        kind=before.kind,
        is_control=before.is_control,
        host=host,
        by_ms=by_ms,
        cause=(before.top, before.rank_of_truth) == (after.top, after.rank_of_truth),
        place=(before.said, before.place_found) == (after.said, after.place_found),
        gain=_gain(before, after),
        alarms=set(after.alarms) <= set(before.alarms),
        accuses=_accuses(before, after, accepted),
        before=_in_words(before),
        after=_in_words(after),
    )


def _accuses(before: Score, after: Score, accepted: Sequence[str]) -> bool:
    new = (alarm for alarm in after.alarms if alarm not in before.alarms)
    misplaced = after.place_found == "wrong" and before.place_found != "wrong"
    return misplaced or any(alarm.split(" (")[0] not in accepted for alarm in new)


def _gain(before: Score, after: Score) -> bool:
    one, other = before.predicted_gain_ns, after.predicted_gain_ns
    if one is None or other is None:
        return one is other
    holds = before.gain_within_interval == after.gain_within_interval
    return holds and abs(other - one) <= max(0.1 * abs(one), before.noise_ns)


def _in_words(score: Score) -> str:
    if score.error:
        return score.error
    gain = "" if score.predicted_gain_ns is None else f", {score.predicted_gain_ns / 1e6:.1f} ms"
    return f"{score.top}{f' at {score.said}' if score.said else ''}{gain}" + (
        f" [{'; '.join(score.alarms)}]" if score.is_control and score.alarms else ""
    )


def summarise(found: Iterable[Shifted]) -> dict[str, Any]:
    """The results file: every comparison, and counts by shift and sort of case."""
    found = list(found)
    return {
        "shifts": [asdict(one) for one in found],
        "summary": [
            {"by_ms": by_ms, "sort": sort, **_counts(own)}
            for sort in dict.fromkeys(map(_sort, found))
            for by_ms in dict.fromkeys(one.by_ms for one in found)
            if (own := [one for one in found if (one.by_ms, _sort(one)) == (by_ms, sort)])
        ],
    }


def _sort(one: Shifted) -> str:
    return "controls" if one.is_control else one.kind


def _counts(own: Sequence[Shifted]) -> dict[str, int]:
    return {
        "count": len(own),
        "cause": sum(one.cause for one in own),
        "place": sum(one.place for one in own),
        "gain": sum(one.gain for one in own),
        "alarms": sum(one.alarms for one in own),
        "accuses": sum(one.accuses for one in own),
    }


def render(results: dict[str, Any]) -> str:
    """The counts as a table: how many of each sort keep what they said, by shift."""
    lines = [
        f"{'kept with one clock off':26}{'by ms':>9}{'of':>5}{'cause':>7}{'place':>7}{'gain':>6}"
        f"{'no new alarm':>14}{'accuses':>9}"
    ]
    rows = sorted(results["summary"], key=lambda row: (row["sort"], row["by_ms"]))
    lines += [_line(row["sort"], f"{row['by_ms']:+g}", row) for row in rows]
    return "\n".join([*lines, _line("all", "", {n: sum(row[n] for row in rows) for n in _COUNTS})])


def _line(sort: str, by_ms: str, counts: Mapping[str, int]) -> str:
    count, cause, place, gain, alarms, accuses = (counts[name] for name in _COUNTS)
    kept = f"{count:>5}{cause:>7}{place:>7}{gain:>6}{alarms:>14}"
    return f"{sort:26}{by_ms:>9}{kept}{accuses:>9}"


_COUNTS = ("count", "cause", "place", "gain", "alarms", "accuses")
