"""The regions of a page are told apart by name, as a screen reader lists them."""

from __future__ import annotations

import re

import pytest

import advisor
from advisor.report.page import Labels


@pytest.mark.long
@pytest.mark.slow
def test_regions_of_several_recordings_are_told_apart_by_name() -> None:
    """GIVEN logs of three jobs, two with the same picture THEN no two tables have one name."""
    with advisor.load("fixtures/nccl-logs") as run:
        text = run.render("html")
    names = re.findall(r'role="region" aria-label="([^"]+)"', text)
    assert len(names) == len(set(names))
    named = [name for name in names if name.startswith("NCCL built one ring for 2 channels")]
    assert len(named) == 2
    assert all(name.endswith((" (v2.21-one-nic)", " (v2.27-groups)", " (v2.10-sockets)"))
               for name in named)  # fmt: skip


def test_regions_of_one_name_are_numbered() -> None:
    labels = Labels(["a"])
    assert [labels.of("Calls", "Findings") for _ in range(3)] == ["Calls", "Calls, 2", "Calls, 3"]
