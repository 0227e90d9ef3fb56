"""The sentence over the bars of the ranks: what takes most of their step beside compute."""

from __future__ import annotations

from advisor.report import numbers
from advisor.report.charts.scene import KINDS
from advisor.report.tables import Row

_IDLE = [kind for kind in KINDS if kind.startswith("idle")]
_LITTLE = 0.02  # of the step
_UNEVEN = 0.6  # of the longest wait: less on another rank is the news


def exposed(row: Row) -> float:
    """Communication of a rank's mean step that no compute hides, waiting included, in ns."""
    return float(row["comm"] + row["transfer"] + row["wait"])


def ranks_title(by_rank: list[Row], communication: float | None) -> str:
    """What takes the steps of ``by_rank``, one row of parts in ns each.

    ``communication``: the share of it that compute hides; None where none was recorded.
    """
    most = max(by_rank, key=exposed)
    part = exposed(most) / most["window_ns"] if most["window_ns"] else 0.0
    return _quiet_title(by_rank, communication) if part < _LITTLE else _title(by_rank)


def _title(by_rank: list[Row]) -> str:
    """What takes most of the steps beside compute, and on which rank."""
    kinds: dict[str, tuple[str, ...]] = {
        "Communication that nothing hides takes": ("comm", "transfer", "wait"),
        "Waiting for other ranks takes": ("wait",),
        "The device idles for": tuple(_IDLE),
    }
    parts = {
        words: max(
            (sum(row[kind] for kind in of) / row["window_ns"], -row["rank"])
            for row in by_rank
            if row["window_ns"]
        )
        for words, of in kinds.items()
    }
    whole, waiting, idle = kinds
    words = whole
    if parts[waiting][0] > 0.5 * parts[whole][0]:
        words = waiting
    if parts[idle][0] > parts[whole][0]:
        words = idle
    least = min(by_rank, key=lambda row: row["wait"])
    longest = max(by_rank, key=lambda row: row["wait"])
    if words == waiting and least["wait"] < _UNEVEN * longest["wait"]:
        return (
            f"Rank {longest['rank']} waits {numbers.duration(longest['wait'])} per step for "
            f"others, rank {least['rank']} only {numbers.duration(least['wait'])}"
        )
    share, rank = parts[words]
    return f"{words} up to {numbers.share(share)} of the step (rank {-rank})"


def _quiet_title(by_rank: list[Row], communication: float | None) -> str:
    """Where communication takes next to nothing: what takes the step instead."""
    parts = [
        (sum(row[kind] for kind in kinds) / row["window_ns"], words, row["rank"])
        for row in by_rank
        if row["window_ns"]
        for words, kinds in (("compute takes", ["compute"]), ("the device idles for", _IDLE))
    ]
    if not parts:
        return "Nothing was recorded in these steps"
    part, words, rank = max(parts)
    what = f"{words} up to {numbers.share(part)} of the step (rank {rank})"
    if communication is None:
        return f"No communication was recorded; {what}"
    return f"Communication that nothing hides costs next to nothing; {what}"
