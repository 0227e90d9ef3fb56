"""What the checks and releases run is of one version: packages, what builds, and actions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
NOT_INSTALLED = {"deepspeed"}  # by no target of the Makefile
LINES = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
PINS = {canonicalize_name(name): version for name, version in (line.split("==") for line in LINES)}


def test_every_requirement_has_a_pin_that_it_takes() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    asked = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *(line for extra, lines in extras.items() if extra not in NOT_INSTALLED for line in lines),
        "editables~=0.3",  # hatchling's, for an editable installation
    ]
    for requirement in map(Requirement, asked):
        if requirement.name != "nccl-advisor":
            assert PINS[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_every_action_of_a_release_is_pinned_by_commit_and_every_tool_by_version() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    actions = re.findall(r"uses: (\S+)", text)
    assert actions
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in actions)
    installed = re.findall(r"-m pip install ([^&\n]+)", text)
    tools = [word for line in installed for word in line.split() if word[:5] != "dist/"]
    assert {"cibuildwheel", "build"} <= {tool.split("==")[0] for tool in tools}
    assert all("==" in tool or tool in PINS for tool in tools), tools
