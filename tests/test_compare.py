"""`advisor compare` on two recordings whose difference is known, and its statistics."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from advisor import api
from advisor.cli.compare import command
from advisor.errors import AdvisorError
from advisor.metrics.compare import difference, figures, operators


def test_a_difference_that_is_noise_is_not_significant() -> None:
    rng = np.random.default_rng(0)
    wrong = 0
    for seed in range(100):
        a, b = (list((1e6 * np.exp(0.05 * rng.standard_normal(20))).astype(int)) for _ in "ab")
        wrong += difference(a, b, seed=seed).significant
    assert wrong <= 12


def test_a_real_difference_is_significant_and_inside_the_interval() -> None:
    rng = np.random.default_rng(1)
    a = list((1e6 * np.exp(0.01 * rng.standard_normal(20))).astype(int))
    b = list((1.1e6 * np.exp(0.01 * rng.standard_normal(20))).astype(int))
    found = difference(a, b)
    assert found.significant
    assert found.low <= 0.1 <= found.high


@pytest.fixture(scope="module")
def runs(fixtures_dir: Path) -> list[str]:
    return [
        str(fixtures_dir / "gpt2-tiny-ddp-2"),
        str(fixtures_dir / "gpt2-tiny-ddp-2-slow-rank"),
    ]


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
        same = operators(run.store.con, *api.run_names(runs))
        assert same, "the same model, so operators differ in time only"
        assert {row.change for row in same} == {"changed"}


def test_the_gate_fails_on_a_slower_run_and_passes_on_the_same(runs: list[str]) -> None:
    runner = CliRunner()
    slower = runner.invoke(
        command,
        [*runs, "--fail-if", "step_time>3%", "--format", "json"],
        standalone_mode=False,
    )
    assert slower.return_value == 1
    document = json.loads(slower.stdout)
    assert document["runs"][1]["difference"]["significant"]
    same = runner.invoke(
        command, [runs[0], runs[0], "--fail-if", "step_time>3%"], standalone_mode=False
    )
    assert same.return_value == 0


def test_an_unknown_metric_is_refused(runs: list[str]) -> None:
    with pytest.raises(AdvisorError, match="step_tyme"):
        CliRunner().invoke(
            command, [*runs, "--fail-if", "step_tyme>3%"], standalone_mode=False,
            catch_exceptions=False,
        )  # fmt: skip


def test_every_column_of_a_study_is_printed(runs: list[str]) -> None:
    done = CliRunner().invoke(command, runs, standalone_mode=False)
    for title in (
        "training s", "speed-up", "tokens/s", "idle ms", "compute ms", "non-compute ms",
        "busy (kernel) ms", "compute %", "overlap %", "exposed comm ms", "peak memory MB",
        "all_reduce calls", "  total ms", "  average us", "MFU", "  estimate MB",
    ):  # fmt: skip
        assert f"\n{title} " in done.stdout, title


def test_theory_is_left_out_of_recordings_that_do_not_say_enough(runs: list[str]) -> None:
    done = CliRunner().invoke(command, [*runs, "--format", "json"], standalone_mode=False)
    document = json.loads(done.stdout)
    # These were recorded before the sizes were.
    assert [row["theory"] for row in document["runs"]] == [None, None]
    assert document["runs"][0]["speed_up"] == 1


def test_the_html_page_has_every_figure_of_the_text(runs: list[str], tmp_path: Path) -> None:
    page = tmp_path / "compare.html"
    runner = CliRunner()
    done = runner.invoke(
        command, [*runs, "--format", "html", "-o", str(page)], standalone_mode=False
    )
    assert done.exit_code == 0, done.output
    html = page.read_text(encoding="utf-8").replace("\N{NO-BREAK SPACE}", " ")
    text = runner.invoke(command, runs, standalone_mode=False).stdout
    lines = text[: text.index("\n\n")].splitlines()[1:]
    assert len(lines) > 20
    for line in lines:
        title = line[:18]
        begins = "" if title.startswith(" ") else ">"
        assert f"{begins}{escape(title.strip())}</t" in html, title
        for value in line[18:].split("  "):
            assert escape(value.strip()) in html
    assert "differ in step time from gpt2-tiny-ddp-2 beyond noise" in html


def test_three_runs_are_compared_with_the_first(runs: list[str]) -> None:
    done = CliRunner().invoke(command, [*runs, runs[0], "--format", "json"], standalone_mode=False)
    document = json.loads(done.stdout)
    base, slow, same = document["runs"]
    assert base["difference"] is None
    assert slow["difference"]["low"] > 0
    assert (same["difference"]["share"], same["difference"]["significant"]) == (0, False)
    assert set(document["operators"]) == {slow["run"], same["run"]}
    assert all(row["ns_base"] == row["ns_other"] for row in document["operators"][same["run"]])
