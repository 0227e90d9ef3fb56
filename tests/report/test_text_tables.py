"""Tables and runs on a terminal: nothing is cut, and many runs do not push the head away."""

from __future__ import annotations

import pytest

from advisor.findings import Table, Verdict, VerdictKind
from advisor.report import benchmark, render
from advisor.report.sections import quality
from advisor.report.text_table import text_table
from advisor.store.store import Store
from tests.report.support import make_report, summary

WIDE = Table(
    title="Lateness of all ranks",
    columns=["rank", *(f"a_long_column_{n}" for n in range(6)), "reason"],
    rows=[[7, *range(100, 106), "the host launches late " * 6], [8, *range(200, 206), "none"]],
)


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_wide_table_is_folded_and_nothing_is_cut(width: int) -> None:
    lines = list(text_table(WIDE, width))
    assert max(map(len, lines)) <= width
    text = " ".join(lines)
    assert "…" not in text
    for number in [*range(100, 106), *range(200, 206)]:
        assert text.split().count(str(number)) == 1
    assert text.count("launches") == 6
    for column in range(6):
        assert f"a long column {column}" in " ".join(text.split())


def test_every_block_of_columns_names_the_rank() -> None:
    lines = [line.split() for line in text_table(WIDE, 60)]
    heads = [line for line in lines if line[0] == "rank"]
    assert len(heads) > 1
    assert sum(line[0] == "7" for line in lines) == len(heads)


def calls(names: int) -> Table:
    """Six calls of rank 0; ``names`` of them have a name of their own."""
    return Table(
        title="Calls",
        columns=["rank", "op", "call_id", *(f"a_long_column_{n}" for n in range(5))],
        rows=[[0, "all_reduce", min(call, names), *[f"value {call}"] * 5] for call in range(6)],
    )


def test_every_block_of_columns_tells_its_rows_apart() -> None:
    """GIVEN calls of one rank, told apart by another column THEN that one is repeated as well."""
    lines = [line.split() for line in text_table(calls(6), 60)][1:]
    heads = [line for line in lines if line[0] == "rank"]
    assert len(heads) > 1
    assert all(head[:2] == ["rank", "call"] for head in heads)
    for call in range(6):
        assert [line[:2] for line in lines].count(["0", str(call)]) == len(heads)


def test_rows_that_few_columns_do_not_tell_apart_are_numbered() -> None:
    wide = Table(
        title="Calls",
        columns=["rank", "a_name_of_something", "host", *(f"a_long_column_{n}" for n in range(3))],
        rows=[
            [0, f"{'x' * 40}{call // 2}", f"{'y' * 20}{call % 2}", *[f"value {call}"] * 3]
            for call in range(4)
        ],
    )
    lines = [line.split() for line in text_table(wide, 60)][1:]
    heads = [line for line in lines if line[0] == "#"]
    assert len(heads) > 1
    for number in "1234":
        assert sum(line[0] == number for line in lines) == len(heads)


def test_a_table_that_fits_keeps_its_columns_in_order() -> None:
    head = list(text_table(calls(6), 200))[1].split()
    assert head[:3] == ["rank", "op", "call"]


def test_a_table_of_one_column_or_none_is_shown() -> None:
    assert list(text_table(Table(title="t", columns=["name"], rows=[["x" * 50]]), 40))[1:]
    assert list(text_table(Table(title="t", columns=[], rows=[]), 40)) == ["   t"]


def two_runs(ranks: tuple[int, int]) -> list[str]:
    report = make_report()
    verdict = report.verdict.model_copy(
        update={"why": "One sentence.", "next_steps": ["do this first", "prove it: so"]}
    )
    report.verdict = verdict
    report.runs = [
        summary().model_copy(
            update={
                "run": f"job{number}",
                "ranks_read": count,
                "verdict": Verdict(
                    kind=VerdictKind.INCONCLUSIVE, title="a long title " * 12, cause="unknown"
                ),
            }
        )
        for number, count in enumerate(ranks)
    ]
    return render(report, None, "text").split("\n\n")[0].splitlines()


def test_of_two_recordings_the_head_keeps_its_proof_and_no_verdict_is_cut() -> None:
    lines = two_runs((16, 8))
    start = next(n for n, line in enumerate(lines) if line.startswith("RUNS"))
    assert start <= 10
    assert "prove it: so" in " ".join(lines[:start])
    runs = " ".join(" ".join(lines[start:]).split())
    for name in ("job0 (16 ranks)", "job1 (8 ranks)"):
        assert f"{name}: {('a long title ' * 12).strip()}" in runs
    assert "…" not in runs
    assert max(map(len, lines)) <= 80


def test_the_verdict_above_is_not_said_twice() -> None:
    report = make_report()
    report.runs = [
        summary().model_copy(
            update={
                "run": name,
                "verdict": Verdict(
                    kind=VerdictKind.INCONCLUSIVE, title=f"{name} is slow", cause="unknown"
                ),
            }
        )
        for name in ("job0", "job1")
    ]
    report.verdict = report.verdict.model_copy(update={"title": "job1 is slow", "run": "job1"})
    text = render(report, None, "text")
    assert text.count("job1 is slow") == 1
    assert "job1 (4 ranks): see above" in text
    assert "job0 (4 ranks): job0 is slow" in text


@pytest.mark.parametrize("rule", ["jitter", "optimizer-waits-for-communication"])
def test_the_name_of_a_rule_is_never_cut(rule: str) -> None:
    report = make_report()
    report.findings[0] = report.findings[0].model_copy(
        update={"rule": rule, "savings_low_ns": 1_000_000, "savings_high_ns": 90_000_000,
                "where": "all_gather over the ranks of the group of all"}
    )  # fmt: skip
    lines = render(report, None, "text").splitlines()
    rows = lines[next(n for n, line in enumerate(lines) if line.startswith(" #")) :][:5]
    assert any(rule in line.split() for line in rows)
    assert "all_gather over the ranks of the group of all" in " ".join(" ".join(rows).split())
    assert max(map(len, rows)) <= 80


@pytest.mark.parametrize(
    ("ranks", "count"),
    [((16,), "16 ranks"), ((16, 16), "2 runs of 16 ranks"), ((16, 8), "2 runs")],
)
def test_ranks_of_several_runs_are_not_added(ranks: tuple[int, ...], count: str) -> None:
    report = make_report()
    report.runs = [
        summary().model_copy(update={"run": f"job{number}", "ranks_read": read})
        for number, read in enumerate(ranks)
    ]
    assert quality.build(report, None, {}).line.startswith(count)


def test_a_benchmark_shows_its_fits_on_the_terminal() -> None:
    report = make_report()
    report.runs = [summary().model_copy(update={"run": "run", "ranks_read": 0})]
    report.findings = []
    with Store.create() as store:
        assert benchmark.fits(store, "run") is None
        store.con.execute(
            "INSERT INTO alpha_beta (run, origin, op, group_size, samples, sizes, alpha_ns,"
            " beta_ns_per_byte, k, m, n_star_bytes) VALUES"
            " ('run', 'nccl-tests', 'all_reduce', 8, 40, 20, 2600, 0.0045, 14, 1.75, 4.6e6)"
        )
        store.con.execute(
            "INSERT INTO bench (run, tool, op, ranks, bytes, time_us, busbw_gbps)"
            " VALUES ('run', 'nccl-tests', 'all_reduce', 8, 8000000000, 60000, 235)"
        )
        text = render(report, store, "text")
    row = next(line for line in text.splitlines() if "4.6 MB" in line)
    assert row.split() == ["all_reduce", "8", "36", "µs", "0.0045", "4.6", "MB", "235"]


def test_fits_are_shown_with_their_intervals() -> None:
    with Store.create() as store:
        store.con.execute(
            "INSERT INTO alpha_beta (run, origin, op, group_size, samples, sizes, alpha_ns,"
            " alpha_low_ns, alpha_high_ns, beta_ns_per_byte, beta_low_ns_per_byte,"
            " beta_high_ns_per_byte, k, m, n_star_bytes) VALUES ('run', 'nccl-tests',"
            " 'all_reduce', 8, 40, 20, 2600, 2100, 4000, 0.0045, 0.0041, 0.0052, 14, 1.75, 4.6e6)"
        )
        table = benchmark.fits(store, "run")
    assert table is not None
    assert table.rows[0][2:4] == ["36 µs (29–56 µs)", "0.0045 (0.0041–0.0052)"]
    assert "95 % intervals" in (table.note or "")
