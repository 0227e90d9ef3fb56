"""Every text format carries the findings, survives hostile names and stays in its own grammar."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

from advisor.errors import AdvisorError
from advisor.findings import FindingsReport
from advisor.messages import SUMMARY, say
from advisor.report import FORMATS, render
from tests.report.support import make_healthy_report, make_report

HOSTILE = "\x1b[2Jx\n::error::<script>alert(1)</script>]]>|`%0A\x00é\u202e"


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_every_format_renders_without_a_store_and_ends_with_a_newline(format: str) -> None:
    for report in (make_report(), make_healthy_report()):
        text = render(report, None, format)
        assert report.verdict.title in text.replace("\\", "").replace("%25", "%")
        assert text.endswith("\n")


def test_unknown_format_names_the_known_ones() -> None:
    with pytest.raises(AdvisorError, match="unknown report format 'pdf'") as error:
        render(make_report(), None, "pdf")
    assert "html" in error.value.hint


def test_unknown_option_is_refused() -> None:
    with pytest.raises(TypeError):
        render(make_report(), None, "text", colour=True)


def test_text_fits_80_columns_and_has_verdict_why_next_first() -> None:
    lines = render(make_report(), None, "text", wrote="report.html", verbose=True).splitlines()
    assert lines[0].startswith("VERDICT  rank 2 is slow")
    assert lines[1].startswith("         Critical · ")
    assert lines[2].startswith("WHY      ")
    assert lines[3].startswith("NEXT     ")
    assert max(len(line) for line in lines) <= 80


def test_text_has_one_line_per_finding_worst_first() -> None:
    lines = render(make_report(), None, "text").splitlines()
    numbered = [line for line in lines if re.match(r"^ ?\d+  (critical|warning|info)", line)]
    assert [line.split()[1] for line in numbered] == ["critical", "warning"]
    assert "20 ms" in numbered[0]
    below = [lines[lines.index(line) + 1 :] for line in numbered]
    for finding, after in zip(make_report().findings, below, strict=True):
        assert any(line.split()[:1] == [finding.rule] for line in after[:2])


def test_a_first_view_holds_five_findings_and_the_verdict_s_own() -> None:
    """GIVEN a verdict on the last of seven THEN every view has it as the fifth, and two more."""
    report = make_report()
    several = [report.findings[0].model_copy(update={"id": f"{n}"}) for n in range(1, 8)]
    verdict = report.verdict.model_copy(update={"finding": "7"})
    report = report.model_copy(update={"findings": several, "verdict": verdict})
    text = render(report, None, "text")
    of_text = [line[:2] for line in text.splitlines() if line[4:12] == "critical"]
    assert of_text == [" 1", " 2", " 3", " 4", " 7"]
    assert say(SUMMARY, "more-findings", {"more": 2, "how": "-v"}) in text
    of_markdown = re.findall(r"^\| (\d) \| critical", render(report, None, "markdown"), re.M)
    assert of_markdown == ["1", "2", "3", "4", "7"]
    before, after = render(report, None, "html").split("<summary>2 more</summary>")
    assert before.count('<span class="number">') == 5
    assert after.count('<span class="number">') == 2
    whole = render(report, None, "text", verbose=True)
    assert len(re.findall(r"^ \d  critical ", whole, re.MULTILINE)) == 7


def test_text_is_plain_unless_colour_is_asked_for() -> None:
    assert "\x1b" not in render(make_report(), None, "text")
    coloured = render(make_report(), None, "text", color=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(make_report(), None, "text")


def test_text_of_a_narrow_terminal_keeps_its_width() -> None:
    lines = render(make_report(), None, "text", width=60, verbose=True).splitlines()
    assert max(len(line) for line in lines) <= 60


def test_verbose_text_shows_evidence_fix_and_doubts() -> None:
    text = render(make_report(), None, "text", verbose=True)
    for expected in ("Compute per rank", "wrong if", "verify", "swap the host", "replayed"):
        assert expected in text
        assert expected not in render(make_report(), None, "text")


def test_commands_to_copy_are_never_cut_and_have_one_label() -> None:
    report = make_report()
    folder = "/data/recordings/of/a/long/lasting/job/with/many/ranks"
    files = [f"{folder}/rank0.json.gz", f"{folder}/logs/a.log", f"{folder}/logs/b.log"]
    report.runs[0].inputs[:] = files
    tail = render(report, None, "text").splitlines()[-2:]
    assert tail == [f"Next: advisor open 1 {folder}", "      advisor explain straggler-rank"]


def test_no_gain_is_claimed_with_no_confidence() -> None:
    report = make_report()
    silent = report.findings[0].model_copy(update={"savings_ns": None, "savings_share": None})
    report = report.model_copy(update={"findings": [silent]})
    for format in ("text", "markdown", "html"):
        text = render(report, None, format, **({"verbose": True} if format == "text" else {}))
        assert "no estimate of the gain" in text or format == "html"
        assert "replayed: the traced step" not in text


def test_tail_counts_outcomes_and_names_the_broken_rule() -> None:
    tail = " ".join(render(make_report(), None, "text").split())
    assert "2 findings · 1 check passed · 1 needs more data (-v) · 1 failed" in tail
    verbose = render(make_report(), None, "text", verbose=True)
    assert "advisor explain nccl-log\n  - socket-transport: no NCCL log\n" in verbose
    assert "rule broken failed: no such column: x" in tail


def test_names_from_a_trace_cannot_steer_a_terminal() -> None:
    text = render(make_report(name=HOSTILE), None, "text", verbose=True)
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "\u202e" not in text


def test_json_reads_back_equal() -> None:
    report = make_report(name=HOSTILE)
    text = render(report, None, "json")
    assert FindingsReport.model_validate(json.loads(text)) == report


def test_junit_is_well_formed_and_counts_agree() -> None:
    root = ET.fromstring(render(make_report(name=HOSTILE), None, "junit"))
    suite = root.find("testsuite")
    assert suite is not None
    assert suite.attrib["tests"] == str(len(suite.findall("testcase")))
    assert suite.attrib["failures"] == str(len(suite.findall("testcase/failure"))) == "2"
    assert suite.attrib["errors"] == str(len(suite.findall("testcase/error"))) == "1"
    assert suite.attrib["skipped"] == str(len(suite.findall("testcase/skipped"))) == "1"


def test_junit_failures_start_at_the_severity_asked_for() -> None:
    root = ET.fromstring(render(make_report(), None, "junit", fail_on="critical"))
    failed = [
        case.attrib["name"] for case in root.iter("testcase") if case.find("failure") is not None
    ]
    assert failed == ["straggler-rank"]
    assert "Gradients" in "".join(output.text or "" for output in root.iter("system-out"))


def test_github_keeps_each_annotation_on_one_line() -> None:
    lines = render(make_report(name=HOSTILE), None, "github").splitlines()
    assert [line.split(" ")[0] for line in lines] == [
        "::error",
        "::warning",
        "::warning",
        "::notice",
    ]
    # A name that holds '%0A' or '::error::' must not decode into a line of its own.
    assert all(re.match(r"^::(error|warning|notice) title=[^:]*::", line) for line in lines)
    assert "%250A" in lines[0]


def test_markdown_escapes_names_and_draws_the_table() -> None:
    text = render(make_report(name=HOSTILE), None, "markdown")
    assert "<script>" not in text
    row = next(line for line in text.splitlines() if line.startswith("| 1 |"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 8


def test_a_place_is_folded_and_not_cut() -> None:
    report = make_report()
    place = "first all_gather, group data parallel, stage 3"
    report.findings[0] = report.findings[0].model_copy(update={"where": place})
    text = render(report, None, "text")
    assert "…" not in text.split("passed")[0]
    assert "stage 3" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("format", ["html", "markdown", "github", "text"])
def test_findings_of_several_runs_say_whose_they_are(format: str) -> None:
    one = make_report()
    names = ("night-shift", "day-shift")
    runs = [one.runs[0].model_copy(update={"run": name}) for name in names]
    finding = one.findings[0]
    findings = [finding.model_copy(update={"run": n, "id": f"straggler-{n}"}) for n in names]
    report = one.model_copy(update={"runs": runs, "findings": findings})
    shown = render(report, None, format)
    if format == "html":
        rows = re.findall(r'class="where"><span class="run">([^<]+)<', shown)
        assert tuple(rows) == names
    elif format == "markdown":
        assert "| # | severity | sure |" in shown
        assert all(f"| {name}: " in _unescaped(shown) for name in names)
        assert all(f". {name}: " in _unescaped(shown) for name in names)
    elif format == "github":
        assert all(f"title={name}%3A {finding.rule}" in shown for name in names)
    else:
        assert all(f"{name}: " in shown for name in names)


def test_what_is_to_be_pasted_stays_in_its_lines_in_a_chat() -> None:
    """GIVEN a step of two commands, the first with a comment WHEN said in a chat THEN both run."""
    report = make_report()
    code = "torchrun train.py  # N = devices\nadvisor diagnose ``` traces/"
    step = f"Record all ranks.\n{code}"
    verdict = report.verdict.model_copy(update={"next_steps": [step]})
    text = render(report.model_copy(update={"verdict": verdict}), None, "chat")
    fenced = text.split("```")
    assert len(fenced) == 3  # a name cannot open or close a fence
    assert fenced[1].strip("\n").splitlines() == [
        "torchrun train.py  # N = devices", "advisor diagnose  traces/"
    ]  # fmt: skip


def _unescaped(text: str) -> str:
    return text.replace("\\", "")
