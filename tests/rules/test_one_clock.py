"""Shifting one host's clock by any constant changes no finding (METRICS 5), on real recordings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.engine import diagnose
from advisor.findings import Severity
from advisor.ingest import ingest
from advisor.metrics import derive
from advisor.store import Store
from tests.support.marks import long, thinned

pytestmark = pytest.mark.slow

MS = 1_000_000
SHIFTS_MS = (40, -200, 1000, -3_600_000)
LATE = (
    "lab-ddp-slow-rank",
    "lab-zero1-loader-stall",
    "lab-fsdp2-imbalanced-work",
    "lab-zero1-pauses",
)


@pytest.fixture(
    scope="module", params=thinned([*LATE, "lab-ddp-blocking", "lab-fsdp2-slow-link"], 6)
)
def recording(request: pytest.FixtureRequest, fixtures_dir: Path) -> Iterator[tuple[str, Store]]:
    """A recording's name and a store that holds it."""
    with Store.create() as store:
        ingest([fixtures_dir / request.param], store)
        yield request.param, store


def said(store: Store) -> tuple[list[tuple[str, str, str]], list[int], list[int]]:
    """Rule, severity and place of what is found at warning or above; its gains, ns; who was last
    how often."""
    derive(store)
    found = [one for one in diagnose(store).findings if one.severity != Severity.INFO]
    last = store.con.execute(
        "SELECT times_last FROM lateness WHERE process_group IS NULL ORDER BY rank"
    ).fetchall()
    return (
        [(one.rule, one.severity.value, one.where) for one in found],
        [one.savings_ns or 0 for one in found],
        [count for (count,) in last],
    )


@pytest.mark.long
def test_one_clock_changes_no_finding(recording: tuple[str, Store]) -> None:
    name, store = recording
    findings, gains, last = said(store)
    ranks = store.con.execute("SELECT rank FROM rank ORDER BY rank").fetchall()
    for number, (rank,) in enumerate(ranks):
        by = SHIFTS_MS[number % len(SHIFTS_MS)] * MS
        move = "UPDATE event SET start_ns = start_ns + ? WHERE rank = ?"
        store.con.execute(move, [by, rank])
        moved = said(store)
        store.con.execute(move, [-by, rank])
        assert moved[0] == findings, (rank, by)
        assert moved[1] == pytest.approx(gains, rel=0.15), (rank, by)
        if name in LATE:
            assert moved[2] == last, (rank, by)


@pytest.mark.parametrize("by_ms", [-2, *long(2)])
def test_the_late_ranks_own_clock_makes_no_link_slow(fixtures_dir: Path, by_ms: int) -> None:
    """Rings of one kind leave a slow place for it whichever host's clock is taken to be off."""
    with Store.create() as store:
        ingest([fixtures_dir / "lab-ddp-slow-rank"], store)
        move = "UPDATE event SET start_ns = start_ns + ? WHERE rank = 2"
        store.con.execute(move, [by_ms * MS])
        (found,) = said(store)[0]
    assert (found[0], found[2]) == ("straggler-rank", "rank 2")
