"""The score on other people's recordings, whose truth is known from elsewhere.

They lie beside the checkout, never in it. Each goes through ``advisor diagnose`` as a person would
call it, in a process of its own; what is known of it is read from the files beside it where they
say so (a log of injected faults, the publishers' own result).
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

DEFAULT_DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"
_BLAME = frozenset({"straggler-rank", "slow-ring-link", "jitter", "expert-imbalance"})


@dataclass(frozen=True)
class Known:
    """What is true of one recording. Without ``rules`` nobody may be blamed in it."""

    name: str
    inputs: list[Path]
    source: str
    """Where the truth is known from."""
    rules: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    says: str = ""
    """Text that the finding's title must hold."""
    gain_ns: float | None = None


@dataclass(frozen=True)
class Result:
    """What the command said of one recording, against what is known."""

    name: str
    truth: str
    source: str
    found: str
    severity: str
    ranks: list[int]
    gain_ns: float | None
    predicted_gain_ns: int | None
    interval_ns: list[int] | None
    wrong: list[str]


def known(data: Path) -> list[Known]:
    """All recordings under ``data`` whose truth is known."""
    cases = [
        Known(
            "DLRM, 8 V100, one step",
            [data / "dlrm_8xV100"],
            "waits per collective computed by two other tools",
            ("straggler-rank",),
            (7,),
            says="5 of 8",
        ),
        *(_faults(data / "flight_recorder" / name) for name in ("gpu_error_2nd", "lock_gil_1st")),
        _op_table(data / "straggler_op_table"),
    ]
    for name, inside in (
        ("DDP, rank 0 of 2 A100", "ddp_2xA100_metadata"),
        ("DDP, rank 0 of 8 MI300", "ddp_8xMI300"),
        ("one GPU, AlexNet", "cuda_sync_alexnet"),
        ("no device events", "cpu_only_rank34"),
    ):
        cases.append(
            Known(name, [data / inside], "one rank cannot show a late rank or a slow link")
        )
    return cases


def _faults(folder: Path) -> Known:
    """A flight-recorder dump of a job in which faults were injected, as their log tells."""
    log = (folder / "fault_injection.log").read_text()
    ranks = sorted(
        {int(rank) for rank in re.findall(r"^Rank (\d+), fault_type", log, re.MULTILINE)}
    )
    return Known(
        f"flight recorder, {folder.name}",
        sorted(folder.glob("_dump_*")),
        "the log of the injection",
        ("hang-suspect",),
        tuple(ranks),
    )


def _op_table(folder: Path) -> Known:
    """A published op table: its authors' simulation names the stage and the time it costs."""
    import pyarrow.parquet as pq

    result = json.loads((folder / "result-ST.json").read_text())
    by_stage = result["blocking_decompose_by_stage"]
    worst = int(max(by_stage, key=by_stage.get))
    seats = pq.read_table(folder / "trace-ST.parquet", columns=["rank", "stage"]).to_pylist()
    gain_s = statistics.mean(result["step_t_nodelay"].values()) - statistics.mean(
        result["step_t_noblk"].values()
    )
    return Known(
        "op table, 8 ranks, 4 stages",
        [folder],
        "the publishers' simulation",
        ("imbalanced-pipeline-stages",),
        tuple(sorted({row["rank"] for row in seats if row["stage"] == worst})),
        gain_ns=gain_s * 1e9,
    )


def score_all(data: Path, *, say: Callable[[str], None]) -> list[Result]:
    """Diagnose every recording whose truth is known."""
    results = []
    for case in known(data):
        results.append(judge(case, diagnose(case.inputs)))
        say(f"{case.name}: {results[-1].found}")
    return results


def diagnose(inputs: list[Path]) -> dict[str, Any]:
    """findings.json of the command; a failed command is a report without findings."""
    command = [sys.executable, "-m", "advisor", "diagnose", *map(str, inputs)]
    run = subprocess.run(
        [*command, "--format", "json", "--quiet"], check=False, capture_output=True, text=True
    )
    if run.returncode:
        last = (run.stderr.strip().splitlines() or ["no message"])[-1]
        return {"findings": [], "outcomes": [], "failed": f"exit {run.returncode}: {last}"}
    report: dict[str, Any] = json.loads(run.stdout)
    return report


def judge(case: Known, report: dict[str, Any]) -> Result:
    """Compare the first finding, or with nothing to blame all findings, with the truth."""
    findings = report["findings"]
    blamed = [finding for finding in findings if finding["rule"] in _BLAME]
    first = next(iter(findings if case.rules else blamed), None)
    wrong = [report["failed"]] if "failed" in report else []
    wrong += [
        f"error in {item['rule']}" for item in report["outcomes"] if item["outcome"] == "error"
    ]
    interval = None
    if first is not None and first["savings_low_ns"] is not None:
        interval = [first["savings_low_ns"], first["savings_high_ns"]]
    if not case.rules:
        wrong += [f"blames {finding['rule']} ({finding['where']})" for finding in blamed]
    elif first is None or first["rule"] not in case.rules:
        wrong.append(f"named {first['rule'] if first else 'nothing'} first")
    else:
        if first["ranks"] != list(case.ranks):
            wrong.append(f"named rank {first['ranks']}")
        if case.says not in first["title"]:
            wrong.append(f"does not say {case.says}")
        if case.gain_ns is not None and not (
            interval and interval[0] <= case.gain_ns <= interval[1]
        ):
            wrong.append(f"gain {case.gain_ns / 1e6:.0f} ms outside {interval}")
    return Result(
        name=case.name,
        truth=f"{case.rules[0]}, rank {', '.join(map(str, case.ranks))}"
        if case.rules
        else "nobody to blame",
        source=case.source,
        found=f"{first['rule']} ({first['where']})" if first else "nobody blamed",
        severity=first["severity"] if first else "",
        ranks=first["ranks"] if first else [],
        gain_ns=case.gain_ns,
        predicted_gain_ns=first["savings_ns"] if first else None,
        interval_ns=interval,
        wrong=wrong,
    )


def render(results: list[Result]) -> str:
    """One row per recording, then the misses."""
    lines = [f"{'recording':38}{'known':44}{'first finding':52}{'severity':10}right"]
    lines += [
        f"{row.name:38}{row.truth:44}{row.found:52}{row.severity:10}{'no' if row.wrong else 'yes'}"
        for row in results
    ]
    right = sum(not row.wrong for row in results)
    lines += ["", f"{right} of {len(results)} right"]
    for row in results:
        if row.gain_ns is not None and row.predicted_gain_ns is not None and row.interval_ns:
            low, high = (value / 1e6 for value in row.interval_ns)
            lines.append(
                f"{row.name}: {row.predicted_gain_ns / 1e6:.0f} ms per step predicted "
                f"({low:.0f} to {high:.0f}), {row.gain_ns / 1e6:.0f} ms by {row.source}"
            )
    misses = [f"  {row.name}: {'; '.join(row.wrong)}" for row in results if row.wrong]
    return "\n".join([*lines, *(["Misses:", *misses] if misses else ["No misses."])])


def write(results: list[Result], path: Path) -> None:
    """Write shared.json."""
    path.write_text(json.dumps([asdict(row) for row in results], indent=1) + "\n")
