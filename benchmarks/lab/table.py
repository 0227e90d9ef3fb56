"""The score as text: counts, one row per kind, the misses, and the false alarms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def write(results: dict[str, Any], path: Path) -> None:
    """Write results.json."""
    path.write_text(json.dumps(results, indent=1) + "\n")


def read(path: Path) -> dict[str, Any]:
    """Read results.json."""
    results: dict[str, Any] = json.loads(path.read_text())
    return results


def render(results: dict[str, Any]) -> str:
    """The whole table."""
    return "\n".join(
        [
            *_summary(results["summary"]),
            "",
            *_by_kind(results["cases"]),
            "",
            *_misses(results["cases"]),
            "",
            *_false_alarms(results["controls"]),
        ]
    )


def _share(part: int, whole: int) -> str:
    return f"{part}/{whole} ({part / whole:.0%})" if whole else "none"


def _summary(summary: dict[str, Any]) -> list[str]:
    lines = []
    for title, counts in (
        ("Faults that slow the step by 10 % or more", summary),
        ("Faults of 3-10 %", summary["weak"]),
    ):
        faults = counts["faults"]
        width = counts["interval_width_median"]
        within = _share(counts["gain_within_interval"], counts["with_interval"])
        lines += [
            f"{title}: {faults} of {counts['kinds']} kinds",
            f"  cause first {_share(counts['top1'], faults)}, "
            f"among three {_share(counts['top3'], faults)}",
            f"  place {_share(counts['place'], counts['with_place'])}, "
            f"in a candidate set {counts['place_candidates']}",
            f"  gain within interval {within}"
            + (f", median width of the interval {width:.0%} of the gain" if width else ""),
        ]
    lines.append(f"Controls with a false alarm: {summary['false_alarms']} of {summary['controls']}")
    for name in ("without_effect", "errors"):
        if summary[name]:
            lines.append(f"{name.replace('_', ' ')}: {', '.join(summary[name])}")
    return lines


def _by_kind(cases: list[dict[str, Any]]) -> list[str]:
    lines = [f"{'kind (>= 10 %)':26}{'faults':>7}{'first':>7}{'place':>7}{'gain':>7}"]
    counted = [case for case in cases if case["band"] == "counted"]
    for kind in sorted({case["kind"] for case in counted}):
        mine = [case for case in counted if case["kind"] == kind]
        has_place = any(case["place"] for case in mine)
        first = sum(case["rank_of_truth"] == 1 for case in mine)
        place = sum(case["place_found"] == "right" for case in mine) if has_place else "-"
        gain = sum(case["gain_within_interval"] is True for case in mine)
        lines.append(f"{kind:26}{len(mine):>7}{first:>7}{place:>7}{gain:>7}")
    return lines


def _misses(cases: list[dict[str, Any]]) -> list[str]:
    lines = ["Misses:"]
    for case in cases:
        wrong = _wrong(case)
        if case["band"] in ("counted", "weak") and wrong:
            lines.append(
                f"  {case['id']} [{case['strategy']} x{case['ranks']}, {case['strength']}; "
                f"{case['place'] or 'no place'}; {case['slowdown']:.0%}]: {'; '.join(wrong)}"
            )
    return lines if len(lines) > 1 else ["No misses."]


def _wrong(case: dict[str, Any]) -> list[str]:
    if case["error"]:
        return [case["error"]]
    wrong = []
    if case["rank_of_truth"] != 1:
        at = case["rank_of_truth"]
        wrong.append(f"named {case['top']}" + (f", the cause came as number {at}" if at else ""))
    if case["place_found"] in ("wrong", "candidates"):
        wrong.append(f"place {case['place_found']}: {case['said']}")
    if case["gain_within_interval"] is False:
        low, high = case["interval"]
        wrong.append(
            f"gain {case['real_gain_ns'] / 1e6:.1f} ± {case['noise_ns'] / 1e6:.1f} ms "
            f"outside {low / 1e6:.1f} to {high / 1e6:.1f}"
        )
    return wrong


def _false_alarms(controls: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"  {control['id']} [{control['strategy']} x{control['ranks']}]: "
        + (control["error"] or "; ".join(control["alarms"]))
        for control in controls
        if control["alarms"] or control["error"]
    ]
    return ["False alarms on controls:", *lines] if lines else ["No false alarms on controls."]
