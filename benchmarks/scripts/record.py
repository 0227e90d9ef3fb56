"""Runs a case: its steps timed as they are, then some of them recorded, by the recorder's hook."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from advisor.profile import own
from advisor.profile.hook.order import Order
from benchmarks.scripts.cases import Case

WARM_UP, TIMED, TRACED = 5, 24, 9
_TIMEOUT_S = 90.0


def record(case: Case, folder: Path, namespaces: Sequence[str], *, ranks: int = 2) -> list[int]:
    """Run ``case`` into ``folder``; ns of its timed steps, each of the slowest rank."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [*launcher(namespaces, ranks), *case.command(folder)]
    traced = 0 if case.script.records_itself else TRACED
    asked = Order(str(folder.resolve()), warmup=WARM_UP, steps=TIMED, traced=traced)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    left = own.run(command, asked, environment, timeout_s=_TIMEOUT_S)
    steps = [max(times) for times in zip(*(rank["timed_ns"] for rank in left), strict=True)]
    load = os.getloadavg()[0]  # what else ran: on a busy machine the steps' own scatter says little
    document = {"case": case.id, "step_ns": steps, "built": left[0]["built"], "load": load}
    (folder / "run.json").write_text(json.dumps(document), encoding="utf-8")
    return steps


def launcher(namespaces: Sequence[str], ranks: int) -> list[str]:
    """What stands before a script to start it as ``ranks`` ranks, each in its namespace."""
    apart = ["--namespaces", ",".join(namespaces)] if namespaces else []
    started = ["-m", "benchmarks.scripts.launch", "--ranks", str(ranks), *apart]
    return [sys.executable, *started, "--"]


def traces(case: Case, folder: Path) -> Path:
    """Where the recording of a case is."""
    return folder / case.script.records_itself if case.script.records_itself else folder
