"""The probe's pairs, and a real probe over gloo."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs the [profile] extra")

from advisor import api
from advisor.cli.probe import command
from advisor.profile.probe import FULL_MATRIX, pair_rounds


@given(st.integers(2, 40))
def test_rounds_are_disjoint_and_cover_what_they_promise(world_size: int) -> None:
    rounds = pair_rounds(world_size)
    for pairs in rounds:
        ranks = [rank for pair in pairs for rank in pair]
        assert len(ranks) == len(set(ranks))
        assert all(0 <= rank < world_size for rank in ranks)
    found = [pair for pairs in rounds for pair in pairs]
    if world_size <= FULL_MATRIX:
        assert sorted(found) == sorted(
            (a, b) for a in range(world_size) for b in range(world_size) if a != b
        )
    else:
        assert len(rounds) == 6, "three rounds, each in both directions"
        assert {rank for pair in found for rank in pair} == set(range(world_size))


@pytest.mark.slow
def test_a_real_probe_is_read_back(tmp_path: Path) -> None:
    out = tmp_path / "probe.json"
    done = CliRunner().invoke(command, ["--nproc", "2", "-o", str(out)], standalone_mode=False)
    assert done.return_value == 0, done.output
    assert json.loads(out.read_text())["backend"] == "gloo"
    fixture = Path(__file__).resolve().parents[2] / "fixtures" / "gpt2-tiny-ddp-2"
    with api.load(fixture, out) as run:
        rows = run.sql("SELECT op, count(*) AS n FROM bench WHERE tool = 'probe' GROUP BY op")
    counts = dict(zip(rows["op"], rows["n"], strict=True))
    assert counts["all_reduce"] == 8
    assert counts["send"] == 4, "two directions, two sizes"
