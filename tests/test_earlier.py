"""What was tried since the recording before is said; what gave nothing is not proposed again."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from advisor import api, earlier
from advisor.engine.tried import not_again, note_of
from advisor.findings import Finding, Severity
from advisor.metrics.compare.significance import Difference
from advisor.metrics.compare.tried import Tried

FIXTURE = Path(__file__).parents[1] / "fixtures" / "gpt2-tiny-ddp-2-slow-rank"
MS = 1_000_000


def finding(cap: str, gain_ms: int = 4) -> Finding:
    return Finding(
        id="small-buckets", run="run", rule="small-buckets", severity=Severity.WARNING, title="t",
        message="m", savings_ns=gain_ms * MS, sets={"bucket_cap_mb": cap}, fix=[f"set {cap}"],
    )  # fmt: skip


def tried(share: float, low: float | None, high: float | None) -> Tried:
    change = Difference(share, low, high, (9, 9))
    promised = [finding("100")]
    return Tried("traces", {"bucket_cap_mb": (25, 100.0)}, 100 * MS, change, promised)


def test_a_gain_stands_beside_what_was_expected() -> None:
    text = note_of(tried(-0.03, -0.05, -0.01)).text
    assert text == (
        "tried since traces: bucket_cap_mb 25 to 100.0; steps are 3 ms shorter (1 ms to 5 ms); "
        "expected: 4 ms"
    )
    assert "2 ms longer (1 ms to 3 ms)" in note_of(tried(0.02, 0.01, 0.03)).text
    assert "not surely shorter (1 ms longer to 2 ms shorter)" in note_of(
        tried(-0.005, -0.02, 0.01)
    ).text  # fmt: skip
    assert "too few to tell" in note_of(tried(-0.005, None, None)).text


@pytest.mark.parametrize(
    ("share", "low", "high", "cap", "again"),
    [
        (-0.005, -0.02, 0.01, "200", False),  # further on
        (-0.005, -0.02, 0.01, "10", True),  # the other way
        (-0.03, -0.05, -0.01, "200", True),  # it helped
        (-0.005, None, None, "200", True),  # nobody knows
    ],
)
def test_more_of_what_did_not_help_is_not_proposed(
    share: float, low: float | None, high: float | None, cap: str, again: bool
) -> None:
    found = not_again(finding(cap), tried(share, low, high))
    assert (found.severity is Severity.WARNING, bool(found.fix)) == (again, again)


def recorded(folder: Path, cap: int, width: int = 1) -> None:
    """The fixture as a recording of a script with this bucket cap."""
    folder.mkdir()
    for name in ("rank0.json.gz", "rank1.json.gz"):
        document = json.loads(gzip.decompress((FIXTURE / name).read_bytes()))
        document["advisor"]["built"] = {"ddp": {"bucket_cap_mb": cap, "made_by": ""}}
        for event in document["traceEvents"]:
            if event["name"] == "aten::addmm" and width > 1:
                (rows, inner), *_ = event["args"]["Input Dims"][1:2]
                event["args"]["Input Dims"][1] = [rows * width, inner]
        head = {"advisor": document.pop("advisor")}  # as the profiler writes it: before the events
        (folder / name).write_bytes(gzip.compress(json.dumps(head | document).encode(), 1))


@pytest.mark.long
@pytest.mark.slow
def test_the_recording_before_in_a_row_says_what_was_changed(tmp_path: Path) -> None:
    recorded(tmp_path / "t", 25)
    recorded(tmp_path / "t-2", 100)
    recorded(tmp_path / "t-3", 25, width=4)
    with api.load(tmp_path / "t-2") as run:
        (text,) = (note.text for note in run.report.runs[0].caveats if note.code == "tried")
    assert text.startswith("tried since t: bucket_cap_mb 25 to 100; steps are not surely shorter")
    for name in ("t", "t-3"):  # the first of its row, and another job
        with api.load(tmp_path / name) as run:
            assert not [note for note in run.report.runs[0].caveats if note.code == "tried"]


def test_only_numbered_folders_stand_in_a_row(tmp_path: Path) -> None:
    for name in ("t", "t-2", "t-4", "run-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank0.json.gz").write_bytes(b"damaged")
    before = {path.name: earlier.before(path) for path in tmp_path.iterdir()}
    assert before == {"t": None, "t-2": tmp_path / "t", "t-4": None, "run-1": None}
    assert earlier._head(tmp_path / "t" / "rank0.json.gz") == {}


def test_what_compares_is_imported_where_there_is_something_to_compare() -> None:
    code = "import sys, advisor.earlier; print('advisor.metrics.compare.figures' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
