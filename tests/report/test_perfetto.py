"""The trace of a finding's window: whole, on one clock, annotated; served to one page only."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import advisor
from advisor.cli import main
from advisor.cli.open import choose
from advisor.errors import AdvisorError
from advisor.report.perfetto import deep_link, finding_trace
from advisor.store.store import Store
from tests.report.support import EPOCH_NS, MS, RUN, make_report, make_store

OFFSET_NS = 7_123_456_789


@pytest.fixture
def store() -> Iterator[Store]:
    """The test data with one kernel per rank and step at 60 ms; rank 3's clock is 7 s behind."""
    with make_store() as made:
        made.con.execute(
            "INSERT INTO event (run, rank, event_id, name, category, class, stream, start_ns,"
            " dur_ns) SELECT run, rank, step, 'matmul \"<b>\"', 'kernel', 'compute', 7,"
            " start_ns + ?, ? FROM step",
            [60 * MS, 5 * MS],
        )
        for table, columns in {
            "event": ["start_ns"],
            "activity": ["start_ns", "end_ns"],
            "collective": ["start_ns", "end_ns"],
            "step": ["start_ns", "end_ns"],
        }.items():
            changes = ", ".join(f"{column} = {column} - {OFFSET_NS}" for column in columns)
            made.con.execute(f"UPDATE {table} SET {changes} WHERE rank = 3")
        made.con.execute("UPDATE rank SET clock_offset_ns = ? WHERE rank = 3", [OFFSET_NS])
        yield made


def _slices(text: str) -> list[dict[str, Any]]:
    return [event for event in json.loads(text)["traceEvents"] if event["ph"] == "X"]


def test_events_of_the_window_are_there_and_others_are_not(store: Store) -> None:
    finding = make_report().findings[0]
    crop = finding_trace(store, finding, context=0)
    kernels = [s for s in _slices(crop.text) if s["cat"] == "kernel"]
    assert len(kernels) == crop.events == 4  # one per rank, of step 0 alone
    assert crop.left_out == 0
    assert finding_trace(store, finding, context=1.5).events == 8  # step 1 comes in sight


def test_what_is_longer_than_the_crop_is_cut_at_its_ends(store: Store) -> None:
    """Else the file is as long as the recording, and a reader has to look for the window."""
    store.con.execute(
        "INSERT INTO event (run, rank, event_id, name, category, class, tid, start_ns, dur_ns)"
        " SELECT run, 0, 1000, 'PyTorch Profiler (0)', 'Trace', 'annotation', 1, min(start_ns), ?"
        " FROM step WHERE rank = 0 GROUP BY run"
        " UNION ALL SELECT run, 0, 1001, 'epoch', 'user_annotation', 'annotation', 1,"
        " min(start_ns), ? FROM step WHERE rank = 0 GROUP BY run",
        [500 * MS, 500 * MS],
    )
    crop = finding_trace(store, make_report().findings[0], context=0.1)
    slices = {s["name"]: s for s in _slices(crop.text)}
    assert "PyTorch Profiler (0)" not in slices
    epoch = slices["epoch"]
    window_us = (crop.end_ns - crop.start_ns) / 1000
    assert epoch["dur"] == pytest.approx(1.2 * window_us)
    assert epoch["args"]["recorded"] == "500 ms, cut at the ends of this crop"
    assert max(s["ts"] + s["dur"] for s in slices.values()) <= 1.2 * window_us + epoch["ts"]


def test_ranks_share_one_clock_and_the_window_is_where_it_was(store: Store) -> None:
    crop = finding_trace(store, make_report().findings[0], context=0)
    kernels = [s for s in _slices(crop.text) if s["cat"] == "kernel"]
    assert len({s["ts"] for s in kernels}) == 1
    # The window starts at 50 ms of the step, the kernels at 60.
    assert kernels[0]["ts"] * 1000 - crop.start_ns == 10 * MS
    assert kernels[0]["dur"] == 5000
    assert crop.end_ns - crop.start_ns == 50 * MS
    assert min(s["ts"] for s in _slices(crop.text)) == 0


def test_annotations_say_who_waits_for_whom(store: Store) -> None:
    crop = finding_trace(store, make_report().findings[0], context=0)
    ours = [s for s in _slices(crop.text) if s["pid"] == 1]
    waits = [s for s in ours if s["cat"] == "wait"]
    assert [s["name"] for s in waits] == ["* all_reduce waits for rank 2"] * 3
    assert {s["dur"] for s in waits} == {20_000}
    transfers = [s for s in ours if s["cat"] == "transfer"]
    assert len(transfers) == 4
    assert len({s["ts"] for s in transfers}) == 1, "aligned, all transfers start together"
    (about,) = (s for s in ours if s["cat"] == "finding")
    assert about["name"] == "rank 2 arrives last at every all_reduce"
    assert about["args"]["gives"] == "20 ms per step"


def test_overlapping_calls_get_lanes_of_their_own(store: Store) -> None:
    store.con.execute(
        "INSERT INTO collective (run, rank, call_id, op, start_ns, end_ns, matched_ranks)"
        " VALUES (?, 0, 999, 'all_gather', ?, ?, 1)",
        [RUN, EPOCH_NS + 60 * MS, EPOCH_NS + 99 * MS],
    )
    crop = finding_trace(store, make_report().findings[0], context=0)
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for item in _slices(crop.text):
        if item["pid"] == 1:
            lanes.setdefault((item["pid"], item["tid"]), []).append(
                (item["ts"], item["ts"] + item["dur"])
            )
    for spans in lanes.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))


def assert_nested(text: str) -> None:
    """The Trace Event Format's rule: slices of one thread nest; none starts before the file."""
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for item in _slices(text):
        start, end = round(item["ts"] * 1000), round((item["ts"] + item["dur"]) * 1000)
        assert 0 <= start <= end
        threads.setdefault((item["pid"], item["tid"]), []).append((start, -end))
    for spans in threads.values():
        open_ends: list[int] = []
        for start, end in sorted(spans):
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or -end <= open_ends[-1], "crossing slices are dropped"
            open_ends.append(-end)


def test_events_that_cross_on_one_thread_are_put_on_two(store: Store) -> None:
    for number, (start, length) in enumerate([(60, 20), (70, 20), (75, 5), (95, 2)]):
        store.con.execute(
            "INSERT INTO event (run, rank, event_id, name, category, class, tid, start_ns, dur_ns)"
            " VALUES (?, 0, ?, ?, 'cpu_op', 'cpu_op', 5, ?, ?)",
            [RUN, 900 + number, f"op {number}", EPOCH_NS + start * MS, length * MS],
        )
    text = finding_trace(store, make_report().findings[0]).text
    assert_nested(text)
    threads = {item["name"]: item["tid"] for item in _slices(text)}
    assert threads["op 0"] == threads["op 3"] == 5
    assert threads["op 1"] != 5


def test_a_finding_without_a_window_says_so(store: Store) -> None:
    with pytest.raises(AdvisorError, match="not about one stretch of time"):
        finding_trace(store, make_report().findings[1])


def test_link_carries_the_time_range(store: Store) -> None:
    crop = finding_trace(store, make_report().findings[0])
    link = deep_link("http://127.0.0.1:9001/x.json", crop)
    asked = parse_qs(urlsplit(link).fragment.removeprefix("!/?"))
    assert asked["url"] == ["http://127.0.0.1:9001/x.json"]
    assert int(asked["visStart"][0]) <= crop.start_ns < crop.end_ns <= int(asked["visEnd"][0])


def test_choose_by_number_id_or_rule() -> None:
    findings = make_report().findings
    assert choose(findings, "2") is findings[1]
    assert choose(findings, "straggler-rank-2") is findings[0]
    assert choose(findings, "small-buckets") is findings[1]
    with pytest.raises(AdvisorError, match="none of the findings") as error:
        choose(findings, "7")
    assert "1 straggler-rank-2" in error.value.hint


@pytest.mark.slow
def test_open_writes_a_file_for_a_real_run(
    fixtures_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = fixtures_dir / "gpt2-tiny-ddp-2-slow-rank"
    target = tmp_path / "late.json"
    with pytest.raises(SystemExit) as ended:
        main(["open", "straggler-rank", str(traces), "--write", str(target)])
    assert ended.value.code == 0
    assert f"Wrote {target}" in capsys.readouterr().out
    slices = _slices(target.read_text(encoding="utf-8"))
    assert {s["pid"] for s in slices} == {1, 10, 11}
    assert_nested(target.read_text(encoding="utf-8"))
    again = advisor.load(target)
    with again:
        (read,) = again.store.con.execute("SELECT count(*) FROM event").fetchall()
    assert read[0] == len(slices), "our own reader takes the file as it is"
    assert any(s["name"].startswith("gloo:all_reduce") for s in slices)
    assert any("waits for rank 1" in s["name"] for s in slices)
    # What a report read is read again, not the other files of the folder.
    known, same = tmp_path / "findings.json", tmp_path / "same.json"
    with advisor.load(traces) as run:
        known.write_text(run.report.model_dump_json(), encoding="utf-8")
    assert any(path.endswith("README.md") for path in run.report.runs[0].inputs)
    with pytest.raises(SystemExit) as ended:
        main(["open", "straggler-rank", "--findings", str(known), "--write", str(same)])
    assert ended.value.code == 0
    assert same.read_bytes() == target.read_bytes()


def test_open_refuses_to_overwrite_and_names_missing_inputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.json").write_text("mine")
    for arguments, expected in (
        (["open", "1", "x", "--write", "there.json"], "already exists"),
        (["open", "1"], "findings.json: no such file"),
        (["open", "1", "x", "--context", "nan"], "no finite number"),
        (["open", "1", "x", "--context", "1e308"], "not in the range"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
        assert expected in capsys.readouterr().err
    assert (tmp_path / "there.json").read_text() == "mine"
