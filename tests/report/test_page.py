"""The HTML page: complete, inert, valid, small; names from a trace are text and nothing else."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from advisor.cli import demo
from advisor.messages import SUMMARY, say
from advisor.report import first, render
from advisor.report.commands import inline_code, is_command
from advisor.report.sections.findings import views
from advisor.store.store import Store
from tests.report.support import (
    MS,
    RUN,
    add_everything,
    make_healthy_report,
    make_report,
    make_store,
)

HOSTILE = "</style></title><script>alert(1)</script><img src=x onerror=alert(1)>\x1b\x00"


@pytest.fixture(scope="module")
def page() -> str:
    with make_store() as store:
        add_everything(store)
        return render(make_report(), store, "html")


def test_sections_come_in_the_promised_order(page: str) -> None:
    ids = re.findall(r'<section id="([^"]+)"', page)
    assert ids == [
        "findings", "first", "steps", "whatif", "lateness", "links", "collectives", "sweep", "data",
    ]  # fmt: skip
    order = ["<nav", "<h1>rank 2 is slow", 'id="average-step"', 'id="waited-for"', 'id="findings"']
    places = [page.index(text) for text in [*order, 'id="first"']]
    assert places == sorted(places)


def test_every_finding_can_be_linked_and_all_but_the_first_are_folded(page: str) -> None:
    assert '<div class="finding row critical" id="straggler-rank-2"' in page
    assert '<details class="finding warning" id="small-buckets-dp"' in page
    folded = page[page.index('id="small-buckets-dp"') :]
    row = folded[: folded.index("</summary>")]
    for part in ("too small to fill", "DDP buckets 3-11", "3", "bucket_cap_mb=25"):
        assert part in row


def test_ids_are_unique_and_references_resolve(page: str) -> None:
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r'href="#([^"]+)"', page))
    for names in re.findall(r'aria-labelledby="([^"]+)"', page):
        wanted |= set(names.split())
    assert wanted <= set(ids)


def test_nothing_in_the_page_can_load_and_only_its_own_script_runs(page: str) -> None:
    assert page.count("<script") == 1
    assert not re.search(r"<[^>]*\son\w+=", page)
    assert not re.search(r"\sstyle=", page), "the policy forbids style attributes"
    assert not re.search(r"<(img|link|iframe|object|embed|form)\b", page)
    assert not re.search(r"@import|url\((?!#)", page)


def test_policy_allows_this_style_sheet_and_this_script_only(page: str) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    directives = policy.group(1).replace("&#39;", "'").split("; ")
    assert "default-src 'none'" in directives
    assert "unsafe" not in policy.group(1)
    for kind in ("style", "script"):
        text = re.search(rf"<{kind}>(.*?)</{kind}>", page, re.DOTALL)
        assert text
        digest = base64.b64encode(hashlib.sha256(text.group(1).encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in directives


def test_hostile_names_stay_text() -> None:
    with make_store() as store:
        add_everything(store)
        for table, column in (
            ("rank", "host"),
            ("source", "path"),
            ("process_group", "description"),
            ("topology", "name"),
            ("whatif", "setting"),
        ):
            store.con.execute(f"UPDATE {table} SET {column} = ?", [HOSTILE])
        page = render(make_report(name=HOSTILE), store, "html")
    assert page.count("<script>") == 1
    assert "<img" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    assert "\x00" not in page


def test_links_from_findings_must_be_web_addresses() -> None:
    report = make_report()
    report.findings[0].see = [
        "javascript:alert(1)",
        "https://example.org/a",
        "small-buckets",
    ]  # the last is a rule
    page = render(report, None, "html")
    assert 'href="javascript' not in page
    assert 'href="https://example.org/a"' in page
    assert "advisor explain small-buckets" in page


def test_parts_of_a_rank_add_up_to_its_step(page: str) -> None:
    table = page[page.index('id="ranks"') :]
    rows = re.findall(
        r'<tr><td data-of="rank">(\d)</td>(.*?)</tr>', table[: table.index("</table>")]
    )
    assert len(rows) == 4
    for rank, cells in rows:
        _, window, *parts = map(float, re.findall(r"<td[^>]*>([\d.]+)</td>", cells))
        assert window == 100
        assert sum(parts) == pytest.approx(window), rank


def test_timeline_draws_waiting_transfer_and_outlines_the_culprit(page: str) -> None:
    start = page.index('<figure id="timeline-straggler-rank-2"')
    figure = page[start : page.index("</figure>", start)]
    assert len(re.findall(r'<rect class="wait"', figure)) - 1 == 3  # one more in the legend
    assert len(re.findall(r'<rect class="transfer culprit"', figure)) == 1
    assert "all_reduce 40 MB" in figure
    assert "ms from the start of step 0" in figure


def test_a_step_of_one_kind_is_a_line_and_no_bar() -> None:
    with make_store(late_rank=-1) as store:
        store.con.execute(
            "UPDATE step_breakdown SET compute_ns = window_ns, exposed_comm_ns = 0, comm_ns = 0,"
            " exposed_wait_ns = 0, exposed_transfer_ns = 0, idle_ns = 0"
        )
        text = render(make_healthy_report(), store, "html")
        step = first.first_screen(make_healthy_report(), store, None).step
    assert step is not None
    assert step.drawing is None
    assert step.title.endswith(": compute 100 %")
    assert step.title in text.replace("\N{NO-BREAK SPACE}", " ")


def test_healthy_run_says_that_there_is_nothing_to_do() -> None:
    with make_store(late_rank=-1) as store:
        page = render(make_healthy_report(), store, "html")
    assert '<p class="state">No action needed</p>' in page
    assert 'class="finding' not in page
    assert 'class="could-go"' not in page


@pytest.mark.parametrize(
    ("steps", "listed", "above"),
    [
        (["Look at a.", "Look at b."], "ol", 0),
        (["Look at a."], "ul", 0),
        (["compare clocks and temperature: nvidia-smi -q -d CLOCK,TEMPERATURE", "Look at b.",
          "Look at c."], "ol", 1),
        (["Look at a.", "Worth a try. compare clocks and temperature: nvidia-smi -q -d "
          "CLOCK,TEMPERATURE"], "ol", 2),
    ],
    ids=["two", "one", "the first is of a finding", "the second is of a finding"],
)  # fmt: skip
def test_what_to_do_next_is_one_list_from_one_on(steps: list[str], listed: str, above: int) -> None:
    """The row of a finding has its first fix itself, also where the list above has it."""
    report = make_report()
    verdict = report.verdict.model_copy(update={"finding": None, "next_steps": steps})
    report = report.model_copy(update={"verdict": verdict})
    page = render(report, None, "html")
    head = page[page.index("<header>") : page.index("</header>")]
    assert [tag for tag in ("ol", "ul") if f'<{tag} class="steps"' in head] == [listed]
    assert head.count("<li>") == len(steps)
    rows = views(report, None, steps)
    assert sum(row.is_listed for row in rows) == bool(above)
    # Those that are folded are named where they are opened.
    more = say(SUMMARY, "more-steps", {"steps": len(steps)})
    assert (f"<summary>{more}</summary>" in head) == (len(steps) > 1)
    assert len(steps) == 1 or (more.startswith("Action") and str(len(steps)) in more)
    # Of one that stands in its row alone the list opens with it, and the row leaves it out then.
    assert page.count("clocks and temperature") == 2


def test_what_two_findings_of_a_rule_advise_stands_in_one_list() -> None:
    report = make_report()
    buckets = report.findings[1]
    verify = "`MB` must fall."
    first = buckets.model_copy(update={"verify": verify, "fix": [*buckets.fix, "Send less."]})
    again = first.model_copy(update={"id": "small-buckets-ep", "where": "the experts' buckets"})
    other = again.model_copy(update={"id": "other", "fix": ["Send bf16."]})
    report = report.model_copy(update={"findings": [report.findings[0], first, again, other]})
    page = render(report, None, "html")
    assert [row.is_listed for row in views(report, None)] == [False, False, True, False]
    # The row's fix begins the list below it; the proof is of the one with another fix too.
    counts = [page.count(text) for text in ("Send less.", "bucket_cap_mb=25", "must fall")]
    assert counts == [1, 2, 2]


def test_a_number_stays_with_its_unit_in_cells() -> None:
    with make_store() as store:
        add_everything(store)
        page = render(make_report(), store, "html")
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", page)
    assert any(re.search("\\d\N{NO-BREAK SPACE}MB", cell) for cell in cells)
    assert not [cell for cell in cells if re.search(r"\d (?:ms|MB|GB/s|%)(?!\w)", cell)]


def test_a_demo_says_above_its_verdict_which_fault_was_injected(page: str) -> None:
    line = demo.injected_line(["sleep:rank=1,ms=200"], {1}, make_report())
    text = render(make_report(), None, "html", injected=line)
    said = text.index("<code>sleep:rank=1,ms=200</code>")
    assert text.index("injected on purpose") < said < text.index("<h1>")
    assert "injected on purpose" not in page


def test_page_without_a_store_still_shows_the_findings() -> None:
    page = render(make_report(), None, "html")
    assert "swap the host" in page
    assert "<h2" in page


def test_empty_store_draws_no_pictures_and_does_not_fail() -> None:
    with Store.create() as store:
        page = render(make_report(), store, "html")
    assert '<figure id="ranks"' not in page
    assert "straggler-rank" in page


def test_equal_input_gives_equal_bytes(page: str) -> None:
    with make_store() as store:
        add_everything(store)
        assert render(make_report(), store, "html") == page


@pytest.mark.slow
def test_64_ranks_stay_below_210_kilobytes() -> None:
    with make_store(64, 20, calls=16) as store:
        add_everything(store, 64)
        # A different lateness in every call and rank: nothing to fold in the heat map.
        store.con.execute(
            "UPDATE collective SET start_ns = start_ns + (hash(rank, call_id) % 20) * ?", [MS]
        )
        page = render(make_report(ranks=64), store, "html")
    assert len(page.encode()) < 210_000
    assert "culprit 2" in page and "median" in page and "worst" in page


def test_timeline_never_draws_more_than_300_marks() -> None:
    with make_store() as store:
        # 40,000 kernels of 1 µs every 2 µs on each rank.
        store.con.execute(
            "INSERT INTO activity (run, rank, kind, start_ns, end_ns)"
            " SELECT ?, rank, 'memory', s.start_ns + i * 2000, s.start_ns + i * 2000 + 1000"
            " FROM step s, range(40000) t(i) WHERE s.step = 0",
            [RUN],
        )
        page = render(make_report(), store, "html")
    start = page.index('<figure id="timeline-straggler-rank-2"')
    figure = page[start : page.index("</figure>", start)]
    assert 0 < figure.count("<rect") <= 300 + 10  # and the legend's
    assert "busy 50 %" in figure.replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("advisor open 1", True),
        ("NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=GRAPH", True),
        ("bucket_cap_mb=25", True),
        ("DistributedDataParallel(model, bucket_cap_mb=25)", True),
        ("nvidia-smi -q -d CLOCK", True),
        ("advisor compare OLD NEW: the step time must fall", False),
        ("advisor probe between the two ends, then advisor compare OLD NEW", False),
        ("advisor whatif RUN --set bucket_cap_mb=100", True),
        ("advisor explain data-loader-stall", True),
        ("NCCL_DEBUG=INFO must show NET/IB", False),
        ("Check the NIC and cable (ibstat)", False),
        ("own code: launch with async_op=True", False),
    ],
)
def test_commands_are_told_from_advice(text: str, expected: bool) -> None:
    assert is_command(text) is expected


def test_of_several_runs_each_has_one_moment_drawn_and_a_query_stands_once() -> None:
    report = make_report()
    sql = report.findings[0].evidence.model_copy(update={"sql": "SELECT 1 AS a"})
    late = report.findings[0].model_copy(update={"evidence": sql})
    again = [late, late.model_copy(update={"id": "second"})]
    other = late.model_copy(update={"id": "third", "run": "other"})
    with make_store() as store:
        alone = views(report.model_copy(update={"findings": again}), store)
        both = views(report.model_copy(update={"findings": [*again, other]}), store)
    assert [view.timeline is not None for view in alone] == [True, False], "of one moment"
    assert [view.timeline is not None for view in both][:2] == [True, False]
    assert [bool(view.sql) for view in both] == [True, False, False]


def test_two_runs_stand_beside_each_other() -> None:
    with make_store() as store:
        add_everything(store)
        other = "fast/run 2"
        for table in ("run", "rank", "step", "step_breakdown", "run_breakdown", "collective"):
            store.con.execute(
                f"INSERT INTO {table} SELECT * REPLACE (? AS run) FROM {table}", [other]
            )
        store.con.execute(
            "UPDATE step_breakdown SET window_ns = 80000000, compute_ns = compute_ns - 20000000"
            " WHERE run = ?",
            [other],
        )
        store.con.execute("UPDATE step SET end_ns = start_ns + 80000000 WHERE run = ?", [other])
        report = make_report()
        report.runs.append(report.runs[0].model_copy(update={"run": other}))
        page = render(report, store, "html")
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert '<section id="compared"' in page
    assert '<section id="steps-fast-run-2"' in page


def test_backticks_become_code_and_nothing_else_becomes_markup() -> None:
    assert inline_code("run `a < b` & see") == "run <code>a &lt; b</code> &amp; see"
    assert (
        inline_code("prove it: advisor probe between both, then advisor compare OLD NEW: <b>")
        == "prove it: <code>advisor probe</code> between both, then "
        "<code>advisor compare OLD NEW</code>: &lt;b&gt;"
    )
    assert (
        inline_code("advisor profile --strategy ddp,fsdp2, then NCCL_DEBUG=INFO")
        == "<code>advisor profile --strategy ddp,fsdp2</code>, then <code>NCCL_DEBUG=INFO</code>"
    )
    assert (
        inline_code("record: torchrun -m advisor.record train.py, then advisor diagnose my-traces/")
        == "record: <code>torchrun -m advisor.record train.py</code>, then "
        "<code>advisor diagnose my-traces/</code>"
    )
    assert inline_code("one ` alone <b>") == "one ` alone &lt;b&gt;"
    assert inline_code("`<script>`") == "<code>&lt;script&gt;</code>"


def test_a_single_rank_gets_no_fitted_curve() -> None:
    with make_store() as store:
        add_everything(store)
        assert "Curve: fitted" in render(make_report(), store, "html")
        store.con.execute("UPDATE collective SET t_is = 'upper bound'")
        page = render(make_report(), store, "html")
    assert "Curve: fitted" not in page
    assert "is a lower bound" in page


def test_a_long_cell_is_wrapped_and_not_cut(page: str) -> None:
    assert "text-overflow" not in page
    with make_store() as store:
        store.con.execute("UPDATE source SET note = ?", ["advice " * 40])
        html = render(make_report(), store, "html")
    assert re.search(r'class="words"[^>]*>advice advice', html)
