"""A bug's workaround is a setting that every affected release has."""

from __future__ import annotations

import pytest

from advisor.engine.reference import Bug, known_bugs
from advisor.model.nccl.env.check import check_env
from advisor.model.nccl.env.table import NEWEST, variables
from advisor.model.nccl.version import NcclVersion, parse_version

WITH_ONE = [bug for bug in known_bugs() if bug.workaround]
# Releases with tags between the first and the last of the table.
RELEASES = sorted(
    {since for variable in variables().values() for since, _ in variable.defaults}
    | {variable.since for variable in variables().values() if variable.since}
    | {NEWEST}
)


def affected(bug: Bug) -> list[NcclVersion]:
    fixed = parse_version(bug.fixed) if bug.fixed else None
    since = parse_version(bug.since)
    return [r for r in RELEASES if r >= since and (fixed is None or r < fixed)]


def test_some_bugs_have_a_workaround() -> None:
    assert len(WITH_ONE) >= 4


@pytest.mark.parametrize("bug", WITH_ONE, ids=[bug.id for bug in WITH_ONE])
def test_the_workaround_exists_in_every_affected_release(bug: Bug) -> None:
    assert bug.workaround
    assert affected(bug)
    for release in affected(bug):
        issues = check_env(bug.workaround, release)
        assert [i.title for i in issues if i.severity == "error" or i.effect == "dead"] == []
        assert not [i for i in issues if "no effect" in i.title], "entries per collective"


def test_a_workaround_of_a_later_release_would_be_found() -> None:
    issues = check_env({"NCCL_ALGO": "allreduce:^NVLSTree"}, "2.19.3")
    assert [i for i in issues if "no effect" in i.title]
