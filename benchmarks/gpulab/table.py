"""The score as text: counts by severity, kind, size and edit; every miss; every false alarm."""

from __future__ import annotations

from typing import Any


def render(results: dict[str, Any]) -> str:
    """The whole table."""
    summary = results["summary"]
    lines = [f"SIMULATED NCCL recordings, seed {results['seed']}", ""]
    bands = (("Faults of 10 % of the step or more", "strong"), ("Faults of 3-10 %", "weak"))
    for title, key in bands:
        lines += _block(title, summary[key])
    lines.append(f"Controls with a false alarm: {summary['false_alarms']} of {summary['controls']}")
    lines.append(
        f"Longest verdict {summary['longest_verdict']} characters, longest sentence of WHY "
        f"{summary['longest_why_words']} words"
    )
    for name in ("without_effect", "errors"):
        if summary[name]:
            lines.append(f"{name.replace('_', ' ')}: {', '.join(summary[name])}")
    for title, key in (("kind", "by_kind"), ("ranks", "by_ranks"), ("edit", "by_edit")):
        lines += ["", *_rows(title, results[key])]
    return "\n".join([*lines, "", *misses(results), "", *alarms(results)])


def share(part: int, whole: int) -> str:
    """'3/4 (75%)'."""
    return f"{part}/{whole} ({part / whole:.0%})" if whole else "none"


def _block(title: str, c: dict[str, Any]) -> list[str]:
    error = c["gain_error_median"]
    return [
        f"{title}: {c['faults']} of {c['kinds']} kinds",
        f"  cause first {share(c['first'], c['faults'])}, named at all "
        f"{share(c['named'], c['faults'])}",
        f"  location {share(c['place'], c['with_place'])}, in a candidate set "
        f"{c['place_candidates']}",
        f"  gain inside {share(c['inside'], c['with_interval'])}, median error of the gain "
        + (f"{error:.0%}" if error is not None else "-"),
        f"  first fix right {share(c['fix'], c['faults'])}",
    ]


def _rows(title: str, table: dict[str, Any]) -> list[str]:
    lines = [
        f"{title:28}{'faults':>7}{'first':>7}{'named':>7}{'place':>9}{'gain':>9}{'error':>7}"
        f"{'fix':>5}"
    ]
    for name, c in table.items():
        if not c["faults"]:
            continue
        place = f"{c['place']}/{c['with_place']}" if c["with_place"] else "-"
        gain = f"{c['inside']}/{c['with_interval']}" if c["with_interval"] else "-"
        error = "-" if c["gain_error_median"] is None else f"{c['gain_error_median']:.0%}"
        lines.append(
            f"{name:28}{c['faults']:>7}{c['first']:>7}{c['named']:>7}{place:>9}{gain:>9}"
            f"{error:>7}{c['fix']:>5}"
        )
    return lines


def misses(results: dict[str, Any]) -> list[str]:
    """Every fault that was not fully right, with what was said."""
    lines = ["Misses:"]
    for case in results["cases"]:
        wrong = wrongs(case)
        if case["band"] in ("strong", "weak") and wrong:
            lines.append(
                f"  {case['id']} [{case['strategy']} x{case['ranks']} on {case['hosts']}"
                f"{', ' + case['edit'] if case['edit'] else ''}; {case['place'] or 'no place'}; "
                f"{case['share']:.0%}; {case['changed']}]: {'; '.join(wrong)}"
            )
    return lines if len(lines) > 1 else ["No misses."]


def wrongs(case: dict[str, Any]) -> list[str]:
    """What was not right about one fault."""
    if case["error"]:
        return [case["error"]]
    wrong = []
    if case["rank_of_truth"] != 1:
        at = case["rank_of_truth"]
        said = f"named {case['top']}" + (f" ({case['said']})" if case["said"] else "")
        wrong.append(said + (f", the cause came as number {at}" if at else ""))
    if case["place_found"] in ("wrong", "candidates"):
        wrong.append(f"place {case['place_found']}: {case['said']}")
    if case["inside"] is False:
        wrong.append(
            f"gain {case['truth_ns'] / 1e6:.1f} ms outside {case['low_ns'] / 1e6:.1f} to "
            f"{case['high_ns'] / 1e6:.1f}"
        )
    if case["rank_of_truth"] == 1 and not case["fix_right"]:
        wrong.append(f"first fix: {case['first_fix'][:80]}")
    return wrong


def alarms(results: dict[str, Any]) -> list[str]:
    """Every false alarm."""
    lines = [
        f"  {control['id']} [{control['strategy']} x{control['ranks']} on {control['hosts']}]: "
        + (control["error"] or "; ".join(control["alarms"]))
        for control in results["controls"]
        if control["alarms"] or control["error"]
    ]
    return ["False alarms on controls:", *lines] if lines else ["No false alarms on controls."]


def markdown(results: dict[str, Any]) -> str:
    """Misses as a table for those who mend them: case, what was said, what is true."""
    rows = ["| case | said | truth |", "|---|---|---|"]
    for case in results["cases"]:
        wrong = wrongs(case)
        if case["band"] in ("strong", "weak") and wrong:
            truth = f"{case['kind']}, {case['place'] or 'no place'}, {case['share']:.0%}, " \
                f"{case['truth_ns'] / 1e6:.1f} ms"  # fmt: skip
            edit = f", {case['edit']}" if case["edit"] else ""
            rows.append(
                f"| {case['id']} ({case['strategy']} x{case['ranks']} on {case['hosts']}{edit}) | "
                f"{'; '.join(wrong)} | {truth}; {case['changed']} |"
            )
    rows += [
        f"| {control['id']} ({control['strategy']} x{control['ranks']}) | "
        f"{control['error'] or '; '.join(control['alarms'])} | healthy |"
        for control in results["controls"]
        if control["alarms"] or control["error"]
    ]
    return "\n".join(rows)
