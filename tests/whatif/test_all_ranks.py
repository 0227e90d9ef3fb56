"""Where ranks are missing, waiting is not taken for transfer: the question is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from advisor import api
from advisor.cli.whatif import command
from advisor.errors import AdvisorError
from advisor.report.sections import whatif
from tests.support.marks import long

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "change",
    ["link.bandwidth=x2", "net.bandwidth=x2", "late_rank=0", "bucket_cap_mb=25", ""],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_one_rank_of_four_is_refused(fixtures_dir: Path, change: str, form: str) -> None:
    # GIVEN rank 0 of a job whose rank 2 comes late: 13 % were promised of a link, 5 % it is
    one = str(fixtures_dir / "lab-ddp-slow-rank" / "rank0.json.gz")
    arguments = [one, "-q", "--format", form, *(["--set", change] if change else [])]
    with pytest.raises(AdvisorError) as caught:
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert "1 of 4 ranks" in caught.value.message
    assert "waiting for the others looks like transfer" in caught.value.message
    assert caught.value.hint == "needs the traces of all ranks"


def test_all_ranks_are_answered(fixtures_dir: Path) -> None:
    job = str(fixtures_dir / "lab-ddp-slow-rank")
    done = CliRunner().invoke(
        command, [job, "-q", "--format", "json", "--set", "link.bandwidth=x2"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["change"] == "link.bandwidth=x2"


def test_no_gain_is_replayed_where_ranks_are_missing(fixtures_dir: Path) -> None:
    # GIVEN one rank of two, of which all ten bucket caps were replayed before
    job = fixtures_dir / "gpt2-tiny-ddp-2-slow-rank"
    with api.load(job) as whole, api.load(job / "rank0.json.gz") as part:
        found = [
            {name for (name,) in run.store.con.execute("SELECT setting FROM whatif").fetchall()}
            for run in (whole, part)
        ]
    assert "bucket_cap_mb" in found[0]
    assert not found[1]


@pytest.fixture(scope="module")
def usual(fixtures_dir: Path) -> list[dict[str, Any]]:
    """The usual changes of the recording with a slow link."""
    job = str(fixtures_dir / "lab-fsdp2-slow-link")
    done = CliRunner().invoke(command, [job, "-q", "--format", "json"])
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_a_slow_link_s_own_gain_is_among_the_usual_changes(
    fixtures_dir: Path, usual: list[dict[str, Any]]
) -> None:
    """With the interval of the finding that rests on it, else that of the replay."""
    job = str(fixtures_dir / "lab-fsdp2-slow-link")
    rows = {row["change"]: row for row in usual}
    found = rows["the link of rank 1 as fast as its peers"]
    assert found["gain_low_ns"] <= found["gain_ns"] <= found["gain_high_ns"]
    assert found["gain_ns"] == found["measured_step_ns"] - found["step_ns"]
    with api.load(job) as run:
        (kept,) = run.store.con.execute(
            "SELECT gain_low_ns FROM whatif WHERE setting = 'restore-link' AND value = '1'"
        ).fetchall()
        lows = {item.savings_low_ns for item in run.report.findings if item.links}
    assert found["gain_low_ns"] in {*kept, *lows}


def test_no_change_is_listed_that_no_finding_asks_for(
    fixtures_dir: Path, usual: list[dict[str, Any]]
) -> None:
    """GIVEN a slow link, and a second gather that costs 37 ms for it is on that link THEN the link
    has the one gain; asked for by name, the gather is replayed too."""
    job = str(fixtures_dir / "lab-fsdp2-slow-link")
    gain = [row["change"] for row in usual if row["gain_ns"] > 0.01 * row["measured_step_ns"]]
    assert gain == ["the link of rank 1 as fast as its peers"]
    change = "reshard_after_forward=False"
    asked = CliRunner().invoke(command, [job, "-q", "--format", "json", "--set", change])
    assert json.loads(asked.stdout)[0]["gain_low_ns"] > 0


@pytest.mark.parametrize("name", ["gpt2-tiny-ddp-2-slow-rank", *long("lab-fsdp2-slow-link")])
def test_the_command_lists_what_the_page_lists(fixtures_dir: Path, name: str) -> None:
    """The same changes under the same names in the same order, with the same figures."""
    job = fixtures_dir / name
    done = CliRunner().invoke(command, [str(job), "-q"])
    with api.load(job) as run:
        section = whatif.build(run.store, "run", run.report.findings)
    assert section is not None and section.figures[0].table is not None
    listed = section.figures[0].table.rows
    changes = tuple(f"{row[0]} " for row in listed)
    lines = [line for line in done.stdout.splitlines() if line.startswith(changes)]
    assert listed
    for (change, gain, step), line in zip(listed, lines, strict=True):
        assert line.split() == f"{change} {step} {gain}".split()


@pytest.mark.long
def test_settings_are_named_as_users_write_them(fixtures_dir: Path) -> None:
    """What the list names, the command takes and gives the same gain for."""
    job = str(fixtures_dir / "lab-zero1-pauses")
    usual = json.loads(CliRunner().invoke(command, [job, "-q", "--format", "json"]).stdout)
    row = next(row for row in usual if row["change"] == "bucket_cap_mb=25")
    asked = CliRunner().invoke(command, [job, "-q", "--format", "json", "--set", row["change"]])
    assert json.loads(asked.stdout) == [row]


def test_quiet_reads_without_a_bar(fixtures_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.cli import _progress

    shown: list[bool] = []
    bar = _progress.progress_bar

    def watched(paths: list[Path], *, enabled: bool = True) -> object:
        shown.append(enabled)
        return bar(paths, enabled=enabled)

    monkeypatch.setattr(_progress, "progress_bar", watched)
    job = str(fixtures_dir / "lab-ddp-slow-rank")
    for flags, enabled in ((["-q"], False), ([], True)):
        shown.clear()
        done = CliRunner().invoke(command, [job, *flags, "--set", "late_rank=2"])
        assert done.exit_code == 0, done.output
        assert set(shown) == {enabled}


def test_a_cause_has_one_gain_in_the_command_and_in_the_findings(fixtures_dir: Path) -> None:
    """The replay's own interval is another than the finding's, which knows the waiting too."""
    job = fixtures_dir / "gpt2-tiny-ddp-2-slow-rank"
    printed = CliRunner().invoke(
        command, [str(job), "-q", "--set", "late_rank=1", "--format", "json"]
    )
    (said,) = json.loads(printed.stdout)
    with api.load(job) as run:
        late = next(item for item in run.report.findings if item.rule == "straggler-rank")
    assert (said["gain_low_ns"], said["gain_ns"], said["gain_high_ns"]) == (
        late.savings_low_ns, late.savings_ns, late.savings_high_ns
    )  # fmt: skip
    assert said["step_low_ns"] == said["measured_step_ns"] - late.savings_high_ns
