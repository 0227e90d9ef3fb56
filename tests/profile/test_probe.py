"""The probe's pairs, and a real probe over gloo."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs the [profile] extra")

from advisor import api
from advisor.cli.probe import command
from advisor.profile.probe import FULL_MATRIX, pair_rounds


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40) | st.integers(2, 40).map(range))
def test_rounds_are_disjoint_and_cover_what_they_promise(hosts: Sequence[int]) -> None:
    rounds = pair_rounds(hosts)
    for pairs in rounds:
        ranks = [rank for pair in pairs for rank in pair]
        assert len(ranks) == len(set(ranks))
        assert all(0 <= rank < len(hosts) for rank in ranks)
        assert len({hosts[a] == hosts[b] for a, b in pairs}) == 1, "inside hosts or between them"
    found = [pair for pairs in rounds for pair in pairs]
    if len(hosts) <= FULL_MATRIX:
        assert sorted(found) == sorted(itertools.permutations(range(len(hosts)), 2))
        for pairs in rounds:
            across = [hosts[rank] for a, b in pairs for rank in (a, b) if hosts[a] != hosts[b]]
            assert len(across) == len(set(across)), "a host's network carries one pair at a time"
    else:
        joined = {(hosts[a], hosts[b]) for a, b in found}
        several = len(set(hosts))
        if several <= FULL_MATRIX:
            assert {ends for ends in joined if ends[0] != ends[1]} == set(
                itertools.permutations(sorted(set(hosts)), 2)
            )
        else:
            assert len(rounds) == 6, "three rounds, each in both directions"
            assert {rank for pair in found for rank in pair} == set(range(len(hosts)))


@pytest.mark.long
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
