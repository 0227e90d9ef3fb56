"""Where ranks are missing, waiting is not taken for transfer: the question is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from advisor import api
from advisor.cli.whatif import command
from advisor.errors import AdvisorError


@pytest.mark.parametrize(
    "change",
    ["link.bandwidth=x2", "net.bandwidth=x2", "late_rank=0", "bucket_cap_mb=25", ""],
)
@pytest.mark.parametrize("form", ["text", "json"])
def test_one_rank_of_four_is_refused(fixtures_dir: Path, change: str, form: str) -> None:
    # GIVEN rank 0 of a job whose rank 2 comes late: 13 % were promised of a link, 5 % it is
    one = str(fixtures_dir / "lab-ddp-slow-rank" / "rank0.json.gz")
    arguments = [one, "-q", "--format", form, *(["--set", change] if change else [])]
    with pytest.raises(AdvisorError) as caught:
        CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert "1 of 4 ranks" in caught.value.message
    assert "waiting for the others looks like transfer" in caught.value.message
    assert caught.value.hint == "needs the traces of all ranks"


def test_all_ranks_are_answered(fixtures_dir: Path) -> None:
    job = str(fixtures_dir / "lab-ddp-slow-rank")
    done = CliRunner().invoke(
        command, [job, "-q", "--format", "json", "--set", "link.bandwidth=x2"]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["change"] == "link.bandwidth=x2"


def test_no_gain_is_replayed_where_ranks_are_missing(fixtures_dir: Path) -> None:
    # GIVEN one rank of two, of which all ten bucket caps were replayed before
    job = fixtures_dir / "gpt2-tiny-ddp-2-slow-rank"
    with api.load(job) as whole, api.load(job / "rank0.json.gz") as part:
        found = [
            {name for (name,) in run.store.con.execute("SELECT setting FROM whatif").fetchall()}
            for run in (whole, part)
        ]
    assert "bucket_cap_mb" in found[0]
    assert not found[1]
