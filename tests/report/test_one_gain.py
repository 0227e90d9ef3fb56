"""One cause has one gain: the same three figures in every view of the same recording."""

from __future__ import annotations

import importlib
import json
import shutil
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner

from advisor import api
from advisor.cli.compare import command as compare
from advisor.cli.whatif import command as whatif
from advisor.errors import AdvisorError
from advisor.findings import FindingsReport
from advisor.messages import WHATIF, say
from advisor.report import summary
from advisor.report.replayed import replayed
from advisor.vocabulary.words import estimate
from tests.report.support import RUN, make_store
from tests.support.marks import long

pytestmark = pytest.mark.slow

SPOKEN = ("text", "html", "markdown", "chat", "github", "junit")


@pytest.fixture(
    scope="module",
    params=["gpt2-tiny-ddp-2-slow-rank", *long("lab-fsdp2-slow-link", "lab-zero1-pauses")],
)
def job(request: pytest.FixtureRequest, fixtures_dir: Path) -> Path:
    return fixtures_dir / str(request.param)


@pytest.fixture(scope="module")
def report_and_views(job: Path) -> tuple[FindingsReport, dict[str, str]]:
    with api.load(job) as run:
        views = {form: run.render(form) for form in (*SPOKEN, "json")}
        return run.report, views


@pytest.mark.long
def test_every_view_has_the_gain_of_the_verdict_s_finding(
    report_and_views: tuple[FindingsReport, dict[str, str]],
) -> None:
    report, views = report_and_views
    first = summary.of_verdict(report)
    assert first is not None and first.savings_ns is not None
    ends = (first.savings_low_ns, first.savings_high_ns)
    said = summary.per_step(first)
    if not first.is_of_unknown_cost():
        assert said == estimate(first.savings_ns, *ends)
    for form in SPOKEN:
        assert said in " ".join(views[form].split()), form
    values = report.verdict.values
    gain = tuple(values[name] for name in ("gain_low_ns", "gain_ns", "gain_high_ns"))
    assert gain == (ends[0], first.savings_ns, ends[1])
    (told,) = [one for one in json.loads(views["json"])["findings"] if one["id"] == first.id]
    assert (told["savings_ns"], told["savings_low_ns"], told["savings_high_ns"]) == (
        first.savings_ns, *ends
    )  # fmt: skip


def test_every_finding_stands_with_its_own_gain_in_junit(
    report_and_views: tuple[FindingsReport, dict[str, str]],
) -> None:
    report, views = report_and_views
    said = {
        str(case.get("name")): " ".join("".join(case.itertext()).split())
        for case in ET.fromstring(views["junit"]).iter("testcase")
    }
    gains = [item for item in report.findings if item.savings_ns]
    assert gains
    for item in gains:
        assert summary.per_step(item) in said[item.rule]


def test_what_a_replay_gives_is_what_the_finding_on_it_gives(
    job: Path, report_and_views: tuple[FindingsReport, dict[str, str]]
) -> None:
    """GIVEN the usual changes of the command THEN one that a finding rests on has its figures."""
    report, _ = report_and_views
    done = CliRunner().invoke(whatif, [str(job), "-q", "--format", "json"])
    rows = json.loads(done.stdout)
    for item in report.findings:
        for row in rows:
            if item.savings_ns and row["gain_ns"] == item.savings_ns:
                ends = (row["gain_low_ns"], row["gain_high_ns"])
                assert ends == (item.savings_low_ns, item.savings_high_ns)
    assert all(row["gain_low_ns"] <= row["gain_ns"] <= row["gain_high_ns"] for row in rows)


def test_a_change_that_was_asked_for_needs_no_finding(fixtures_dir: Path) -> None:
    """GIVEN a value by name THEN the words on what findings ask for have no place."""
    given = [str(fixtures_dir / "lab-zero1-loader-stall"), "-q", "--set", "bucket_cap_mb=100"]
    done = CliRunner().invoke(whatif, given)
    assert done.exit_code == 0
    assert "bucket_cap_mb=100" in done.stdout
    assert say(WHATIF, "none", {}) not in done.stdout


@pytest.mark.long
def test_a_change_that_cannot_be_replayed_has_the_gain_of_the_finding_that_makes_it(
    fixtures_dir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_replay(*_: object) -> None:
        raise AdvisorError("the trace does not show it")

    job = shutil.copytree(fixtures_dir / "lab-zero1-pauses", tmp_path / "job")  # no kept store
    module = importlib.import_module("advisor.whatif.annotate")
    monkeypatch.setattr(module, "_bucket_rows", lambda *_: ())
    with api.load(job) as run:
        (made,) = (it for it in run.report.findings if it.sets == {"bucket_cap_mb": "25"})
    monkeypatch.setattr("advisor.whatif.settings.predicted", no_replay)
    done = CliRunner().invoke(whatif, [str(job), "-q", "--set", "bucket_cap_mb=25"])
    assert done.exit_code == 0
    assert f"{made.title}: may save {summary.per_step(made)}" in done.stdout
    other = CliRunner().invoke(whatif, [str(job), "-q", "--set", "bucket_cap_mb=2"])
    assert isinstance(other.exception, AdvisorError)


@pytest.mark.long
def test_a_comparison_has_the_findings_gain_and_their_step_and_waiting(
    job: Path,
    report_and_views: tuple[FindingsReport, dict[str, str]],
    fixtures_dir: Path,
    tmp_path: Path,
) -> None:
    """GIVEN a healthy run and this one THEN no view of both has figures of its own."""
    report, _ = report_and_views
    base = fixtures_dir / "lab-ddp-compute-bound"
    done = CliRunner().invoke(
        compare, [str(base), str(job), "-q", "--format", "html,json", "-o", f"{tmp_path}/"]
    )
    assert done.exit_code == 0, done.output
    page = " ".join((tmp_path / "comparison.html").read_text("utf-8").split())
    (document,) = tmp_path.glob("*.json")
    other = json.loads(document.read_text("utf-8"))["runs"][1]
    assert other["step_ns"] == report.verdict.values["step_ns"]
    for item in report.findings[: summary.SHOWN]:
        if item.savings_ns:
            assert summary.per_step(item) in page.replace("\N{NO-BREAK SPACE}", " "), item.id
    late = [item for item in report.findings if item.rule == "straggler-rank"]
    if late:
        causes = other["causes"]
        assert [causes["late_rank"]] == late[0].ranks
        assert causes["late_cost_ns"] == late[0].evidence.facts["waiting_ns"]


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [
        ("without-calls", "tiny all_reduce 0", "all 4 ranks"),
        ("gradient-bits", "16 all_reduce 0", "all 4 ranks"),
        ("gradient-sync", "all_reduce", "(all_reduce)"),  # of a group that was not recorded
    ],
)
def test_a_change_to_calls_names_their_group_as_users_know_it(
    setting: str, value: str, named: str
) -> None:
    with make_store() as store:
        store.con.execute(
            "INSERT INTO whatif (run, setting, value, is_current, step_ns, step_low_ns,"
            " step_high_ns, measured_step_ns, replayed_step_ns, extrapolates, gain_low_ns,"
            " gain_high_ns) VALUES (?, ?, ?, false, 101, 100, 102, 100, 100, false, -2, -1)",
            [RUN, setting, value],
        )
        names = [it.name for it in replayed(store, RUN, []) if it.setting == setting]
    assert [named in name for name in names] == [True]
    assert not any(name.rstrip(")").endswith(" 0") for name in names)
