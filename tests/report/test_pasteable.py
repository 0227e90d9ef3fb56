"""What a reader is told to paste can be pasted, in every format."""

from __future__ import annotations

import pytest

from advisor.findings import FindingsReport
from advisor.report import render
from advisor.report.commands import inline_code, is_command, step_code
from advisor.report.pasted import filled_in
from tests.report.support import make_report


def report_with(step: str) -> FindingsReport:
    report = make_report()
    report.verdict = report.verdict.model_copy(update={"next_steps": [step]})
    report.findings[0] = report.findings[0].model_copy(update={"verify": step, "fix": ["do so"]})
    report.findings = report.findings[:1]
    report.runs[0] = report.runs[0].model_copy(update={"inputs": ["traces/rank0.json"]})
    return report


@pytest.mark.parametrize("format", ["text", "markdown", "junit", "html", "json"])
def test_the_recording_stands_in_the_place_of_old(format: str) -> None:
    report = report_with("prove it: advisor compare OLD NEW: `step ms` must fall")
    text = " ".join(render(filled_in(report), None, format).split())
    assert "advisor compare traces/ NEW" in text
    assert "OLD NEW" not in text


def test_of_several_recordings_each_is_compared_alone() -> None:
    """`compare` takes one recording at a time, whatever `diagnose` was given."""
    report = report_with("prove it: advisor compare OLD NEW: `step ms` must fall")
    first = report.runs[0].model_copy(update={"inputs": ["all/a/0.json", "all/a/1.json"]})
    other = first.model_copy(update={"run": "other", "inputs": ["all/b/0.json"]})
    report.command, report.runs = "advisor diagnose all", [first, other]
    assert "advisor compare all/a NEW" in filled_in(report).findings[0].verify
    report.command, report.runs = "advisor diagnose all", [first]
    assert "advisor compare all NEW" in filled_in(report).findings[0].verify


@pytest.mark.parametrize("flags", ["-o traces/", "--output traces/", "--store traces/run.duckdb"])
def test_where_a_report_was_written_is_no_place_to_read(flags: str) -> None:
    report = report_with("prove it: advisor compare OLD NEW: `step ms` must fall")
    report.command = f"advisor diagnose traces {flags} --format html"
    assert "advisor compare traces NEW" in filled_in(report).findings[0].verify


def test_markdown_shows_code_as_code_and_nothing_else_as_markup() -> None:
    page = render(report_with("look at `others wait ms` of <b>rank*2</b>"), None, "markdown")
    assert "1. look at `others wait ms` of \\<b\\>rank\\*2\\</b\\>" in page


@pytest.mark.parametrize("text", ["one ` only", "``", "` `", "`<img src=x>` and ` more"])
def test_stray_backticks_open_no_code(text: str) -> None:
    page = render(report_with(text), None, "markdown")
    line = next(line for line in page.splitlines() if line.startswith("1. "))
    assert line.count("`") == line.count("\\`")


def test_a_quoted_setting_is_code_as_a_whole() -> None:
    page = render(report_with("try NCCL_ALGO='allreduce:tree,ring' (2.24+)"), None, "html")
    assert "<code>NCCL_ALGO=&#39;allreduce:tree,ring&#39;</code> (2.24+)" in page


@pytest.mark.parametrize("run", ["traces", "shared/data/x", "advisor-traces"])
def test_a_command_on_a_folder_of_any_name_is_code_as_a_whole(run: str) -> None:
    said = f"prove it: advisor compare {run} NEW: `step ms` must fall"
    assert f"<code>advisor compare {run} NEW</code>: <code>step ms</code>" in inline_code(said)
    assert inline_code(f"advisor open rank-40 {run}") == f"<code>advisor open rank-40 {run}</code>"
    assert is_command(f"advisor open rank-40 {run}")
    assert "<code>advisor open</code> shows a crop" in inline_code("advisor open shows a crop")


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("to try, for up to 1 ms per step: num_workers=4", "num_workers=4"),
        ("Garbage collection: gc.disable() after start-up", "gc.disable()"),
        ("Run dmesg -T | grep -i kill on that host.", "dmesg -T | grep -i kill"),
        ("Test the path with perftest.", "perftest"),
        ("and diagnose with dcgmi diag -r 3.", "dcgmi diag -r 3"),
        ("Find who holds it (nvidia-smi): end it", "nvidia-smi"),
        ("reach it (nc -vz HOST PORT), and", "nc -vz HOST PORT"),
        ("Use docker run --ipc=host, and fewer", "docker run --ipc=host"),
        ("Data loading: DataLoader(num_workers=N), so that", "DataLoader(num_workers=N)"),
        ("FSDP2: call model.unshard() before loading", "model.unshard()"),
        ("on RoCE set NCCL_IB_GID_INDEX as the network needs", "NCCL_IB_GID_INDEX"),
        ("a smaller bucket_cap_mb leaves less", "bucket_cap_mb"),
    ],
)
def test_code_inside_a_sentence_is_set_as_code(said: str, code: str) -> None:
    assert f"<code>{code}</code>" in inline_code(said)


def test_a_bracket_behind_a_word_makes_no_code() -> None:
    said = "record more step(s) on the rank(s) that wait (samples, tokens)"
    assert "<code>" not in inline_code(said)


def test_below_the_words_of_a_step_stands_code_as_it_is_to_be_typed() -> None:
    step = "Send 16 MB:\nif b:\n    b(25, x=1)  # <all>"
    lines = ('<span class="line">if b:</span>',
             '<span class="line in1">    b(25, x=1)  # &lt;all&gt;</span>')  # fmt: skip
    code = "\n".join(lines)
    assert step_code(step) == f'Send 16\u00a0MB:<code class="lines">{code}</code>'
    page = render(report_with(step), None, "html")
    assert f'<code class="lines copy">{code}</code>' in page
