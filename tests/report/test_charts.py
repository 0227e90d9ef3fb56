"""Pictures keep to their scales: nothing leaves the plot, and parts add up to their bar."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.metrics.timeline.parts import KINDS as MEASURED
from advisor.metrics.timeline.parts import Parts
from advisor.report.charts import draw
from advisor.report.charts.axis import Scale
from advisor.report.charts.heatmap import late_level, shortfall_level
from advisor.report.charts.scene import Dot, Line, Rect, Text
from advisor.report.data_table import DataTable
from advisor.report.figures import (
    KINDS,
    Bar,
    BusBandwidth,
    CallGroup,
    Dots,
    Fit,
    GainBar,
    HeatMap,
    RankLane,
    Span,
    StackedBars,
    StepBar,
    StepColumns,
    StepTime,
    Timeline,
)
from advisor.report.first import rest_of
from advisor.report.numbers import decimals
from advisor.report.sections import steps
from advisor.report.sections.collectives import curve_words
from tests.report.support import make_store

values = st.floats(min_value=1e-3, max_value=1e12)
parts = st.dictionaries(st.sampled_from(sorted(KINDS)), values, min_size=1)


@given(low=values, factor=st.floats(min_value=1.001, max_value=1e6), log=st.booleans())
def test_ticks_lie_on_the_scale_in_order(low: float, factor: float, log: bool) -> None:
    scale = Scale(low, low * factor, log=log)
    ticks = scale.ticks(5)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= 14
    for tick in ticks:
        assert -0.01 <= scale(tick) <= 100.01


@given(low=st.floats(min_value=-1e6, max_value=1e6), width=st.floats(min_value=1e-3, max_value=1e6))
def test_neighbouring_ticks_have_different_labels(low: float, width: float) -> None:
    ticks = Scale(low, low + width).ticks(6)
    labels = [decimals(tick, ticks[1] - ticks[0]) for tick in ticks] if len(ticks) > 1 else []
    assert len(set(labels)) == len(labels)


@given(st.lists(parts, min_size=1, max_size=30))
def test_parts_fill_their_bar_without_gap_or_overlap(bars: list[dict[str, float]]) -> None:
    scene = draw(StackedBars([Bar(f"rank {i}", bar) for i, bar in enumerate(bars)]))
    longest = max(sum(bar.values()) for bar in bars)
    rows: dict[float, list[Rect]] = {}
    for mark in scene.marks:
        if isinstance(mark, Rect):
            rows.setdefault(mark.y, []).append(mark)
    assert len(rows) == len(bars)
    for bar, row in zip(bars, (rows[y] for y in sorted(rows)), strict=True):
        assert sum(rect.width for rect in row) == pytest.approx(100 * sum(bar.values()) / longest)
        assert row[0].x == 0
        for left, right in itertools.pairwise(row):
            assert right.x == pytest.approx(left.x + left.width)


@given(st.lists(parts, min_size=1, max_size=60))
def test_columns_stand_on_the_axis_and_stay_in_the_plot(each: list[dict[str, float]]) -> None:
    scene = draw(StepColumns([Bar(str(i), step) for i, step in enumerate(each)]))
    rects = [mark for mark in scene.marks if isinstance(mark, Rect)]
    assert all(0 <= rect.x <= rect.x + rect.width <= 100.001 for rect in rects)
    assert all(rect.height >= 0 for rect in rects)
    assert min(rect.y for rect in rects) == pytest.approx(20)
    assert max(rect.y + rect.height for rect in rects) == pytest.approx(110)


def test_an_empty_or_idle_run_draws_axes_only() -> None:
    for spec in (StackedBars([]), StepColumns([]), StackedBars([Bar("rank 0", {})])):
        scene = draw(spec)
        assert not [mark for mark in scene.marks if isinstance(mark, Rect)]


def test_timeline_clips_at_its_ends_and_keeps_lanes_apart() -> None:
    lane = RankLane(
        3,
        [Span("compute", -50, 30), Span("wait", 20, 60), Span("transfer", 60, 900)],
        culprit=True,
    )
    scene = draw(Timeline([lane], 100, 0, "a step"))
    compute, wait, transfer = (mark for mark in scene.marks if isinstance(mark, Rect))
    assert (compute.x, compute.width) == (0, 30)
    assert (wait.x, wait.width) == (20, 40)
    assert (transfer.x, transfer.width) == (60, 40)
    assert wait.y == transfer.y >= compute.y + compute.height


@given(st.floats(min_value=0, max_value=1e9), st.floats(min_value=1, max_value=1e9))
def test_heat_is_monotone_and_nothing_near_zero(value: float, full: float) -> None:
    assert late_level(value, full) <= late_level(value * 2, full)
    assert late_level(full, full) == "late4"
    assert late_level(full * 0.01, full) == ""


def test_equal_cells_of_the_heat_map_are_drawn_once_and_culprits_are_named() -> None:
    rows = [f"rank {rank}" for rank in range(64)]
    cells = [[9.0 if rank == 37 else 0.0] * 50 for rank in range(64)]
    steps = [str(step) for step in range(50)]
    scene = draw(HeatMap(rows, steps, cells, 9, "step", strong=frozenset({37})))
    drawn = [m for m in scene.marks if isinstance(m, Rect) and m.kind != "cell-ground"]
    assert [(cell.x, cell.width, cell.kind) for cell in drawn] == [(0, 100, "late4")]
    labels = {label.text: label for label in scene.row_labels}
    assert labels["rank 37"].kind == "label strong"
    ys = sorted(label.y for label in scene.row_labels)
    assert all(low + 12 <= high for low, high in itertools.pairwise(ys)), "names over one another"


@pytest.mark.parametrize(
    ("kinds", "gain", "start", "end"),
    [
        (["wait"], 0.2, 60, 80),
        (["wait"], 0.4, 50, 80),
        (["wait", "transfer"], 0.35, 50, 85),
        (["transfer"], 0.05, 85, 90),
        (["idle"], 0.3, 90, 100),
        (["compute", "idle"], 0.3, 20, 50),
    ],
)
def test_the_outline_covers_nothing_but_the_kinds_that_would_go(
    kinds: list[str], gain: float, start: float, end: float
) -> None:
    shares = {"compute": 0.5, "wait": 0.3, "transfer": 0.1, "idle": 0.04, "idle-host": 0.06}
    bar = StepBar(shares, kinds, (gain / 2, gain, gain + 0.05), "mark")
    scene = draw(bar)
    (mark,) = (m for m in scene.marks if isinstance(m, Rect) and m.kind == "could-go")
    assert (mark.x, mark.x + mark.width) == pytest.approx((start, end))


def test_an_uncertain_gain_is_hatched_in_the_kinds_that_would_go() -> None:
    """GIVEN more than one kind holds THEN the mark goes on in the next, not in compute."""
    shares = {"compute": 0.7, "wait": 0.17, "transfer": 0.13}
    scene = draw(StepBar(shares, ["wait", "transfer"], (0.03, None, 0.22), "mark"))
    marks = [m for m in scene.marks if isinstance(m, Rect) and m.kind.endswith("go-bar")]
    ends = [(round(m.x), round(m.x + m.width)) for m in marks]
    assert ends == [(70, 84), (87, 92), (84, 87)]


def test_what_of_a_gain_is_not_outlined_is_said() -> None:
    """Ranks that hold each other up in turn wait for less than their steps would be shorter."""
    shares = {"compute": 0.6, "wait": 0.1, "idle": 0.3}
    said = rest_of(StepBar(shares, ["wait"], (0.1, 0.25, 0.3)), 200e6)
    assert "20 ms, waiting for a peer" in said
    # Of ranks that are missing nobody knows whether communication waits or transfers.
    unparted = StepBar({"compute": 0.9, "comm": 0.1}, ["transfer", "wait"], (0.1, 0.25, 0.3))
    assert "20 ms, exposed communication." in rest_of(unparted, 200e6)
    assert not rest_of(StepBar(shares, ["wait"], (0.05, 0.1, 0.2)), 200e6)
    assert not rest_of(StepBar(shares, ["wait", "idle"], (0.05, 0.25, 0.3)), 200e6)
    assert not rest_of(StepBar(shares), 200e6)
    # Of an interval alone all is marked, up to its high end.
    assert "Up to 20 ms of it" in rest_of(StepBar(shares, ["wait"], (0.05, None, 0.3)), 200e6)
    assert not rest_of(StepBar(shares, ["wait"], (0.05, None, 0.1)), 200e6)


def test_a_gain_that_may_be_nothing_is_not_filled() -> None:
    sure, perhaps = (draw(GainBar(low, 5, 8, 10, "sev-info", "words")) for low in (2, 0))
    assert [m.kind for m in sure.marks if isinstance(m, Rect)] == ["sev-info"]
    assert [m.kind for m in perhaps.marks if isinstance(m, Rect)] == ["sev-info open"]
    assert any(isinstance(m, Line) for m in sure.marks)


def test_of_an_uncertain_cost_the_low_end_is_filled_and_the_rest_hatched() -> None:
    gain = draw(GainBar(2, None, 8, 10, "sev-info", "words"))
    bars = {m.kind: (m.x, m.width) for m in gain.marks if isinstance(m, Rect)}
    (start, low), (beyond, more) = bars["sev-info"], bars["sev-info range"]
    assert (start, beyond, more) == pytest.approx((0, low, 3 * low))
    step = draw(StepBar({"compute": 0.5, "wait": 0.5}, ["wait"], (0.1, None, 0.4), "mark"))
    found = {m.kind: (m.x, m.x + m.width) for m in step.marks if isinstance(m, Rect)}
    assert found["could-go"] == found["could-go-bar"] == pytest.approx((90, 100))
    assert found["may-go-bar"] == pytest.approx((60, 90))


@pytest.mark.parametrize(
    ("ratio", "level"),
    [(1.2, "cell-ok"), (0.96, "cell-ok"), (0.9, "late1"), (0.26, "late3"), (0, "late4")],
)
def test_links_darken_with_what_is_missing(ratio: float, level: str) -> None:
    assert shortfall_level(ratio) == level


def test_busbw_curve_is_the_fit_and_saturates_at_the_bandwidth() -> None:
    # alpha 1 us, beta 0.1 ns/B over 4 ranks: k = 6, m = 1.5, bus factor 1.5.
    fit = Fit(1000, 0.1, 6, 1.5, 1.5, 40_000, 1e9)
    # At n* = k alpha / (m beta) latency and transfer are equal: half of the limit of 10 GB/s.
    assert fit.busbw_gbps(40_000) == pytest.approx(5)
    assert fit.busbw_gbps(1e12) == pytest.approx(10, rel=1e-4)
    groups = [CallGroup(1e4, 2.0, 10, 5e4), CallGroup(1e6, 9.0, 30, 3e6)]
    scatter = draw(BusBandwidth(groups, fit))
    dots = [mark for mark in scatter.marks if isinstance(mark, Dot)]
    assert dots[0].x < dots[1].x
    assert dots[0].y > dots[1].y


def test_step_times_keep_their_whiskers_in_the_plot() -> None:
    times = [StepTime("a", 90e6, 70e6, 140e6), StepTime("b", 100e6)]
    for mark in draw(Dots(times, 100e6, (95e6, 105e6))).marks:
        if isinstance(mark, Line):
            assert 0 <= mark.x1 <= 100
            assert 0 <= mark.x2 <= 100


def test_labels_of_dots_stay_whole_in_the_narrowest_picture() -> None:
    long = "strategy=ddp-fp16, bucket_cap_mb=1, static_graph=True, GLOO_SOCKET_IFNAME=lo,lo"
    labels = ["a", "bucket_cap_mb=25", "strategy=ddp-fp16, bucket_cap_mb=10", long]
    times = [StepTime(label, step * 1e6) for label in labels for step in range(100, 200, 7)]
    scene = draw(Dots(times))
    dots = {mark.title for mark in scene.marks if isinstance(mark, Dot)}
    texts = [m for m in scene.marks if isinstance(m, Text) and m.kind.startswith("label")]
    texts = [mark for mark in texts if mark.text.endswith(" ms")]
    assert len(texts) == len(times)
    for mark in texts:
        width = 6.5 * len(mark.text)  # px of a character; the picture has 328
        start = 3.28 * mark.x - {"start": 0, "middle": width / 2, "end": width}[mark.anchor]
        assert start >= -0.5 and start + width <= 328.5, mark
    # AND what was cut is whole in the dot's title
    assert f"{long}: 100 ms" in dots


def test_a_long_label_stands_over_its_dot_where_the_picture_is_wide() -> None:
    long = "bucket_cap_mb=25, gradient_as_bucket_view=True, static_graph=True"
    times = [StepTime(long, step * 1e6) for step in (100, 110, 125, 150, 175, 190, 200)]
    scene = draw(Dots(times))
    texts = [m for m in scene.marks if isinstance(m, Text) and m.kind == "label"]
    dots = [mark for mark in scene.marks if isinstance(mark, Dot)]
    for text, dot in zip([m for m in texts if m.text.endswith(" ms")], dots, strict=True):
        # Of a picture four times as wide the text takes about a quarter.
        left = text.x - {"start": 0, "middle": 12.5, "end": 25}[text.anchor]
        assert left - 25 < dot.x < left + 50, text


# Widths in px of the characters of the labels below, as Chromium gives them for 12 px bold DejaVu
# Sans.
BOLD = {
    "a": 8.1, "b": 8.6, "c": 7.1, "d": 8.6, "e": 8.1, "h": 8.5, "i": 4.1, "k": 8.0, "m": 12.5,
    "o": 8.2, "p": 8.6, "r": 5.9, "s": 7.1, "t": 5.7, "u": 8.5, "A": 9.3, "C": 8.8, "D": 10.0,
    "E": 8.2, "F": 8.2, "G": 9.8, "H": 10.0, "I": 4.5, "K": 9.3, "L": 7.6, "M": 11.9, "N": 10.0,
    "O": 10.2, "P": 8.8, "R": 9.2, "S": 8.6, "T": 8.2, "U": 9.7, "X": 9.3, "_": 6.0, "=": 10.1,
    ",": 4.6, ".": 4.6, ":": 4.8, " ": 4.2, "…": 12.0, **dict.fromkeys("0123456789", 8.3),
}  # fmt: skip


def test_the_chosen_label_keeps_its_unit_though_it_is_bold() -> None:
    labels = [
        "micro_batch=16, OMP_NUM_THREADS=24",
        "bucket_cap_mb=2.1, GLOO_SOCKET_IFNAME=a",
        "NCCL_PROTO=SIMPLE, NCCL_MAX_NCHANNELS=32",
    ]
    for step in range(90, 200, 7):
        times = [StepTime(label, step * 1e6, chosen=True) for label in labels]
        rest = [StepTime("a", 90e6), StepTime("b", 200e6)]
        scene = draw(Dots([*times, *rest]))
        texts = [m for m in scene.marks if isinstance(m, Text) and m.kind == "label strong"]
        assert len(texts) == len(labels)
        for mark in texts:
            assert mark.text.endswith(" ms")
            width = sum(BOLD[character] for character in mark.text)
            start = 3.28 * mark.x - {"start": 0, "middle": width / 2, "end": width}[mark.anchor]
            assert start >= -0.5 and start + width <= 328.5, mark


def test_a_benchmark_alone_is_drawn_with_its_sizes_on_the_axis() -> None:
    sizes = [(2.0**power, 40.0 * power) for power in range(10, 20)]
    scene = draw(BusBandwidth([CallGroup(size, gbps, 1, 0.0) for size, gbps in sizes]))
    dots = [mark for mark in scene.marks if isinstance(mark, Dot)]
    assert [dot.x for dot in dots] == sorted(dot.x for dot in dots)
    assert [dot.y for dot in dots] == sorted((dot.y for dot in dots), reverse=True)
    assert all(0 <= dot.x <= 100 and 0 < dot.y < scene.height for dot in dots)
    words = [mark.text for mark in scene.marks if isinstance(mark, Text)]
    assert {"message size (log)", "10 kB", "100 kB"} <= set(words)


def test_labels_of_spans_that_run_at_once_are_not_written_over_one_another() -> None:
    spans = [
        Span("transfer", 0, 900, "all_gather 1.05 MB"),
        Span("transfer", 100, 1000, "reduce_scatter 1.05 MB", culprit=True),
        Span("compute", 0, 1000, "4 ms"),
    ]
    scene = draw(Timeline([RankLane(0, spans)], 1000, 0, "the crop"))
    written = [mark.text for mark in scene.marks if isinstance(mark, Text) and " on-" in mark.kind]
    assert sorted(written) == ["4 ms", "reduce_scatter 1.05 MB"]


def test_a_long_name_of_a_limit_is_left_to_the_note_where_it_has_no_room() -> None:
    group = CallGroup(1e6, 10.0, 1, 1e6)
    scene = draw(BusBandwidth([group], None, 300.0, "links of one A100 SXM 40GB, data sheet"))
    shown = {mark.text: mark.kind for mark in scene.marks if isinstance(mark, Text)}
    assert shown["links of one A100 SXM 40GB, data sheet 300 GB/s"] == "label wide-only"
    assert shown["300 GB/s"] == "label narrow-only"
    scene = draw(BusBandwidth([group], None, 300.0, "data sheet"))
    shown = {mark.text: mark.kind for mark in scene.marks if isinstance(mark, Text)}
    assert shown["data sheet 300 GB/s"] == "label"


def _rank(rank: int, **parts: float) -> Parts:
    return Parts(rank, 100.0, {**dict.fromkeys(MEASURED, 0.0), **parts})


@pytest.mark.parametrize(
    ("by_rank", "title"),
    [
        (
            [_rank(0, transfer=40, wait=5), _rank(1, transfer=44, wait=4)],
            "Exposed communication takes 0.045 µs (rank 0) to 0.048 µs (rank 1) per step",
        ),
        (
            [_rank(0, comm=6, **{"idle-host": 70, "idle-gap": 5})],
            "The device idles for 75 % of the step on every recorded rank",
        ),
        (
            [_rank(0, wait=40), _rank(1, wait=20)],
            "Rank 0 waits 0.04 µs per step for others; rank 1 waits 0.02 µs",
        ),
        ([_rank(0, compute=99), _rank(1, compute=100)], "Every rank computes nearly all"),
    ],
)
def test_the_title_over_the_ranks_names_what_takes_most(by_rank: list[Parts], title: str) -> None:
    assert steps._title(by_rank, steps._subject(by_rank), "per step").startswith(title)


def test_of_many_ranks_the_culprit_best_median_and_worst_are_drawn() -> None:
    bars = steps._four([_rank(rank, wait=rank) for rank in range(64)], [5], "wait")
    assert [bar.label for bar in bars] == ["culprit 5", "best 0", "median 32", "worst 63"]
    of_host = list(range(8, 16))
    host = steps._four([_rank(rank, wait=rank) for rank in range(64)], of_host, "wait")
    assert [bar.label for bar in host] == ["culprit 8", "best 0", "median 32", "worst 63"]
    # The late rank is the one that waits least itself: best is the next.
    first = steps._four([_rank(rank, wait=rank) for rank in range(64)], [0], "wait")
    assert [bar.label for bar in first] == ["culprit 0", "best 1", "median 32", "worst 63"]


@pytest.mark.parametrize(
    ("culprits", "marked"), [([1], 1), ([8, 9, 10, 11], 4), (list(range(8)), 0), ([], 0)]
)
def test_who_is_half_of_all_ranks_or_more_does_not_stand_out(
    culprits: list[int], marked: int
) -> None:
    with make_store(ranks=16) as store:
        found = steps.build(store, "test-data", culprits=culprits)
    assert found is not None
    drawing = found.figures[0].drawing
    assert isinstance(drawing, StackedBars)
    assert sum(bar.emphasis for bar in drawing.bars) == min(marked, 1)


def test_a_curve_that_misses_its_points_is_called_a_rough_guide() -> None:
    fit = Fit(1000, 0.1, 6, 1.5, 1.5, 40_000, 1e9)
    sizes = (1e5, 1e6, 1e7)
    on_it = [CallGroup(size, fit.busbw_gbps(size), 1, 0.0) for size in sizes]
    assert "misses" not in curve_words(fit, on_it)
    off = [*on_it[:2], CallGroup(1e7, fit.busbw_gbps(1e7) / 3, 1, 0.0)]
    assert "misses a size by a factor of 3: a guide" in curve_words(fit, off)


@pytest.mark.parametrize("spread", [0.2e6, 30e6])
def test_the_axis_of_step_times_says_that_it_leaves_out_zero_only_where_it_does(
    spread: float,
) -> None:
    # GIVEN trials that scatter little, and by more than they take
    times = [StepTime("a", 10e6, 10e6 - spread, 10e6 + spread)]
    scene = draw(Dots(times))
    texts = [mark.text for mark in scene.marks if isinstance(mark, Text)]
    left_out = any("does not start at zero" in text for text in texts)
    assert left_out == (spread < 10e6)
    assert left_out == ("0" not in texts)
    assert not any(text.startswith(("-", "−")) for text in texts)


def test_a_table_of_few_letters_stays_one_on_a_telephone() -> None:
    few = DataTable(["per step", "change", "1", "2"], [["idle", "+31 ms", "9.8 ms", "41 ms"]])
    assert few.is_narrow
    waits = ["waiting for a peer (mean of ranks)", "+7.7 ms", "8.3 ms", "29 ms"]
    assert DataTable(few.columns, [*few.rows, waits]).is_narrow, "its words take two lines"
    assert not DataTable(["per step", "change", "x" * 40], [["idle", "+31 ms", "9.8 ms"]]).is_narrow
    assert DataTable(["number", "value"], [["x" * 40, "y" * 40]]).is_narrow


def test_the_title_names_the_ranks_that_the_bars_show() -> None:
    """GIVEN a rank with the most ms and another with the largest share THEN ms decide in both."""
    measured = [(0, 1000e6, 410e6), (1, 500e6, 250e6), (2, 900e6, 100e6)]
    measured += [(of, 800e6, 200e6) for of in range(3, 12)]
    ranks = [
        Parts(of, whole, {**dict.fromkeys(MEASURED, 0.0), "transfer": ns, "compute": whole - ns})
        for of, whole, ns in measured
    ]
    bars = steps._four(ranks, (), steps._subject(ranks))
    assert (bars[0].label, bars[-1].label) == ("best 2", "worst 0")
    title = steps._title(ranks, steps._subject(ranks), "per step")
    assert "(rank 2)" in title
    assert "(rank 0)" in title


def test_a_title_on_waiting_names_the_ranks_of_its_bars() -> None:
    """GIVEN ranks that wait least and are exposed most THEN bars are chosen by what they wait."""
    ranks = [
        Parts(
            of,
            100e6,
            {**dict.fromkeys(MEASURED, 0.0), "wait": of * 1e6, "transfer": 90e6 - of * 2e6},
        )
        for of in range(12)
    ]
    ranks[7] = Parts(7, 100e6, {**dict.fromkeys(MEASURED, 0.0), "wait": 60e6})
    subject = steps._subject(ranks)
    labels = [bar.label for bar in steps._four(ranks, [3], subject)]
    assert (subject, labels) == ("wait", ["culprit 3", "best 0", "median 6", "worst 7"])
    title = steps._title(ranks, subject, "per step")
    assert {"rank 0", "rank 7"} == {*re.findall(r"rank \d+", title.lower())}
