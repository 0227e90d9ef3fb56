"""Damage to a labelled recording accuses nobody whom the whole one does not accuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.fuzz import damage
from benchmarks.fuzz.damages import Case, each
from tests.support.marks import thinned

pytestmark = pytest.mark.slow

QUICK = ["flight/flight-gloo-desync"]
SLOW = [
    *("flight/gpu_error_2nd", "flight/lock_gil_1st", "op-table/trace-ST"),
    *("trace/lab-ddp-slow-rank", "trace/lab-fsdp2-slow-link", "trace/dlrm_8xV100"),
    *("text/nccl-logs/v2.27-groups.log", "text/nccl_tests/nccl_allreduce.log"),
]

FOUND = [
    *(("flight/fr_lock_gil_2nd", 31, 10), ("text/nccl_tests/nccl_reducescatter.log", 31, 5)),
    *(("nsys/late-rank", 71, 0), ("nsys/late-rank", 71, 19)),  # lost kernels were a pause
    ("nsys/late-rank", 9917, 5),  # how many hosts there are was a host's name
]
"""By benchmarks.fuzz.damage run at length."""


def _check(name: str, inputs: int) -> None:
    if name not in damage.known():
        pytest.skip(f"{name} is not beside this checkout")
    for number in range(inputs):
        result = damage.judge(name, 2, number)
        assert result.kind not in ("NEW ACCUSATION", "internal error"), (result.done, result.new)


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_damage_accuses_nobody_else(name: str) -> None:
    _check(name, 4)


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(SLOW, len(SLOW)))
def test_damage_accuses_nobody_else_at_length(name: str) -> None:
    _check(name, 4)


@pytest.mark.parametrize(("name", "seed", "number"), thinned(FOUND, 3))
def test_damage_that_once_accused_somebody_else(name: str, seed: int, number: int) -> None:
    if name not in damage.known():
        pytest.skip(f"{name} is not beside this checkout")
    result = damage.judge(name, seed, number)
    assert result.kind != "NEW ACCUSATION", (result.done, result.new)


@pytest.mark.parametrize(("ranks", "kind"), [((2, 3), "same first"), ((3, 4), "NEW ACCUSATION")])
def test_who_is_one_of_several_with_the_culprit_is_not_accused(
    monkeypatch: pytest.MonkeyPatch, ranks: tuple[int, ...], kind: str
) -> None:
    whole, after = _accusing((2,)), _accusing(ranks)
    monkeypatch.setattr(damage, "said", lambda place: replace(after, open=(after.sure,)))
    recording = damage.known()["flight/flight-gloo-desync"]()
    assert damage.judge_case(recording, whole, Case("")).kind == kind


def _accusing(ranks: tuple[int, ...]) -> damage.Said:
    rule, names = "slow-ring-link", [f"rank {rank}" for rank in ranks]
    sure = frozenset((rule, name) for name in names)
    return damage.Said(sure, frozenset(names), rule, frozenset({rule}), sure)


def test_every_kind_of_damage_changes_the_files(tmp_path: Path) -> None:
    """GIVEN enough draws THEN each damage was done, and its description says to what."""
    recording = damage.known()["flight/flight-gloo-desync"]()
    (tmp_path / "whole").mkdir()
    recording.write(recording.parts, tmp_path / "whole")
    whole = {path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}
    changed = 0
    for number in range(40):
        place = tmp_path / str(number)
        place.mkdir()
        assert damage.damaged(recording, place, 1, number)
        changed += {path.name: path.read_bytes() for path in place.iterdir()} != whole
    assert changed > 25


@pytest.mark.long
def test_each_damage_in_turn_changes_the_files(tmp_path: Path) -> None:
    """GIVEN traces of two ranks THEN each kind of damage differs from the whole and the others."""
    recording = damage.known()["trace/gpt2-tiny-ddp-2-slow-rank"]()
    (tmp_path / "whole").mkdir()
    recording.write(recording.parts, tmp_path / "whole")
    seen = [{path.name: path.read_bytes() for path in (tmp_path / "whole").iterdir()}]
    for number, case in enumerate(each(recording, frozenset({"rank 1"}))):
        place = tmp_path / str(number)
        place.mkdir()
        parts = {name: list(records) for name, records in recording.parts.items()}
        case.of_records(parts)
        recording.write(parts, place)
        case.of_files(place)
        files = {path.name: path.read_bytes() for path in place.iterdir()}
        assert files not in seen, case.done
        seen.append(files)
    assert len(seen) > 18
