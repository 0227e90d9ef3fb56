"""Where the steps come from is said in every format, and so is what belongs to none."""

from __future__ import annotations

import html
import re
from functools import cache
from pathlib import Path

import pytest

from advisor.engine import diagnose
from advisor.findings import FindingsReport
from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.report import render
from advisor.store import Store
from tests.engine.helpers import store_of

FORMATS = ("text", "html", "markdown", "github", "junit", "json")
CALL = {"rank": [0, 1], "repeat": 700, "op": "all_reduce", "process_group": "0", "group_size": 2,
        "bytes": 4, "dur_ns": 300_000, "exposed_ns": 300_000}  # fmt: skip


@cache
def report_of(source: str, steps: tuple[int, ...]) -> FindingsReport:
    """700 tiny calls on two ranks whose steps were told apart by ``source``."""
    tables = {
        "step": [{"rank": [0, 1], "step": [*steps], "step_ns": 700_000_000, "source": source}],
        "collective": [{**CALL, "step": [*steps]}],
        "redundant": [
            {"kind": "tiny", "process_group": "0", "op": "all_reduce", "bytes": 4,
             "calls_per_step": 700, "exposed_ns_per_step": 210_000_000}
        ],
    }  # fmt: skip
    with store_of(ranks=2, tables=tables) as store:
        return diagnose(store)


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(text)).replace("\\", "")


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("source", "code"),
    [("whole-trace", "steps-whole-trace"), ("collective-period", "steps-by-period")],
)
def test_where_steps_come_from_is_said_in_every_format(form: str, source: str, code: str) -> None:
    report = report_of(source, (0,) if source == "whole-trace" else (0, 1, 2, 3))
    (note,) = report.runs[0].caveats
    assert note.code == code
    assert flat(note.text)[1:] in flat(render(report, None, form))
    assert report.verdict.values["whole_trace"] is (source == "whole-trace")


@pytest.mark.slow
def test_annotated_steps_need_no_words() -> None:
    assert report_of("ProfilerStep", (0, 1, 2, 3)).runs[0].caveats == []
    assert report_of("annotation", (0, 1, 2, 3)).runs[0].caveats == []


def test_communication_in_no_step_is_counted(shared_data: Path) -> None:
    """The data's README: 71,516,523 ns over all 17 kernels, 47.20 ms without the 5 unlinked."""
    with Store.create() as store:
        ingest([str(shared_data / "ddp_8xMI300")], store)
        derive(store)
        (inside,) = store.con.execute("SELECT sum(comm_ns) FROM step_breakdown").fetchone() or (0,)
        assert inside == 47_200_310
        of_code = {note.code: note for note in diagnose(store).runs[0].caveats}
    caveat, missing = of_code["outside-steps"], of_code["ranks-not-read"]
    assert caveat.values["outside_ns"] == 71_516_523 - 47_200_310
    assert (caveat.values["rank"], caveat.values["stray_calls"], caveat.values["calls"]) == (
        0, 5, 17,
    )  # fmt: skip
    assert missing.values == {"missing": [*range(1, 8)], "ranks_read": 1, "world_size": 8}


def test_a_pause_that_makes_two_steps_long_is_noted_once() -> None:
    """Rank 0 saves for 900 ms at the end of step 2, and rank 1 waits for it in step 3."""
    odd = {"step_ns": 1_000_000_000, "left_out": "odd", "used": False}
    plain = {"rank": [0, 1], "step": [0, 1, 4, 5], "step_ns": 100_000_000}
    gap = {"rank": 0, "step": 2, "kind": "other", "idle_ns": 900_000_000}
    tables = {"step": [plain, {"rank": [0, 1], "step": [2, 3], **odd}], "host_gap": [gap]}
    with store_of(ranks=2, tables=tables) as store:
        notes = [note for note in diagnose(store).runs[0].caveats if note.code == "odd-step"]
    assert [note.values["steps"] for note in notes] == [[2, 3]]
    assert "teps 2, 3 took up to 10 times the median and are left out" in notes[0].text
    assert "the host of rank 0 launched nothing for 900 ms" in notes[0].text


@pytest.mark.parametrize(("step", "said"), [(None, False), (1, True)])
def test_calls_from_before_the_recording_are_no_missing_groups(
    step: int | None, said: bool
) -> None:
    """No trace has the group of a kernel that was launched before it began."""
    unknown = {**CALL, "step": step, "process_group": "not recorded (rank 0)"}
    calls = [{**CALL, "step": [0, 1, 2]}, {**unknown, "repeat": 5}]
    with store_of(ranks=2, steps=3, tables={"collective": calls}) as store:
        notes = diagnose(store).runs[0].notes
    assert ("groups-not-recorded" in {note.code for note in notes}) == said
