"""What a recording suffers on its way changes no finding, but by the evidence that it removes.

Real recordings, each with a known cause: files renamed and their events shuffled, a host's clock
off, one event lost, one rank missing. A finding at warning or above stays with its rule, ranks and
hosts; without a rank it may go, and nobody else is accused: a gain that is time in calls with the
missing rank is not sure any more.
"""

from __future__ import annotations

import gzip
import json
import random
from functools import cache
from pathlib import Path

import pytest

from advisor.config.paths import shipped
from advisor.engine import load_rule
from advisor.findings import FindingsReport, Severity
from tests.rules.test_real import report_of
from tests.support.marks import long, thinned

pytestmark = pytest.mark.slow

FIXTURES = Path(__file__).parents[2] / "fixtures"
Blame = list[tuple[str, tuple[int, ...], tuple[str, ...]]]


def files(name: str) -> list[Path]:
    return sorted((FIXTURES / name).glob("rank*.json.gz"))


def blame(report: FindingsReport) -> Blame:
    return sorted(
        (item.rule, tuple(sorted(item.ranks)), tuple(sorted(map(str, item.hosts))))
        for item in report.findings
        if item.severity != Severity.INFO
    )


def in_calls(rule: str) -> bool:
    return load_rule(shipped("rules") / f"{rule}.yaml").savings.in_calls


@cache
def known(name: str) -> Blame:
    return blame(report_of(*files(name)))


@pytest.mark.long
@pytest.mark.parametrize("name", ["lab-ddp-slow-rank", *long("lab-fsdp2-slow-link")])
def test_names_of_files_and_order_of_events_mean_nothing(tmp_path: Path, name: str) -> None:
    chance = random.Random(name)
    renamed = []
    for number, path in enumerate(files(name)):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        chance.shuffle(trace["traceEvents"])
        # Names that sort against the ranks.
        renamed.append(tmp_path / f"{9 - number}-of-a-job.json")
        renamed[-1].write_text(json.dumps(trace))
    assert known(name)
    assert blame(report_of(*renamed)) == known(name)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "rank", "shift_ms"),
    thinned(
        [
            ("lab-ddp-slow-rank", 2, 5_000),
            ("lab-fsdp2-slow-link", 0, 3),
            ("lab-ep-expert-skew", 1, -900),
            ("lab-zero1-loader-stall", 1, 250),
            ("lab-pp-few-micro-batches", 1, 250),
            ("lab-ddp-compute-bound", 0, 5_000),
            ("lab-ddp-hidden-communication", 1, -20),
        ],
        4,
    ),
)
def test_a_clock_that_is_off_accuses_nobody_else(name: str, rank: int, shift_ms: int) -> None:
    change = f"UPDATE event SET start_ns = start_ns + {shift_ms * 1_000_000} WHERE rank = {rank}"
    assert blame(report_of(*files(name), change=change)) == known(name)


@pytest.mark.parametrize(
    "name", ["lab-ddp-slow-rank", *long("lab-zero1-pauses", "lab-ddp-blocking")]
)
@pytest.mark.parametrize("draw", [1, *long(2)])
def test_a_lost_event_changes_no_finding(name: str, draw: int) -> None:
    change = (
        "DELETE FROM event WHERE (rank, event_id) IN (SELECT (rank, event_id) FROM event "
        f"WHERE name LIKE 'gloo:%' ORDER BY hash(31 * event_id + 7 * rank + {draw}) LIMIT 1)"
    )
    found = blame(report_of(*files(name), change=change))
    assert [rule for rule, _, _ in found] == [rule for rule, _, _ in known(name)]
    assert all(
        {*ranks} == {*before}
        for (_, ranks, _), (_, before, _) in zip(found, known(name), strict=True)
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "rank", "stays"),
    thinned(
        [
            ("lab-ddp-slow-rank", 2, False),
            ("lab-fsdp2-slow-link", 3, True),
            ("lab-ep-expert-skew", 3, True),
            ("lab-zero1-pauses", 1, True),
            ("lab-ddp-slow-rank", 0, True),
            ("lab-fsdp2-imbalanced-work", 0, False),
            ("lab-fsdp2-imbalanced-work", 1, False),
            ("lab-ddp-blocking", 1, False),
            ("lab-ddp-compute-bound", 1, False),
        ],
        4,
    ),
)
def test_a_missing_rank_takes_only_its_own_evidence(name: str, rank: int, stays: bool) -> None:
    found = blame(report_of(*(path for number, path in enumerate(files(name)) if number != rank)))
    before = {rule: {*ranks} for rule, ranks, _ in known(name)}
    for rule, ranks, _ in found:
        assert rule in before
        assert {*ranks} <= before[rule]
    # What rests on time in calls is not sure any more: it may all be waiting for that rank.
    lasting = [rule for rule in sorted(before) if stays and not in_calls(rule)]
    assert lasting == [rule for rule, _, _ in found]


def test_where_the_late_rank_is_missing_the_report_says_so_and_promises_nothing() -> None:
    """All gathers and reductions of rank 1 wait for rank 0, whose recording is left out."""
    report = report_of(files("lab-fsdp2-imbalanced-work")[1])
    assert report.verdict.cause == "unknown"
    assert report.verdict.reason == "ranks-missing"
    assert any(note.values.get("missing") == [0] for note in report.runs[0].caveats)
    of_calls = {item.rule: item for item in report.findings if item.savings_ns}
    assert {"resharding-not-needed", "fp32-gradients"} <= {*of_calls}
    for item in of_calls.values():
        assert item.savings_low_ns == 0
        assert "Rank 0 of its group was not read: waiting for it is in this time" in item.message
