"""A cause that only some releases of NCCL have is told of their logs, and of no other's."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from advisor.errors import AdvisorError
from advisor.model.nccl.effects import in_releases
from advisor.model.nccl.messages import messages, named
from advisor.model.nccl.releases import Releases
from advisor.model.nccl.version import parse_version
from tests.rules.outputs import first_causes

CAUSE = "A rank's port is not reached"
PRINTS = "node1:7:7 [0] NCCL INFO NCCL version {}+cuda12.8\n"
ABORTED = (
    "node1:7:9 [0] misc/socket.cc:484 NCCL WARN socketStartConnect: Connect to "
    "172.17.0.1<33333> failed : Software caused connection abort\n"
    "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1, unhandled system error\n"
)


@pytest.mark.parametrize(
    ("version", "is_of_it"), [("2.21.5", True), ("2.24.3", False), (None, True)]
)
def test_the_release_of_the_log_decides(
    tmp_path: Path, version: str | None, is_of_it: bool
) -> None:
    # GIVEN a line whose cause releases before 2.24 have WHEN it stands in a log of a release
    text = (PRINTS.format(version) if version else "") + ABORTED
    # THEN it is named where the release is one of them, or not known
    assert (CAUSE in first_causes(tmp_path, {"a": text})["a"].title) is is_of_it


def test_every_limited_entry_is_named_inside_and_not_outside() -> None:
    assert len(in_releases()) >= 4
    for item in messages():
        if item.releases is None:
            continue
        for bound in (item.releases.since, item.releases.before):
            if bound is not None:
                inside = bound == item.releases.since
                assert (parse_version(bound) in item.releases) is inside, item.id


def test_named_takes_the_release() -> None:
    line = "init.cc:1 ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856"
    assert named(line, is_warning=False, release=(2, 25, 1)) == "kernel-shared-memory"
    assert named(line, is_warning=False) == "kernel-shared-memory"
    assert named(line, is_warning=False, release=(2, 26, 2)) is None


def test_cumem_host_memory_is_the_cause_from_the_release_on_that_has_it() -> None:
    line = "transport/shm.cc:590 NCCL WARN Cuda failure 101 'invalid device ordinal'"
    assert named(line, is_warning=True, release=(2, 24, 3)) == "cumem-host-device"
    assert named(line, is_warning=True, release=(2, 22, 3)) == "invalid-device"
    (entry,) = (item for item in messages() if item.id == "cumem-host-device")
    assert "NCCL_CUMEM_HOST_ENABLE=0" in entry.fix


@pytest.mark.parametrize(
    "wrong", [{}, {"since": "2.x"}, {"since": "2.24.3", "before": "2.24.3"}, {"until": "2.24"}]
)
def test_ranges_that_are_none_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises((ValidationError, AdvisorError)):
        Releases.model_validate(wrong)
