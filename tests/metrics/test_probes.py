"""A probe's result beside traces: it settles a slow link's share, or says that links are alike.

The traces are this project's own (one host of four slow both ways); the probes are synthetic.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from advisor import api
from advisor.findings import Finding, RunSummary
from advisor.metrics.links.cost import Culprit, of_host
from advisor.metrics.links.probes import Probed
from tests.support.marks import long

FIXTURE = Path(__file__).parents[2] / "fixtures" / "lab-fsdp2-slow-link"
HOSTS = [f"advlab15101-h{number}" for number in range(4)]
LARGE = 4 * 1024 * 1024


def probe(path: Path, slow: int | None, hosts: list[str], factor: float = 7.0) -> Path:
    """Every pair of four ranks at 0.2 GB/s, those of rank ``slow`` slower by ``factor``."""
    pairs = []
    for src, dst in itertools.permutations(range(4), 2):
        transfer_us = LARGE / 200 * (factor if slow in (src, dst) else 1.0)
        for size, time_us in ((4, 150.0), (LARGE, 150.0 + transfer_us)):
            pairs.append({"src": src, "dst": dst, "bytes": size, "round_trip_us": time_us})
    sizes = [4**power for power in range(5, 11)]
    collectives = [
        {"op": "all_reduce", "ranks": 4, "bytes": size, "times_us": [6 * 50 + 1.5 * size / 200] * 5}
        for size in sizes
    ]
    document = {"format": "advisor-probe", "world_size": 4, "hosts": hosts, "pairs": pairs,
                "collectives": collectives}  # fmt: skip
    path.write_text(json.dumps(document))
    return path


def directed(path: Path, slow: set[tuple[int, int]], hosts: list[str]) -> Path:
    """Every pair at 0.25 GB/s, those of ``slow`` (sender, receiver) at 0.05 GB/s."""
    pairs = []
    for src, dst in itertools.permutations(range(4), 2):
        transfer_us = LARGE / (50 if (src, dst) in slow else 250)
        for size, time_us in ((4, 150.0), (LARGE, 150.0 + transfer_us)):
            pairs.append({"src": src, "dst": dst, "bytes": size, "round_trip_us": time_us})
    document = {"format": "advisor-probe", "world_size": 4, "hosts": hosts, "pairs": pairs,
                "collectives": []}  # fmt: skip
    path.write_text(json.dumps(document))
    return path


def hosts_of(traces: Path) -> list[str]:
    with api.load(traces) as run:
        return [row[0] for row in run.sql("SELECT host FROM rank ORDER BY rank").values.tolist()]


TO_1 = {(0, 1), (2, 1), (3, 1)}
FROM_1 = {(1, 0), (1, 2), (1, 3)}
WAYS = {
    "sending": (FROM_1, "send"),
    "receiving": (TO_1, "receive"),
    "sending and receiving": (FROM_1 | TO_1, "both"),
}


@pytest.mark.slow
@pytest.mark.parametrize("way", [*long("sending", "receiving"), "sending and receiving"])
def test_a_probe_tells_which_way_a_host_is_slow(tmp_path: Path, way: str) -> None:
    slow, direction = WAYS[way]
    row, finding, _ = place(FIXTURE, directed(tmp_path / "probe.json", slow, HOSTS))
    assert (row["evidence"]["probe"], row["evidence"]["direction"]) == ("confirms", direction)
    assert f"of {HOSTS[1]} ({way}):" in finding.fix[0]
    assert "advisor probe" not in finding.verify
    assert "advisor compare" in finding.verify


@pytest.mark.slow
def test_the_ends_of_two_operations_tell_the_direction_without_a_probe(alone: Placed) -> None:
    row, finding, _ = alone
    assert row["evidence"]["direction"] == "both"
    assert finding.fix[0].startswith(
        f"Check the NIC of rank 1 on {HOSTS[1]} (sending and receiving):"
    )


# What the traces show, what the probe shows, and whether these are one place.
EDGE = Culprit("edge", 0, 2, frozenset({0}), frozenset({2}), (0, 2))
BACK = Culprit("edge", 2, 0, frozenset({2}), frozenset({0}), (2, 0))
OPEN = Culprit("candidates", 0, None, frozenset({0}), None, (0, 1, 2))
SAME = {
    "sender of the edge": (EDGE, of_host([0], "send"), True),
    "receiver of the edge": (EDGE, of_host([2], "receive"), True),
    "its receiver both ways": (EDGE, of_host([2], "both"), True),
    "its sender, but receiving": (EDGE, of_host([0], "receive"), False),
    "its receiver, but sending": (EDGE, of_host([2], "send"), False),
    "the edge": (EDGE, EDGE, True),
    "the edge the other way": (EDGE, BACK, False),
    "host of unknown direction": (of_host([2]), of_host([2], "receive"), True),
    "host that sends, receiving": (of_host([2], "send"), of_host([2], "receive"), False),
    "one link of the host": (of_host([2], "receive"), EDGE, True),
    "a link that the host sends over": (of_host([2], "receive"), BACK, False),
    "another host": (of_host([2]), of_host([1], "both"), False),
    "a candidate": (OPEN, of_host([1], "receive"), True),
}


@pytest.mark.parametrize("case", SAME)
def test_a_place_is_the_traces_only_where_its_direction_fits(case: str) -> None:
    traced, probed, same = SAME[case]
    assert Probed(probed, 0.05, 0.25, 3).is_at(traced) is same


@pytest.mark.long
@pytest.mark.slow
def test_a_probe_that_finds_another_place_slow_names_it_beside_the_traces(tmp_path: Path) -> None:
    path = directed(tmp_path / "probe.json", {(3, 0), (3, 1), (3, 2)}, HOSTS)
    with api.load(FIXTURE, path) as run:
        rows = run.sql("SELECT * FROM link_excess ORDER BY src").to_dict("records")
        report = run.report
    traced, named = rows
    assert (traced["src"], json.loads(traced["evidence"])["probe"]) == (1, "denies")
    assert (named["src"], json.loads(named["evidence"])["probe"]) == (3, "names")
    of_links = [item for item in report.findings if item.rule == "slow-ring-link"]
    assert [(item.severity, item.ranks) for item in of_links] == [("info", [1]), ("info", [3])]
    assert of_links[1].savings_ns is None
    where = f"rank 3 on {HOSTS[3]} (sending)"
    # The link is of the recording only: what else costs time leads, with the doubt beside it.
    assert report.verdict.cause == "resharding-not-needed"
    assert any(where in note.text for note in report.runs[0].caveats)
    assert where in of_links[0].message and "another path" in of_links[0].message
    assert not any("advisor probe" in item.verify for item in of_links)


@pytest.mark.long
@pytest.mark.slow
def test_a_slow_place_of_a_probe_is_named_beside_a_verdict_on_something_else(
    tmp_path: Path,
) -> None:
    late = FIXTURE.parent / "lab-ddp-slow-rank"
    hosts = hosts_of(late)
    path = directed(tmp_path / "probe.json", TO_1, hosts)
    with api.load(late, path) as run:
        verdict, (summary,) = run.report.verdict, run.report.runs
        found = [item for item in run.report.findings if item.rule == "slow-ring-link"]
    assert verdict.cause == "straggler-rank"
    assert [(item.severity, item.ranks) for item in found] == [("info", [1])]
    assert any(f"rank 1 on {hosts[1]} (receiving)" in note.text for note in summary.caveats)


class Placed(NamedTuple):
    row: dict[str, Any]
    finding: Finding
    summary: RunSummary


def place(*paths: Path) -> Placed:
    with api.load(*paths) as run:
        (row,) = run.sql("SELECT * FROM link_excess").to_dict("records")
        finding = next(f for f in run.report.findings if f.rule == "slow-ring-link")
        fits = run.sql("SELECT * FROM alpha_beta WHERE origin = 'probe'").to_dict("records")
        (summary,) = run.report.runs
    row["evidence"] = json.loads(row["evidence"])
    row["fits"] = fits
    return Placed({str(key): value for key, value in row.items()}, finding, summary)


@pytest.fixture(scope="module")
def alone() -> Placed:
    """The recording without a probe."""
    return place(FIXTURE)


@pytest.mark.long
@pytest.mark.slow
def test_a_probe_that_agrees_settles_the_share(tmp_path: Path, alone: Placed) -> None:
    row, finding, _ = place(FIXTURE, probe(tmp_path / "probe.json", 1, HOSTS))
    assert (row["kind"], row["src"], row["expected_from"]) == ("rank", 1, "probe")
    assert row["evidence"]["probe"] == "confirms"
    assert row["evidence"]["share"][1] == pytest.approx(1 - 1 / 7, abs=0.01)
    before, after = (r["evidence"]["share"] for r in (alone.row, row))
    assert after[2] - after[0] < 0.5 * (before[2] - before[0])
    assert finding.severity == "critical"
    assert "confirms" in finding.message


@pytest.mark.slow
def test_a_probe_that_finds_links_alike_takes_the_alarm_back(tmp_path: Path) -> None:
    row, finding, _ = place(FIXTURE, probe(tmp_path / "probe.json", None, HOSTS))
    assert row["evidence"]["probe"] == "denies"
    assert finding.severity == "info"


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "hosts",
    [*long(["vm"] * 4, [f"other-{number}" for number in range(4)]), [*HOSTS[:3], "other"]],
    ids=["one-machine", "others", "one-other"],
)
@pytest.mark.parametrize("slow", [None, *long(1, 2)])
def test_a_probe_of_other_hosts_changes_no_finding_and_is_said_to_be_unused(
    tmp_path: Path, alone: Placed, hosts: list[str], slow: int | None
) -> None:
    row, finding, summary = place(FIXTURE, probe(tmp_path / "probe.json", slow, hosts))
    assert row["fits"], "its figures stay to be seen"
    assert {**row, "fits": []} == {**alone.row, "fits": []}
    assert (finding.severity, finding.message) == (alone.finding.severity, alone.finding.message)
    (said,) = [note for note in summary.caveats if "of other hosts" in note.text]
    assert said in summary.notes
    assert said.code == "probe"
    assert hosts[-1] in said.text and HOSTS[0] in said.text


@pytest.mark.long
def test_a_probe_of_one_of_the_hosts_denies_nothing(tmp_path: Path) -> None:
    row, finding, _ = place(FIXTURE, probe(tmp_path / "probe.json", None, [HOSTS[0]] * 4))
    assert row["evidence"]["probe"] is None
    assert finding.severity == "critical"


@pytest.mark.long
def test_a_host_that_was_not_probed_is_not_denied(tmp_path: Path) -> None:
    """Rank 1's host is slow in the traces; the probe was of the three others."""
    hosts = [HOSTS[0], HOSTS[0], HOSTS[2], HOSTS[3]]
    row, finding, summary = place(FIXTURE, probe(tmp_path / "probe.json", None, hosts))
    assert row["evidence"]["probe"] is None
    assert finding.severity == "critical"
    assert any("covers only some" in note.text for note in summary.caveats)


@pytest.mark.long
@pytest.mark.slow
def test_fits_of_the_probe_are_kept_beside_those_of_the_trace(tmp_path: Path) -> None:
    row = place(FIXTURE, probe(tmp_path / "probe.json", 1, HOSTS)).row
    (fit,) = row["fits"]
    assert fit["link_kind"] == "inter"
    assert fit["alpha_ns"] == pytest.approx(50_000, rel=0.05)
    assert fit["beta_ns_per_byte"] == pytest.approx(5.0, rel=0.05)
