"""`advisor compare` on two recordings whose difference is known, and its statistics."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from advisor import api
from advisor.cli import _compare_tables as tables
from advisor.cli.compare import _judge, _timed, command
from advisor.errors import AdvisorError
from advisor.findings import Basis, Finding, Severity
from advisor.ingest.run_names import run_names
from advisor.metrics.compare.figures import CollectiveTotal, RunFigures, figures, operators
from advisor.metrics.compare.jobs import Unlike, unlike
from advisor.metrics.compare.new_findings import new_finding
from advisor.metrics.compare.runs import Comparison, Timed, comparison
from advisor.metrics.compare.significance import Difference, difference
from advisor.metrics.timeline.parts import KINDS, Parts
from advisor.report import comparison as rows
from advisor.report import comparison_figures, summary
from advisor.report.comparison import notes, warning
from advisor.vocabulary.words import lower_first


@pytest.fixture(scope="module")
def runs(fixtures_dir: Path) -> list[str]:
    return [
        str(fixtures_dir / "gpt2-tiny-ddp-2"),
        str(fixtures_dir / "gpt2-tiny-ddp-2-slow-rank"),
    ]


@dataclass(frozen=True)
class Compared:
    """What the command writes of both runs, in every format and with every figure."""

    status: int
    files: list[str]
    text: str
    document: dict[str, Any]
    html: str


@pytest.fixture(scope="module")
def written(runs: list[str], tmp_path_factory: pytest.TempPathFactory) -> Compared:
    folder = tmp_path_factory.mktemp("compared")
    options = ["--format", "text,json,html", "-o", str(folder), "-v", "--peak-tflops", "1"]
    done = CliRunner().invoke(
        command, [*runs, *options, "--fail-if", "step_time>3%"], standalone_mode=False
    )
    text, document, html = (
        (folder / f"comparison.{kind}").read_text(encoding="utf-8")
        for kind in ("txt", "json", "html")
    )
    files = sorted(path.name for path in folder.iterdir())
    return Compared(done.return_value, files, text, json.loads(document), html)


@pytest.mark.slow
def test_figures_of_a_recording_agree_with_its_construction(runs: list[str]) -> None:
    with api.load_runs(runs) as run:
        found = figures(run.store.con, "gpt2-tiny-ddp-2")
        assert found is not None
        # The recording's README: 4 steps, 13 all-reduces of 3,487,232 float32 gradients in all.
        assert (found.ranks, found.steps, found.strategy) == (2, 4, "ddp")
        (total,) = found.collectives
        assert (total.op, total.calls_per_step) == ("all_reduce", 13)
        assert total.bytes_per_step == 4 * 3_487_232
        parts = (
            found.compute_ns
            + found.exposed_comm_ns
            + found.exposed_memory_ns
            + found.other_ns
            + found.idle_ns
        )
        assert parts == pytest.approx(found.window_ns, abs=5), "means, each rounded"
        same = operators(run.store.con, *run_names(runs))
        assert same, "the same model, so operators differ in time only"
        assert {row.change for row in same} == {"changed"}


@pytest.mark.slow
def test_the_gate_fails_on_a_slower_run_and_passes_on_the_same(
    runs: list[str], written: Compared
) -> None:
    assert written.status == 1
    assert written.document["runs"][1]["difference"]["significant"]
    same = CliRunner().invoke(
        command, [runs[0], runs[0], "--fail-if", "step_time>3%"], standalone_mode=False
    )
    assert same.return_value == 0


def run_of(name: str, steps: list[int], **values: Any) -> RunFigures:
    """Figures of a run of which only the steps, and what is given, matter."""
    middle = sorted(steps)[len(steps) // 2]
    parts = dict.fromkeys(
        ("step_mad_ns", "compute_ns", "exposed_comm_ns", "exposed_memory_ns", "other_ns",
         "idle_ns", "comm_ns", "hidden_comm_ns"), 0,
    )  # fmt: skip
    return RunFigures(
        run=name, strategy=None, compute=None, ranks=1, steps=len(steps),
        step_samples_ns=steps, step_ns=middle,
        **{**parts, "world_size": 1, "window_ns": middle, "peak_memory_bytes": None, **values},
    )  # fmt: skip


def compared(base: RunFigures, other: RunFigures) -> Comparison:
    change = difference(base.step_samples_ns, other.step_samples_ns)
    return Comparison(runs=[base, other], theories=[None, None], differences=[change])


def test_too_few_steps_are_no_verdict() -> None:
    found = compared(run_of("a", [100, 101, 102]), run_of("b", [150, 151, 152]))
    lines = dict(comparison_figures.figures(found))
    assert lines["  significant"] == ["", "too few steps"]
    assert (lines["  vs base"][1], lines["  95 % low"][1]) == ("+50 %", "-")
    assert any("b: 3 and 3 steps are too few" in said and "at least 4" in said
               for said in notes(found))  # fmt: skip
    assert rows.headline(found).endswith("(3 and 3; 4 needed).")
    drifting = compared(run_of("a", [*range(100, 112)]), run_of("b", [*range(150, 162)]))
    assert "(12 and 12, neighbours alike; " in rows.headline(drifting)
    (verdict,) = _judge(("step_time", 0.03), found)
    assert (verdict.status, verdict.word) == (2, "INCONCLUSIVE")
    assert "at least 4 in each run (advisor record --steps" in verdict.line
    (verdict,) = _judge(("step_time", 0.03), compared(run_of("a", [100] * 7), run_of("b", [100])))
    assert "7 and 1 steps are too few" in verdict.line
    assert "at least 4 in each run" in verdict.line, "not 7: four beside seven have an interval"


@pytest.mark.parametrize(
    ("other", "code"),
    [
        ([100, 101, 102, 100, 350, 101, 100, 355], "long-steps"),
        ([100, 101, 102, 100, 103, 101, 100, 102], "same"),
        ([200, 201, 202, 200, 350, 201, 200, 355], "differs"),
        ([101, 350], "long-steps"),
    ],
)
def test_a_few_long_steps_are_in_the_mean_alone(other: list[int], code: str) -> None:
    """The medians of a run that pauses in some steps are those of one that does not."""
    found = compared(run_of("a", [100, 101, 102, 103] * 2), run_of("b", other))
    assert rows.outcome(found.base, found.runs[1], found.differences[0]) == code
    assert len(rows.headline(found)) <= 140


def test_of_runs_of_which_none_is_fastest_the_one_that_differs_most_is_said() -> None:
    base, same, slow = (run_of(name, [ms, ms + 1] * 4) for name, ms in
                        (("base", 100), ("same", 100), ("slow", 200)))  # fmt: skip
    alone = compared(base, slow)
    three = replace(alone, runs=[base, same, slow], theories=[None] * 3, differences=[
        difference(base.step_samples_ns, row.step_samples_ns) for row in (same, slow)])  # fmt: skip
    assert rows.headline(three) == rows.headline(alone)
    alike = replace(three, runs=[base, same, replace(same, run="third")],
                    differences=three.differences[:1] * 2)  # fmt: skip
    assert "third" not in rows.headline(alike).split(":")[0]


@pytest.mark.parametrize(
    ("metric", "other", "said"),
    [
        ("exposed_comm", {"exposed_comm_ns": 7, "exposed_samples_ns": [6.0, 7, 7, 8]}, "from zero"),
        (
            "exposed_comm",
            {"exposed_comm_ns": 7, "exposed_samples_ns": [0.0, 0, 0, 28]},
            "from zero, within noise: cannot tell",
        ),
        ("exposed_comm", {"exposed_comm_ns": 7, "exposed_samples_ns": [7.0]}, "too few recorded"),
        ("idle", {"idle_ns": 104, "idle_samples_ns": [104.0] * 4}, "+4 % is worse than 3 %"),
        ("idle", {"idle_ns": 102, "idle_samples_ns": [102.0] * 4}, ""),
        ("memory", {"peak_memory_bytes": 104}, "+4 % is worse than 3 %"),
        ("memory", {}, "not recorded in both"),
    ],
)
def test_other_gates_heed_noise_and_zeros(metric: str, other: dict[str, Any], said: str) -> None:
    base = run_of(
        "a", [100] * 4, idle_ns=100, idle_samples_ns=[100.0] * 4, peak_memory_bytes=100,
        exposed_samples_ns=[0.0] * 4,
    )  # fmt: skip
    judged = _judge((metric, 0.03), compared(base, run_of("b", [100] * 4, **other)))
    assert said in judged[0].line if said else judged == []


def test_what_grew_over_the_limit_within_noise_does_not_pass() -> None:
    """GIVEN steps that scatter so much that 40 % more shows nothing THEN the gate says so."""
    found = compared(run_of("a", [90, 100, 100, 150]), run_of("b", [80, 140, 140, 150]))
    (verdict,) = _judge(("step_time", 0.03), found)
    assert verdict.status == 2
    assert re.search(r"step_time \+40 % \(-.*\), within noise: cannot tell", verdict.line)
    assert _judge(("step_time", 0.5), found) == []


def test_exposed_communication_of_operations_adds_up(runs: list[str]) -> None:
    """GIVEN calls that overlap each other THEN what they share is counted once."""
    with api.load(runs[0]) as run:
        known = figures(run.store.con, run.store.con.execute("SELECT run FROM run").fetchone()[0])
        (alone,) = run.store.con.execute(
            "SELECT sum(c.exposed_ns) / (SELECT count(*) FROM step WHERE used) "
            "FROM collective c JOIN step s USING (rank, step) WHERE s.used"
        ).fetchone()
    assert known is not None
    shared = sum(total.exposed_ns_per_step or 0 for total in known.collectives)
    assert alone > 1.2 * known.exposed_comm_ns  # as two calls at once each count it
    assert shared == pytest.approx(known.exposed_comm_ns, abs=len(known.collectives))


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (["runs/lr-0.1", "runs/lr-0.01/"], ["lr-0.1", "lr-0.01"]),
        (["v1.2/a.pt.trace.json.gz", "b.json"], ["a", "b"]),
        (["v1.2.json.gz", "v1.3.duckdb"], ["v1.2", "v1.3"]),
        (["old/ddp", "new/ddp"], ["old-ddp", "new-ddp"]),
        (["/lab/s1/old/traces", "/lab/s1/new/traces"], ["old-traces", "new-traces"]),
        (["same", "same"], ["same-1", "same-2"]),
        (["."], ["."]),
    ],
)
def test_runs_keep_the_dots_in_their_names(paths: list[str], names: list[str]) -> None:
    assert run_names(paths) == names


def test_one_run_is_told_what_to_compare_it_with(runs: list[str], tmp_path: Path) -> None:
    with pytest.raises(AdvisorError, match="at least two runs") as refused:
        CliRunner().invoke(command, runs[:1], standalone_mode=False, catch_exceptions=False)
    assert f"advisor diagnose {runs[0]}" in refused.value.hint
    for name in ("ddp", "single"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rank0.json.gz").touch()
    with pytest.raises(AdvisorError) as refused:
        CliRunner().invoke(command, [str(tmp_path)], standalone_mode=False, catch_exceptions=False)
    assert f"advisor compare {tmp_path}/single {tmp_path}/ddp" in refused.value.hint


@pytest.mark.slow
def test_a_folder_takes_every_format_under_a_name_of_its_own(written: Compared) -> None:
    assert written.files == ["comparison.html", "comparison.json", "comparison.txt"]
    assert "per step" in written.text


def test_an_unknown_metric_is_refused(runs: list[str]) -> None:
    with pytest.raises(AdvisorError, match="step_tyme"):
        CliRunner().invoke(
            command, [*runs, "--fail-if", "step_tyme>3%"], standalone_mode=False,
            catch_exceptions=False,
        )  # fmt: skip


@pytest.mark.slow
def test_every_column_of_a_study_is_printed(written: Compared) -> None:
    for title in (
        "speed-up", "tokens/s", "  mean ms", "idle ms", "compute ms",
        "non-compute ms", "busy (kernel) ms", "compute %", "overlap %", "exposed comm ms",
        "peak memory MB",
        "all_reduce calls", "  total ms", "  average us",
    ):  # fmt: skip
        assert f"\n{title} " in written.text, title


def test_theory_is_left_out_of_recordings_that_do_not_say_enough(written: Compared) -> None:
    # These were recorded before the sizes were.
    assert [row["theory"] for row in written.document["runs"]] == [None, None]
    assert written.document["runs"][0]["speed_up"] == 1


def test_a_kind_of_time_has_one_figure_in_both_tables(written: Compared) -> None:
    lines = written.text.splitlines()
    for short, long in (("compute ", "compute ms"), ("idle ", "idle ms"),
                        ("waiting for a peer (mean of ranks) ", "  waiting ms"),
                        ("exposed transfer ", "  transfer ms")):  # fmt: skip
        said = next(line for line in lines if line.startswith(short))
        every = next(line for line in lines if line.startswith(f"{long} "))
        assert re.findall(r"[\d.]+(?= ms)", said)[1:] == re.findall(r"[\d.]+", every), short


@pytest.mark.long
@pytest.mark.slow
def test_the_html_page_has_every_figure_of_the_text(written: Compared) -> None:
    html = written.html.replace("\N{NO-BREAK SPACE}", " ")
    text = written.text
    figures = text[text.index("per step  ") :]
    lines = figures[: figures.index("\n\n")].splitlines()[1:]
    assert len(lines) > 20
    for line in lines:
        title = line[:18]
        begins = "" if title.startswith(" ") else ">"
        assert re.search(f"{begins}[^<>]*{re.escape(escape(title.strip()))}</t", html), title
        for value in line[18:].split("  "):
            assert escape(value.strip()) in html
    headline = text.splitlines()[0]
    assert escape(headline) in html
    assert "slower than gpt2-tiny-ddp-2, because rank 1" in headline
    assert "Peak memory on a CPU includes Python" in html
    assert "<code>advisor profile</code>" in html


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Difference(0.5, 0.4, 0.6, (9, 9)), "compute takes 50 ms more per step"),
        (Difference(0.5, None, None, (3, 3)),
         "compute takes 50 ms more per step (too few steps to be sure)"),
        (Difference(0.5, -0.1, 0.6, (9, 9)), "within noise"),
        (Difference(0.002, None, None, (3, 3)), "too few steps to tell"),
    ],
)  # fmt: skip
def test_a_row_of_several_runs_says_why_and_how_sure(change: Difference, said: str) -> None:
    def parts(name: str, compute_ns: float) -> Parts:
        return Parts(name, compute_ns, {**dict.fromkeys(KINDS, 0.0), "compute": compute_ns})

    runs = [run_of("a", [100]), run_of("b", [150]), run_of("c", [100])]
    found = Comparison(
        runs=runs, theories=[None] * 3, differences=[change, change],
        parts={"a": parts("a", 100e6), "b": parts("b", 150e6), "c": parts("c", 100e6)},
    )  # fmt: skip
    assert rows.matters(found)[1][3] == said
    # A terminal has those rows alone, and where the rest is; a file has every figure.
    short, long = (tables.text(found, whole=whole) for whole in (False, True))
    assert "busy (kernel) ms" in long and "busy (kernel) ms" not in short
    assert len(short.strip().splitlines()) == 2 + len(rows.matters(found)) + 2
    assert "\x1b" not in short
    assert tables.text(found, whole=False, color=True).startswith("\x1b[1m")


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"all_gather": 25, "all_reduce": 1}, {"all_gather": 9.8, "all_reduce": 1},
         [["all_gather calls", "-15", "25", "9.8"]]),
        ({"all_gather": 8}, {}, [["all_gather calls", "-8", "8", "0"]]),
        # An evaluation in one of the recordings, and a call in every fourth step.
        ({"all_gather": 10, "barrier": 0.25}, {"all_gather": 11.5}, []),
    ],
    ids=["gathered less often", "no more", "nearly as often"],
)  # fmt: skip
def test_calls_that_a_change_saves_are_said_where_the_step_is_within_noise(
    before: dict[str, float], after: dict[str, float], said: list[list[str]]
) -> None:
    def run(name: str, calls: dict[str, float]) -> RunFigures:
        ops = [CollectiveTotal(op, count, None, 10, 10) for op, count in calls.items()]
        return run_of(name, [100, 101, 99, 100], collectives=ops)

    found = compared(run("a", before), run("b", after))
    parts = {name: Parts(name, 100.0, dict.fromkeys(KINDS, 0.0)) for name in ("a", "b")}
    found = replace(found, parts=parts)
    assert rows.matters(found)[1:] == said
    # Runs of other jobs differ in calls anyway.
    unlike = {"b": [Unlike("ranks", "2", "4")]}
    assert len(rows.matters(replace(found, unlike=unlike))) == 1


def cause_of(run: str, saving: int, **values: Any) -> Finding:
    given = {"rule": "straggler-rank", "ranks": [1], "basis": Basis.RULE, "probability": 0.95}
    return Finding(
        id=f"{run}-{saving}", run=run, severity=Severity.CRITICAL, title="Rank 1 is late",
        message="", savings_ns=saving, **{**given, **values},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("findings", "chosen"),
    [
        ([cause_of("b", 40)], ("b-40", 40, True)),
        # The base has it too: what it costs more is why.
        ([cause_of("a", 10), cause_of("b", 60)], ("b-60", 50, False)),
        ([cause_of("a", 60), cause_of("b", 60)], None),
        ([cause_of("a", 40), cause_of("b", 60)], None),  # of both, and less than half
        ([cause_of("a", 60, ranks=[0]), cause_of("b", 60)], ("b-60", 60, True)),
        # Too little of the difference; what is no cause; what may not be.
        ([cause_of("b", 9)], None),
        ([cause_of("b", 90, basis=Basis.LOSS), cause_of("b", 80, basis=Basis.OPTION)], None),
        ([cause_of("b", 50, ranks=[2], probability=0.3), cause_of("b", 40)], ("b-40", 40, True)),
    ],
)
def test_the_cause_that_only_the_slower_run_has_is_why(
    findings: list[Finding], chosen: tuple[str, int, bool] | None
) -> None:
    """GIVEN a step that grows from 100 to 150 ns."""
    found = new_finding(findings, "a", "b", 50)
    said = None if found is None else (found.finding.id, found.more_ns, found.is_new)
    assert said == chosen


@pytest.mark.parametrize("probability", [0.7, 0.95])
def test_a_cause_is_as_sure_as_in_its_own_report(probability: float) -> None:
    found = compared(run_of("a", [100, 103, 101, 102] * 8), run_of("b", [150, 153, 151, 152] * 8))
    cause = cause_of("b", 40, probability=probability)
    found = replace(found, findings=[cause])
    assert lower_first(summary.title(cause)) in rows.why(found, found.runs[1], found.differences[0])


@pytest.mark.parametrize(
    ("base", "other", "codes"),
    [
        ({}, {}, []),
        ({"world_size": 4}, {"world_size": 8}, ["ranks"]),
        ({"world_size": 4}, {"world_size": None}, []),
        ({"devices": ["H100"]}, {"devices": ["A100"]}, ["devices"]),
        ({"devices": []}, {"devices": ["A100"]}, []),
        ({"tokens_per_step": 512}, {"tokens_per_step": 1024}, ["tokens"]),
        ({"gradient_elements": 3.1e6}, {"gradient_elements": 2.1e6}, ["gradients"]),
        # Padded; reduced once per micro-batch, or sharded: what one may change in a job.
        ({"gradient_elements": 3.1e6}, {"gradient_elements": 3.15e6}, []),
        ({"gradient_elements": 3.1e6}, {"gradient_elements": 12.4e6}, []),
        ({"gradient_elements": None}, {"gradient_elements": 12.4e6}, []),
    ],
)
def test_of_another_job_no_finding_is_the_cause(
    base: dict[str, Any], other: dict[str, Any], codes: list[str]
) -> None:
    """GIVEN a run that is slower, and a finding that costs all of the difference."""
    one, two = run_of("a", [100] * 9, **base), run_of("b", [150] * 9, **other)
    found = Comparison(
        runs=[one, two], theories=[None] * 2, findings=[cause_of("b", 50)],
        differences=[difference(one.step_samples_ns, two.step_samples_ns)],
        unlike={"b": parts} if (parts := unlike(one, two)) else {},
    )  # fmt: skip
    assert [part.code for part in found.unlike.get("b", [])] == codes
    assert [part["code"] for part in tables.document(found)["runs"][1]["unlike"]] == codes
    assert (rows.cause(found, two) is None) == bool(codes)
    assert (rows.why(found, two, found.differences[0]) == "") == bool(codes)
    # It is the first thing that is read.
    assert tables.text(found, whole=False).startswith(warning(found))
    assert bool(warning(found)) == bool(codes)


def test_the_kinds_of_a_compared_step_add_up_to_the_step_that_every_view_names() -> None:
    """Shares are of the mean step, which a few long ones make longer than the median."""
    parts = Parts("a", 120.0, {**dict.fromkeys(KINDS, 0.0), "compute": 90.0, "wait": 30.0})
    assert parts.of_step(100).ns["compute"] == 75
    assert sum(parts.of_step(100).ns.values()) == parts.of_step(100).window_ns == 100


@pytest.mark.slow
def test_the_figures_of_a_recording_say_whose_job_it_is(runs: list[str]) -> None:
    """GIVEN a gpt2 of 3.49 million parameters, all reduced once per step."""
    with api.load(runs[0]) as run:
        found = figures(run.store.con, "run")
        parts = comparison(run.store.con, {"run": Timed()}).parts["run"]
    assert found is not None
    assert (found.devices, round(found.gradient_elements or 0)) == (["CPU"], 3_487_232)
    assert parts.window_ns == found.step_ns


@pytest.mark.slow
def test_a_run_is_slower_because_of_the_cause_that_it_alone_is_diagnosed_with(
    runs: list[str], written: Compared
) -> None:
    """Seen from either run, and where the other was named first."""
    turned = CliRunner().invoke(command, [*runs[::-1], "--format", "json"], standalone_mode=False)
    for document in (written.document, json.loads(turned.stdout)):
        base, other = document["runs"]
        assert base["cause"] is None
        cause = other["cause"]
        assert (cause["run"], cause["rule"]) == ("gpt2-tiny-ddp-2-slow-rank", "straggler-rank")
        assert (cause["ranks"], cause["is_new"]) == ([1], True)


@pytest.mark.long
@pytest.mark.slow
def test_three_runs_are_compared_with_the_first(runs: list[str]) -> None:
    done = CliRunner().invoke(command, [*runs, runs[0], "--format", "json"], standalone_mode=False)
    document = json.loads(done.stdout)
    base, slow, same = document["runs"]
    assert base["difference"] is None
    assert slow["difference"]["low"] > 0
    assert (same["difference"]["share"], same["difference"]["significant"]) == (0, False)
    assert set(document["operators"]) == {slow["run"], same["run"]}
    assert document["operators"][slow["run"]]
    assert document["operators"][same["run"]] == []


@pytest.mark.slow
@pytest.mark.long
def test_a_page_of_many_runs_stays_small(fixtures_dir: Path) -> None:
    """GIVEN five runs THEN the base and the one that differs most have sections of their own."""
    names = ["lab-ddp-compute-bound", "lab-ddp-slow-rank", "lab-ddp-slow-link", "lab-ddp-blocking"]
    with api.load_runs([str(fixtures_dir / name) for name in [*names, names[0]]]) as run:
        page = run.render("html")
    assert len(page.encode()) < 210_000
    assert len(set(re.findall(r'id="collectives-([^"]+)-title"', page))) == 2
    assert 'id="collectives-lab-ddp-blocking-title"' in page  # the base


@pytest.mark.slow
def test_that_nothing_changed_is_said(runs: list[str]) -> None:
    done = CliRunner().invoke(command, [runs[0], runs[0], "-v"], standalone_mode=False)
    assert "every step takes exactly what it takes in" in done.stdout
    assert "none changed in calls or time" in done.stdout
    assert "+0.000 ms" not in done.stdout
    with api.load_runs([runs[0], runs[0]]) as run:
        assert "No operator changed in calls or time against" in run.render("html")
        found = comparison(run.store.con, dict.fromkeys(run_names([runs[0], runs[0]]), Timed()))
    assert "do not differ beyond noise" in rows.headline(found)


def _timed_as(path: str, folder: Path, name: str, samples_ms: list[float]) -> str:
    """A copy of a recording that says its steps took this long without the profiler."""
    copy = folder / name
    shutil.copytree(path, copy)
    samples = [round(1e6 * value) for value in samples_ms]
    document = {"step_ns": {"samples": samples}, "tokens_per_step": 1}
    (copy / "profile.json").write_text(json.dumps(document), encoding="utf-8")
    return str(copy)


@pytest.mark.long
@pytest.mark.slow
def test_steps_timed_without_the_profiler_say_what_is_noise_and_no_other_step_time(
    runs: list[str], written: Compared, tmp_path: Path
) -> None:
    """One step time in every view: that of the traced steps, whatever profile.json has."""
    fast = _timed_as(runs[0], tmp_path, "fast", [103, 97, 107, 99, 111, 101, 109, 104.8])
    slow = _timed_as(runs[1], tmp_path, "slow", [43, 40, 46, 41, 47, 42, 45, 44])
    with api.load_runs([fast, slow]) as run:
        timed = {name: _timed(Path(path)) for name, path in (("fast", fast), ("slow", slow))}
        found = comparison(run.store.con, timed)
    untimed = written.document["runs"]
    assert [row.step_ns for row in found.runs] == [row["step_ns"] for row in untimed]
    change = found.differences[0]
    assert change.share == untimed[1]["difference"]["share"] > 0
    # Without the profiler the other run is faster: the two do not agree.
    assert (change.significant, change.high) == (False, change.share)
    # Another run that has no such steps changes nothing between these two.
    with api.load_runs([fast, slow, runs[0]]) as run:
        of_three = comparison(run.store.con, {**timed, "gpt2-tiny-ddp-2": Timed()})
    assert of_three.differences[0] == change
    assert of_three.differences[1].steps == (4, 4)
    lines = dict(comparison_figures.figures(found))
    assert lines["unprofiled ms"] == ["104 (8)", "44 (8)"]
    assert [row.unprofiled_step_ns for row in found.runs] == [103_900_000, 43_500_000]
