"""A store made by ``advisor ingest`` is diagnosed like the traces it was read from."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import advisor
from advisor.api import load_runs
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.store import Store

TRACES = Path(__file__).resolve().parents[2] / "fixtures" / "lab-ddp-slow-rank"


@pytest.fixture(scope="module")
def truth() -> tuple[str, int]:
    with advisor.load(TRACES) as run:
        return run.report.verdict.title, len(run.collectives())


@pytest.fixture(scope="module", params=["file", pytest.param("folder", marks=pytest.mark.slow)])
def ingested(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What ``advisor ingest`` leaves: tables of what was read, nothing derived."""
    place = tmp_path_factory.mktemp("stores") / "run.duckdb"
    with Store.create(place) as store:
        ingest([TRACES], store)
        if request.param == "file":
            store.save()
            return place
        store.write_folder(place.parent / "parquet")
    return place.parent / "parquet"


@pytest.fixture(autouse=True)
def no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        yield


@pytest.mark.slow
def test_a_store_gives_the_findings_of_its_traces(ingested: Path, truth: tuple[str, int]) -> None:
    with advisor.load(ingested) as run:
        assert (run.report.verdict.title, len(run.collectives())) == truth
        assert run.arrow("SELECT count(*) AS n FROM event").to_pylist()[0]["n"] > 0


@pytest.mark.slow
def test_what_was_derived_can_be_kept_and_is_not_derived_again(
    ingested: Path, truth: tuple[str, int], tmp_path: Path
) -> None:
    kept = tmp_path / "kept.duckdb"
    with advisor.load(ingested, store=kept) as run:
        run.store.save()
    with advisor.load(kept) as run:
        assert run.store.path == kept
        assert len(run.collectives()) == truth[1]


@pytest.mark.long
@pytest.mark.slow
def test_stores_are_compared_under_their_names(ingested: Path) -> None:
    with load_runs([ingested, TRACES]) as both:
        found = both.sql("SELECT run, count(*) AS n FROM collective GROUP BY run ORDER BY run")
    assert list(found["n"]) == [found["n"][0]] * 2


def test_a_store_of_several_runs_is_not_one_side_of_a_comparison(tmp_path: Path) -> None:
    place = tmp_path / "two.duckdb"
    with Store.create(place) as store:
        for name in ("a", "b"):
            store.con.execute(
                "INSERT INTO run (run, created_at, advisor_version) VALUES (?, '', '')", [name]
            )
            store.con.execute("INSERT INTO event (run, rank, event_id) VALUES (?, 0, 1)", [name])
        store.save()
    with pytest.raises(AdvisorError, match="holds 2 runs"):
        load_runs([place, TRACES])
