"""A launcher ends all as one rank ends: who had no time to tell that it waits is not silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules.outputs import LOGS, first_named

_REPORT = "[E ProcessGroup"
_KILLED = next(case["log"] for case in LOGS if case["cause"] == "reporting-ranks-wait")
_ALIVE = "".join(f"{line}\n" for line in _KILLED.splitlines() if " died from " not in line)


def _stopped(at: str) -> str:
    """As torch 2.4 and its launcher write it, with times."""
    timed = _ALIVE.replace(_REPORT, "[E1128 21:11:49.041 ProcessGroup")
    launcher = "1 torch/distributed/elastic/api.py:897] Sending process 77 closing signal SIGTERM"
    return f"{timed}W1128 {at}.100 {launcher}\n"


@pytest.mark.slow
def test_silence_tells_of_a_rank_only_where_it_lived_on(tmp_path: Path) -> None:
    cases = {
        "killed": _KILLED,
        "alive": _ALIVE,
        "stopped-at-once": _stopped("21:11:49"),
        "stopped-a-minute-later": _stopped("21:12:50"),
    }
    found = first_named(tmp_path, {name: {"log": log} for name, log in cases.items()})
    named = {name: (item.evidence.facts["message"], item.ranks) for name, item in found.items()}
    assert named["killed"] == named["stopped-at-once"] == ("reporting-ranks-wait", [])
    assert named["alive"] == named["stopped-a-minute-later"] == ("silent-rank", [0, 2, 3])
