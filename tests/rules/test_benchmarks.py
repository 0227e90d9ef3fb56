"""Tables of public reports: healthy ones raise nothing, sick ones what was found there.

Their figures (bench_tables.yaml) are printed as nccl-tests prints them, and diagnosed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor import api
from advisor.config.loader import read_plain
from advisor.findings import Finding
from advisor.vocabulary.bandwidth import bus_factor
from advisor.vocabulary.operations import canonical_op
from tests.support.marks import thinned

TABLES: list[dict[str, Any]] = read_plain(Path(__file__).with_name("bench_tables.yaml"))
RULES = ["bandwidth-below-expected", "benchmark-below-limit", "benchmark-below-others",
         "benchmark-bandwidth-falls", "benchmark-small-messages-slow",
         "benchmark-in-place-differs", "benchmark-wrong-results",
         "benchmark-not-joined"]  # fmt: skip
PARTS = 3  # the first has tables of each kind, and of each rule but one
SIZES = tuple(2**power for power in range(20, 31))


def printed(table: dict[str, Any], first_host: int = 0) -> str:
    """The output of nccl-tests with a table's figures."""
    ranks, hosts = table["ranks"], table.get("hosts")
    lines = [f"# Collective test starting: {table['op']}_perf", "# Using devices"]
    # Of a report that lists only the last rank.
    listed = range(ranks) if hosts else [ranks - 1]
    local = ranks // (hosts or 1)
    lines += [
        f"#  Rank {rank:2} Group  0 Pid {rank} on host{first_host + rank // local} device "
        f"{rank % local} [0x{rank % local}0] {table['device']}"
        for rank in listed
    ]
    half = "time   algbw   busbw #wrong"
    lines.append(f"#       size         count      type   redop    root     {half}     {half}")
    factor = bus_factor(canonical_op(table["op"]) or "", ranks) or 1.0
    for size, *times in table["rows"]:
        cells = ["N/A N/A N/A N/A"] * 2
        for place, time in enumerate(times):
            if time:
                algbw = size / time / 1e3
                cells[place] = f"{time} {algbw:.2f} {algbw * factor:.2f} {table.get('wrong', 0)}"
        lines.append(f"{size} {size // 4} float sum -1 {' '.join(cells)}")
    return "\n".join(lines) + "\n"


def found(folder: Path, texts: Sequence[str], hardware: str | None = None) -> list[Finding]:
    """The findings of tables given together."""
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        (folder / f"t{number}.log").write_text(text)
    with advisor.load(folder, hardware=hardware) as run:
        return run.diagnose(select=RULES).findings


def fired(folder: Path, tables: dict[str, dict[str, Any]]) -> dict[str, set[str]]:
    """The rules that fire on each of several tables by itself; runs share one store: cheaper."""
    for name, table in tables.items():
        (folder / f"{name}.log").write_text(printed(table))
    rules: dict[str, set[str]] = {name: set() for name in tables}
    with api.load_runs([folder / f"{name}.log" for name in tables]) as runs:
        for item in runs.diagnose(select=RULES).findings:
            rules[item.run].add(item.rule)
    return rules


@pytest.mark.long
@pytest.mark.parametrize("part", thinned(range(PARTS), PARTS))
def test_healthy_tables_raise_nothing_and_sick_ones_what_was_found(
    part: int, tmp_path: Path
) -> None:
    assert len(TABLES) >= 20
    tables = TABLES[part::PARTS]
    plain = {table["id"]: table for table in tables if "hardware" not in table}
    named = [table for table in tables if "hardware" in table]
    rules = fired(tmp_path, plain)
    for table in named:
        items = found(tmp_path / table["id"], [printed(table)], table["hardware"])
        rules[table["id"]] = {item.rule for item in items}
    assert rules == {table["id"]: set(table.get("raises", ())) for table in tables}


def of(gbps: float, hosts: int = 2, device: str = "NVIDIA H100 80GB HBM3", **more: Any) -> Any:
    """A table of 16 or 8 ranks that reaches ``gbps`` from 40 us on."""
    ranks = more.pop("ranks", 8 * hosts)
    factor = bus_factor("all_reduce", ranks) or 1.0
    rows = [[size, time := 40 + size * factor / gbps / 1e3, time] for size in SIZES]
    return {
        "op": "all_reduce",
        "ranks": ranks,
        "hosts": hosts,
        "device": device,
        "rows": rows,
    } | more


@pytest.mark.slow
def test_bandwidth_is_held_against_links_and_nics(tmp_path: Path) -> None:
    tables = {
        "h200-58": of(58, device="NVIDIA H200"),  # two hosts of eight; healthy is 489
        "h200-489": of(489, device="NVIDIA H200"),
        "h100-58": of(58, hosts=1),  # 13 % of NVLink
        "h100-360": of(360, hosts=1),  # a ring, without NVLink SHARP
        "h100x16-120": of(120),  # the NICs are not known: there are H100 machines that get no more
        "mi300x-pair": of(48, hosts=1, ranks=2, device="AMD Instinct MI300X"),  # one link of seven
        "h200-nvl": of(60, hosts=1, device="NVIDIA H200 NVL"),  # bridges, or none
        "rtx4090": of(20, hosts=1, device="NVIDIA GeForce RTX 4090"),
    }
    rules = fired(tmp_path, tables)
    assert {name for name, of_it in rules.items() if of_it} == {"h200-58", "h100-58"}
    assert rules["h200-58"] == rules["h100-58"] == {"benchmark-below-limit"}
    known = found(tmp_path / "named", [printed(of(120))], "dgx-h100")
    assert [item.rule for item in known] == ["benchmark-below-limit"]


@pytest.mark.slow
def test_links_of_amd_gpus_are_looked_at_with_their_own_tools(tmp_path: Path) -> None:
    (slow,) = found(tmp_path / "amd", [printed(of(62, hosts=1, device="AMD Instinct MI300X"))])
    (other,) = found(tmp_path / "nvidia", [printed(of(62, hosts=1))])
    of_amd, of_nvidia = str(slow.fix), str(other.fix)
    assert "amd-smi" in of_amd
    assert "nvidia-smi" not in of_amd
    assert "nvidia-smi" in of_nvidia
    assert "amd-smi" not in of_nvidia


def test_of_five_pairs_those_that_reach_half_are_named_with_the_host_they_share(
    tmp_path: Path,
) -> None:
    pairs = [(48, (0, 1)), (24, (2, 3)), (24, (2, 4)), (24, (2, 5)), (47, (6, 7))]
    texts = []
    for gbps, (one, other) in pairs:
        text = printed(of(gbps, device="NVIDIA A100-SXM4-80GB"))
        texts.append(text.replace("on host0 ", f"on n{one} ").replace("on host1 ", f"on n{other} "))
    (item,) = found(tmp_path, texts)
    assert item.rule == "benchmark-below-others"
    assert item.severity.value == "warning"
    assert [
        name in item.message for name in ("t0.log", "t1.log", "t2.log", "t3.log", "t4.log")
    ] == [
        False,
        *[True] * 3,
        False,
    ]
    assert item.hosts == ["n2"]


def test_a_slow_pair_without_the_host_that_is_named_is_named_too(tmp_path: Path) -> None:
    pairs = [(48, (0, 1)), (24, (0, 3)), (24, (1, 4)), (24, (3, 5)), (47, (1, 6))]
    texts = []
    for gbps, (one, other) in pairs:
        text = printed(of(gbps, device="NVIDIA A100-SXM4-80GB"))
        texts.append(text.replace("on host0 ", f"on n{one} ").replace("on host1 ", f"on n{other} "))
    (item,) = found(tmp_path, texts)
    assert item.hosts == ["n3"]
    assert item.because[1] == ("2 of 2 tables with n3 are slow, of the others 1 of 3: t2.log.")


@pytest.mark.parametrize(
    ("names", "severity"),
    [
        (["n1-n2", "n1-n3", "n1-n4", "n2-n4", "n3-n4"], "warning"),
        (["ring-ll", "ring-ll128", "ring-simple", "tree-ll", "tree-simple"], "info"),
    ],
)
def test_files_named_after_pairs_of_hosts_are_of_pairs(
    tmp_path: Path, names: list[str], severity: str
) -> None:
    """Tables of the same hosts may be of other settings, unless their files name other hosts."""
    for name, gbps in zip(names, (48, 47, 24, 24, 24), strict=True):
        text = printed(of(gbps, device="NVIDIA A100-SXM4-80GB"))
        (tmp_path / f"{name}.log").write_text(text)
    (item,) = found(tmp_path, [])
    assert (item.rule, item.severity.value) == ("benchmark-below-others", severity)
    assert all(f"{name}.log" in item.title for name in names[2:])


def test_the_host_most_of_whose_pairs_are_slow_is_named_beside_other_slow_pairs(
    tmp_path: Path,
) -> None:
    """Of real pairs 27 of 131 were slow: 11 of the 15 of one host, 16 of all others."""
    pairs = [(one, other) for one in range(6) for other in range(one + 1, 6)]
    slow = [(0, 1), (0, 2), (0, 3), (0, 4), (3, 5)]
    texts = []
    for one, other in pairs:
        table = of(12 if (one, other) in slow else 48, device="NVIDIA A100-SXM4-80GB")
        if (one, other) in slow:
            size, *times = table["rows"][-1]
            table["rows"][-1] = [size, *[4 * time for time in times]]
        text = printed(table)
        texts.append(text.replace("on host0 ", f"on n{one} ").replace("on host1 ", f"on n{other} "))
    (item,) = found(tmp_path, texts)
    assert (item.rule, item.hosts) == ("benchmark-below-others", ["n0"])
    facts = item.evidence.facts
    assert (facts["host_slow"], facts["host_tables"], facts["falls"]) == (4, 5, 5)


@pytest.mark.slow
def test_curves_are_judged_by_their_shape(tmp_path: Path) -> None:
    healthy = of(230, hosts=1, device="NVIDIA A100-SXM4-80GB")
    small = [[size, 3000, 3000] for size in (8, 64, 1024)]
    rules = fired(
        tmp_path,
        {
            "healthy": healthy,
            "small": {**healthy, "rows": small + healthy["rows"]},
            "half": {**healthy, "rows": [[size, 2 * t, t] for size, t, _ in healthy["rows"]]},
            "wrong": {**healthy, "wrong": 7},
        },
    )
    assert rules == {
        "healthy": set(),
        "small": {"benchmark-small-messages-slow"},
        "half": {"benchmark-in-place-differs"},
        "wrong": {"benchmark-wrong-results"},
    }


def test_a_header_without_its_signs_is_the_same_header(tmp_path: Path) -> None:
    """As reports show it whose first signs became headings."""
    text = printed(of(58, hosts=1))
    bare = "\n".join(line.lstrip("#") for line in text.splitlines()) + "\n"
    mixed = text.replace("#  Rank  3", "  Rank  3").replace("#       size", "       size")
    for name, changed in (("bare", bare), ("mixed", mixed)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "all_reduce.log").write_text(changed)
        with advisor.load(tmp_path / name) as run:
            row = run.sql("SELECT ranks, len(hosts) AS hosts, device FROM bench_curve").iloc[0]
        assert (row["ranks"], row["hosts"], row["device"]) == (8, 1, "H100 SXM"), name


def test_wrong_results_make_the_verdict(tmp_path: Path) -> None:
    (tmp_path / "t.log").write_text(printed({**of(230, hosts=1), "wrong": 3}))
    with advisor.load(tmp_path / "t.log") as run:
        assert run.report.verdict.cause == "benchmark-wrong-results"
        assert run.report.verdict.severity.value == "critical"


@pytest.mark.parametrize(
    ("rows", "severity"), [(range(20, 24), "info"), (range(20, 22), "critical")]
)
def test_what_was_said_before_a_table_is_over_where_the_table_goes_on(
    tmp_path: Path, rows: range, severity: str
) -> None:
    """MPI says that its network failed and goes on without, and NCCL with its own."""
    table = printed({**of(230, hosts=1), "rows": [[2**power, 100.0, 100.0] for power in rows]})
    said = "Open MPI failed an OFI Libfabric library call (fi_endpoint).  This is highly\nunusual\n"
    (tmp_path / "job.out").write_text(said + table)
    with advisor.load(tmp_path / "job.out") as run:
        errors = run.diagnose(select=["nccl-error"]).findings
        assert [(item.evidence.facts["message"], item.severity.value) for item in errors] == [
            ("mpi-fabric", severity)
        ]
        assert (run.report.verdict.cause == "nccl-error") == (severity == "critical")


@pytest.mark.parametrize(("gbps", "is_share"), [(400, True), (500, False)])
def test_a_figure_above_the_data_sheet_is_no_share_of_it(
    tmp_path: Path, gbps: int, is_share: bool
) -> None:
    """GIVEN NVLink SHARP, which counts twice what a link carries THEN 480 is no part of 450."""
    (tmp_path / "t.log").write_text(printed(of(gbps, hosts=1)))
    with advisor.load(tmp_path / "t.log") as run:
        title = run.report.verdict.title
    assert ("of 450 GB/s" in title, "%" in title) == (is_share, is_share)


def test_a_shared_report_names_no_host_of_a_benchmark(tmp_path: Path) -> None:
    text = printed(of(58, device="NVIDIA H200")).replace("on host", "on gpu-node-")
    (tmp_path / "t.log").write_text(text)
    with advisor.load(tmp_path / "t.log", share=True) as run:
        hosts = run.sql("SELECT unnest(hosts) AS host FROM bench_curve")["host"].tolist()
        assert len(set(hosts)) == 2
        assert "gpu-node" not in " ".join(hosts) + run.render("html") + run.render("json")


@pytest.mark.slow
def test_what_no_data_sheet_is_known_for_is_asked_for(tmp_path: Path) -> None:
    def codes(name: str, text: str, hardware: str | None = None) -> set[str]:
        (tmp_path / f"{name}.log").write_text(text)
        with advisor.load(tmp_path / f"{name}.log", hardware=hardware) as run:
            steps = " ".join(run.report.verdict.next_steps)
            told = {note.code for note in run.report.runs[0].notes}
            return (told & asked) | {word for word in asked if word in steps}

    asked = {"benchmark-hardware", "--hardware"}
    nameless = printed(of(58, hosts=1)).replace("NVIDIA H100 80GB HBM3", "")
    assert codes("nameless", nameless) == asked
    assert not codes("said", nameless, "dgx-h100")
    assert not codes("named", printed(of(58, hosts=1)))


def _head(hosts: Sequence[str], per_host: int) -> str:
    """The beginning of nccl-tests' output where every process has ranks of its own."""
    lines = [
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 8589934592 step: 2(factor)",
        "# Using devices",
    ]
    lines *= len(hosts)
    for pid, host in enumerate(hosts):
        lines += [
            f"#  Rank {rank:2} Group  0 Pid {pid} on {host} device {rank} [0x0{rank}] NVIDIA H800"
            for rank in range(per_host)
        ]
    half = "time   algbw   busbw #wrong"
    return "\n".join([*lines, f"# size count type redop root {half} {half}"]) + "\n"


@pytest.mark.parametrize(("per_host", "busbw"), [(8, 229.1), (1, 0.0)])
def test_processes_that_measured_each_by_itself_are_told(
    tmp_path: Path, per_host: int, busbw: float
) -> None:
    """Reports 213 and 71 of nccl-tests: two hosts, and no MPI in the build."""
    row = f"1073741824 268435456 float sum -1 8200.1 130.9 {busbw} 0 8190.2 131.1 {busbw} 0\n"
    more = f"2147483648 536870912 float sum -1 16390.1 131 {busbw} 0 16380.2 131 {busbw} 0\n"
    findings = found(tmp_path / "t", [_head(["node1", "node2"], per_host) + 2 * row + 2 * more])
    assert [item.rule for item in findings] == ["benchmark-not-joined"]
    assert findings[0].evidence.facts["processes"] == 2


def test_ranks_of_one_job_are_no_processes_apart(tmp_path: Path) -> None:
    table = next(item for item in TABLES if item["ranks"] > 8 and item.get("hosts"))
    assert "benchmark-not-joined" not in {
        item.rule for item in found(tmp_path / "t", [printed(table)], table.get("hardware"))
    }


def _curve(folder: Path, text: str) -> dict[str, Any]:
    (folder / "t.log").write_text(text)
    with advisor.load(folder / "t.log") as run:
        (row,) = run.store.con.table("bench_curve").fetchall()
        names = run.store.con.table("bench_curve").columns
    return dict(zip(names, row, strict=True))


@pytest.mark.slow
def test_nvls_is_held_against_what_the_switch_lets_it_show(tmp_path: Path) -> None:
    """2, 4 and 6 H100 of waynehacking8/nccl-collectives-bench: 69 % of it each, 46 to 98 of 450."""
    shares = []
    for ranks, us in {2: 41501.6, 4: 34177.7, 6: 32311.6}.items():
        table = {"op": "all_reduce", "ranks": ranks, "device": "NVIDIA H100 80GB HBM3", "hosts": 1,
                 "rows": [(2**33, us, us)]}  # fmt: skip
        start = "host0:1:1 [0] NCCL INFO "
        log = f"{start}ncclCommInitRankConfig comm 0x1 rank 0 nranks {ranks} cudaDev 0 nvmlDev 0 "
        log += f"busId 41000 commId 0x335af42abcea14 - Init COMPLETE\n{start}AllReduce: {2**33} "
        log += "Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}\n"
        found = _curve(tmp_path, printed(table) + log)
        assert found["limit_by"] == "links with NVLS"
        shares.append(found["best_gbps"] / found["limit_gbps"])
    assert shares == pytest.approx([0.69] * 3, abs=0.01)
    assert _curve(tmp_path, printed(table))["limit_gbps"] == 450


def test_of_several_falls_the_one_that_costs_most_is_told(tmp_path: Path) -> None:
    """Report 1453 of NCCL: a dip at 1 MB, and from 64 MB on a seventh of what 32 MB reach."""
    times = {19: 366.5, 20: 1626.5, 21: 2325.3, 22: 622.6, 23: 992.6, 24: 1334.9, 25: 2180.1,
             26: 24410.0, 27: 49264.0, 28: 125807.0}  # fmt: skip
    table = {"op": "all_reduce", "ranks": 24, "hosts": 3, "device": "NVIDIA A100-SXM4-80GB",
             "rows": [(2**power, time) for power, time in times.items()]}  # fmt: skip
    found = _curve(tmp_path, printed(table))
    assert (found["drop_bytes"], found["drop_until_bytes"]) == (2**26, None)


def test_trays_of_a_rack_are_joined_by_nvlink(tmp_path: Path) -> None:
    """72 GPUs on 18 hosts at 847 GB/s (coreweave/nccl-tests, pull request 43)."""
    times = {29: 1806.7, 30: 2924.7, 31: 5474.6, 32: 10094.0, 33: 20006.0}
    table = {"op": "all_reduce", "ranks": 72, "hosts": 18, "device": "NVIDIA GB200",
             "rows": [(2**power, time) for power, time in times.items()]}  # fmt: skip
    found = _curve(tmp_path, printed(table))
    assert found["limit_by"] == "links"
    assert 0.9 < found["best_gbps"] / found["limit_gbps"] < 1


def test_a_rack_at_the_speed_of_its_nics_is_not_called_healthy(tmp_path: Path) -> None:
    """GIVEN 72 GPUs at 190 GB/s THEN only who says that they are one rack is told of its NVLink."""
    times = {power: 2**power * bus_factor("all_reduce", 72) / 190e3 for power in range(27, 34)}
    table = {"op": "all_reduce", "ranks": 72, "hosts": 18, "device": "NVIDIA GB200",
             "rows": [(2**power, time, time) for power, time in times.items()]}  # fmt: skip
    (tmp_path / "a.log").write_text(printed(table))
    limits = []
    for hardware in (None, "gb200-nvl72"):
        with advisor.load(str(tmp_path), hardware=hardware) as run:
            limits += run.store.con.sql("SELECT limit_by, limit_gbps FROM bench_curve").fetchall()
    assert limits == [(None, None), ("links", 900.0)]


@pytest.mark.slow
def test_a_table_of_a_named_machine_without_its_hosts_asks_for_them(tmp_path: Path) -> None:
    times = {power: 2**power * bus_factor("all_reduce", 72) / 190e3 for power in range(27, 34)}
    table = {"op": "all_reduce", "ranks": 72, "hosts": 18, "device": "NVIDIA GB200",
             "rows": [(2**power, time, time) for power, time in times.items()]}  # fmt: skip
    whole = printed(table)
    headless = "".join(line for line in whole.splitlines(True) if "Rank" not in line)
    asked = []
    for text in (headless, whole):
        (tmp_path / "a.log").write_text(text)
        with advisor.load(str(tmp_path), hardware="gb200-nvl72") as run:
            run.diagnose(select=RULES)
            asked.append("names the hosts" in " ".join(run.report.verdict.next_steps))
    assert asked == [True, False]


def test_hosts_of_one_letter_are_told_apart(tmp_path: Path) -> None:
    """nccl-tests pads a name to ten columns: ten blanks stand before one of a letter."""
    table = {"op": "all_reduce", "ranks": 2, "hosts": 2, "device": "NVIDIA B200",
             "rows": [(2**20, 60.0), (2**21, 100.0)]}  # fmt: skip
    text = printed(table).replace("on host0", f"on {'a':>10}").replace("on host1", f"on {'b':>10}")
    found = _curve(tmp_path, text)
    assert found["hosts"] == ["a", "b"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("last_us", "severity"), [(31_000, "warning"), (4_500, None)], ids=["slow", "late"]
)
def test_records_of_inspector_are_judged_by_the_rank_that_waits_for_none(
    tmp_path: Path, last_us: int, severity: str | None
) -> None:
    """GIVEN a rank that comes 40 ms late to calls of 60 or of 417 GB/s THEN the first are slow."""
    _inspected(tmp_path, last_us)
    with advisor.load(str(tmp_path), hardware="dgx-h100") as run:
        found = [item for item in run.report.findings if item.rule == "benchmark-below-limit"]
    assert [item.severity.value for item in found] == ([severity] if severity else [])
    assert not any("None" in item.where for item in found)


def test_records_of_inspector_without_a_machine_say_what_they_reach(tmp_path: Path) -> None:
    """GIVEN no data sheet THEN the figure is said, at the largest size that reaches it."""
    _inspected(tmp_path, 31_000, late_us=0)
    with advisor.load(str(tmp_path)) as run:
        verdict = run.report.verdict
    assert "61 GB/s at most for all_reduce of 8 ranks, at 1.1 GB" in verdict.why
    assert "--hardware MACHINE" in " ".join(verdict.next_steps)


def _inspected(tmp_path: Path, last_us: int, late_us: int = 40_000) -> None:
    """Twenty calls of eight ranks, as the plugin writes them."""
    for rank in range(8):
        header = {"id": "0x7f8c", "rank": rank, "n_ranks": 8, "nnodes": 1}
        about = {"inspector_output_format_version": "v4.0", "hostname": "n1", "pid": 100 + rank}
        time_us = last_us + (late_us if rank else 0)
        call = {"coll": "AllReduce", "coll_msg_size_bytes": 2**30, "coll_exec_time_us": time_us}
        call |= {
            "coll_algobw_gbs": 2**30 / time_us / 1e3,
            "coll_busbw_gbs": 1.75 * 2**30 / time_us / 1e3,
        }
        lines = [
            json.dumps(
                {
                    "header": header,
                    "metadata": about | {"dump_timestamp_us": 10**15 + number},
                    "coll_perf": call | {"coll_sn": number},
                }
            )
            for number in range(20)
        ]
        (tmp_path / f"n1-pid{rank}.log").write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize(("gbps", "is_held"), [(60.0, True), (339.0, False)])
def test_what_the_slowest_machine_cannot_carry_is_held_against_none(
    gbps: float, is_held: bool, tmp_path: Path
) -> None:
    """Two hosts of H100: the slowest known has four NICs, and these may have eight."""
    rows = [(size, size * bus_factor("all_reduce", 16) / gbps / 1e3) for size in SIZES]
    table = {"op": "all_reduce", "ranks": 16, "hosts": 2, "device": "NVIDIA H100 80GB HBM3"}
    place = tmp_path / "table.txt"
    place.write_text(printed({**table, "rows": rows}))
    with advisor.load(place) as run:
        limits = run.sql("SELECT limit_gbps FROM bench_curve")["limit_gbps"]
    assert list(limits.notna()) == [is_held]


def test_the_share_that_is_said_is_that_of_the_two_figures_beside_it(tmp_path: Path) -> None:
    """A table that ends where latency is half of a call gets more at larger sizes."""
    times = [(size, 2e5 + size * bus_factor("all_reduce", 16) / 12.0 / 1e3) for size in SIZES]
    table = {"op": "all_reduce", "ranks": 16, "hosts": 2, "device": "NVIDIA H200"}
    all_found = found(tmp_path, [printed({**table, "rows": times})])
    (one,) = [item for item in all_found if item.rule == "benchmark-below-limit"]
    # At 1 GiB 5.5 GB/s, and 12 beyond: 1.4 and 3 % of 400.
    assert "1.4 %" in one.because[0]
