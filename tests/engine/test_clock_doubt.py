"""A link that an estimated clock may have hidden stays open: the verdict is never 'nothing'."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from advisor.engine import diagnose
from advisor.engine.facts import read_facts
from advisor.engine.sandbox import Sandbox
from advisor.engine.verdict import clocks, verdict_of
from advisor.findings import Finding, FindingsReport, Severity
from advisor.ingest import ingest
from advisor.metrics.derive import derive
from advisor.store.store import Store
from tests.support.marks import long

pytestmark = pytest.mark.slow

ONE_HOST = {1: 50_000_000}
ALL_HOSTS = {1: 123_000_000, 2: -77_000_000, 3: 31_000_000}
USE = "INSERT INTO topology (run, kind, name) SELECT run, 'probe-use', '{}' FROM run"


_kept: dict[tuple[str, tuple[tuple[int, int], ...]], Path] = {}


@pytest.fixture(scope="module", autouse=True)
def _stores_are_derived_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    _kept["folder", ()] = tmp_path_factory.mktemp("stores")
    yield
    _kept.clear()


def with_clocks(folder: Path, by_ns: Mapping[int, int], *changes: str) -> Store:
    """The recording where the clocks of ranks are ahead by ``by_ns``; ``changes`` come last."""
    key = folder.name, tuple(by_ns.items())
    if key not in _kept:
        path = _kept["folder", ()] / f"{len(_kept)}.duckdb"
        with Store.create(path) as store:
            ingest([folder], store)
            for rank, ahead in by_ns.items():
                store.con.execute(
                    "UPDATE event SET start_ns = start_ns + ? WHERE rank = ?", [ahead, rank]
                )
            derive(store)
            store.save()
        _kept[key] = path
    copy = _kept[key].with_suffix(f".{uuid4().hex}.duckdb")
    shutil.copy(_kept[key], copy)
    changed = Store.open(copy, read_only=False)
    for change in changes:
        changed.con.execute(change)
    return changed


def shifted(folder: Path, by_ns: Mapping[int, int], *changes: str) -> FindingsReport:
    """What is said of that recording."""
    with with_clocks(folder, by_ns, *changes) as store:
        return diagnose(store)


@pytest.mark.long
@pytest.mark.parametrize("by_ns", [ALL_HOSTS, *long(ONE_HOST)], ids=["all", "one"])
def test_where_clocks_differ_a_link_that_is_not_seen_is_not_excluded(
    fixtures_dir: Path, by_ns: Mapping[int, int]
) -> None:
    """The recording has a slow link; with such clocks its ends alone cannot tell it."""
    report = shifted(fixtures_dir / "lab-ddp-slow-link", by_ns)
    verdict = report.verdict
    assert all(item.severity == Severity.INFO for item in report.findings)
    assert (verdict.kind, verdict.reason) == ("inconclusive", "clocks")
    assert verdict.savings_ns is None
    assert verdict.values["share"] == pytest.approx(0.26, abs=0.01)
    assert verdict.values["hosts"] == [f"advlab15101-h{number}" for number in range(4)]
    assert "advisor probe" in verdict.next_steps[0]


@pytest.mark.long
def test_two_hosts_are_not_sent_to_compare_their_one_link(fixtures_dir: Path) -> None:
    two = "UPDATE rank SET host = CASE WHEN rank < 2 THEN 'a' ELSE 'b' END"
    report = shifted(fixtures_dir / "lab-ddp-slow-link", ONE_HOST, two)
    assert report.verdict.reason == "clocks"
    assert "--nnodes 3" in report.verdict.next_steps[0]


def test_a_probe_of_the_links_leaves_no_such_doubt(fixtures_dir: Path) -> None:
    report = shifted(fixtures_dir / "lab-ddp-slow-link", ONE_HOST, USE.format("all"))
    assert report.verdict.reason != "clocks"


@pytest.mark.parametrize("use", ["other", *long("none", "few", "part")])
def test_a_probe_that_is_not_of_all_these_hosts_leaves_it(fixtures_dir: Path, use: str) -> None:
    report = shifted(fixtures_dir / "lab-ddp-slow-link", ONE_HOST, USE.format(use))
    assert report.verdict.reason == "clocks"


@pytest.mark.long
def test_ends_apart_that_nothing_explains_are_doubted_as_well(fixtures_dir: Path) -> None:
    """Clocks taken as they are, ranks that leave apart, and no link found: no all-clear either."""
    report = shifted(
        fixtures_dir / "lab-ddp-slow-link",
        {},
        "DELETE FROM link_excess",
        "DELETE FROM whatif",
    )
    verdict = report.verdict
    assert verdict.reason == "clocks"
    assert verdict.values["hidden_ns"] == 0, "the offsets themselves hide nothing"
    assert verdict.values["differ_ns"] < 200_000 < verdict.values["apart_ns"]
    assert "clocks differ by" not in " ".join(verdict.why)


def test_where_little_is_exposed_the_doubt_stands_below_the_numbers(fixtures_dir: Path) -> None:
    """Under a tenth of the step: that nothing is found comes first, what may hide in it second."""
    report = shifted(
        fixtures_dir / "lab-ddp-slow-link",
        {},
        "DELETE FROM link_excess",
        "DELETE FROM whatif",
        "UPDATE collective SET exposed_transfer_ns = exposed_transfer_ns // 4",
    )
    assert report.verdict.reason not in ("clocks", "finding")
    assert "link-may-hide" in [note.code for note in report.runs[0].caveats]


@pytest.mark.parametrize("by_ns", [*long({}), ONE_HOST], ids=["none", "one"])
def test_what_is_hidden_raises_no_doubt(fixtures_dir: Path, by_ns: Mapping[int, int]) -> None:
    report = shifted(fixtures_dir / "lab-ddp-hidden-communication", by_ns)
    assert report.verdict.cause == "healthy"
    assert "link-may-hide" not in [note.code for note in report.runs[0].caveats]


HIDDEN = ("DELETE FROM link_excess",)
EVERY_HOST = {0: 40_000_000, **ALL_HOSTS}


@pytest.mark.long
def test_a_doubt_about_more_than_the_finding_gives_comes_first(fixtures_dir: Path) -> None:
    """The slow link gives most here; where clocks hide it, only a smaller gain is found."""
    report = shifted(fixtures_dir / "lab-fsdp2-slow-link", EVERY_HOST, *HIDDEN)
    assert report.verdict.reason == "clocks"
    assert report.findings[0].rule == "resharding-not-needed"
    assert "advisor probe" in report.verdict.next_steps[0]


def test_clocks_that_are_seconds_apart_are_said_as_well(fixtures_dir: Path) -> None:
    apart = "UPDATE rank SET clock_residual_ns = 0, clock_offset_ns = 1500000000 * (rank % 2)"
    verdict = shifted(fixtures_dir / "lab-fsdp2-slow-link", EVERY_HOST, *HIDDEN, apart).verdict
    assert verdict.values["differ_ns"] == 1_500_000_000


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE rank SET clock_residual_ns = 40000000",
        *long("UPDATE rank SET clock_offset_ns = CASE WHEN rank = 1 THEN 250000 ELSE 0 END"),
    ],
    ids=["the fit leaves as much open", "too small for such a link"],
)
def test_offsets_that_hide_little_stay_below_the_finding(fixtures_dir: Path, change: str) -> None:
    report = shifted(fixtures_dir / "lab-fsdp2-slow-link", EVERY_HOST, *HIDDEN, change)
    assert report.verdict.cause == "resharding-not-needed"
    assert "link-may-hide" in [note.code for note in report.runs[0].caveats]


@pytest.mark.long
@pytest.mark.parametrize(
    ("share", "cause"),
    [(0.05, "unknown"), (0.40, "straggler-rank")],
    ids=["less", "as much"],
)
def test_a_finding_that_explains_the_same_time_stays_first(
    fixtures_dir: Path, share: float, cause: str
) -> None:
    with with_clocks(fixtures_dir / "lab-fsdp2-slow-link", EVERY_HOST, *HIDDEN) as store:
        run = diagnose(store).runs[0].run
        with Sandbox(store, run) as sandbox:
            facts = read_facts(sandbox)
            gain = round(share * (facts.step_ns or 0))
            late = Finding(
                id="late",
                run=run,
                rule="straggler-rank",
                severity=Severity.CRITICAL,
                title="Rank 2 is late",
                message="It computes longer.",
                savings_ns=gain,
                savings_low_ns=gain,
                savings_high_ns=gain,
                probability=0.97,
            )
            verdict, _ = verdict_of([late], sandbox, facts, [])
            assert verdict.cause == cause


@pytest.mark.parametrize(
    ("op", "apart_ns", "transfer_ns", "hosts", "by_nature"),
    [
        ("all_reduce", 38_000, 2_544_000, ["a", "b", "c"], True),
        ("all_reduce", 2_000_000, 2_544_000, ["a", "b", "c"], False),  # a sign of its own
        ("all_reduce", 38_000, 900_000, ["a", "b", "c"], False),  # too short to show it
        ("all_reduce", 38_000, 2_544_000, ["a", "b"], False),  # not over the third host's link
        ("reduce", 38_000, 2_544_000, ["a", "b", "c"], False),  # may hide it in the same way
    ],
)
def test_a_broadcasts_own_order_is_no_sign_where_like_calls_end_together(
    op: str, apart_ns: int, transfer_ns: int, hosts: list[str], by_nature: bool
) -> None:
    """Ranks left 3.9 ms broadcasts 2.9 ms apart on alike links, and the all-reduces together."""
    sent: dict[str, Any] = {"op": "broadcast", "apart_ns": 2_933_000, "transfer_ns": 3_933_000}
    sent["hosts"] = ["a", "b", "c"]
    other = {"op": op, "apart_ns": apart_ns, "transfer_ns": transfer_ns, "hosts": hosts}
    assert clocks._by_nature(sent, [sent, other]) is by_nature
    assert not clocks._by_nature(sent, [sent])
