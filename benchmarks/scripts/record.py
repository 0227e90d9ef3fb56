"""Runs a case beside the same without its fault, in turn; then it steps on and is recorded.

What the fix gives is measured in those turns, untraced: two runs minutes apart would tell what the
machine did meanwhile as well.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from advisor.profile import own
from advisor.profile.hook.order import Order
from advisor.profile.names import LAST_STEPS
from benchmarks.scripts.cases import Case
from benchmarks.scripts.turns import STEPS, Turns

_TRACED = 9
_TIMEOUT_S = 90.0


def record(
    case: Case, out: Path, namespaces: Sequence[str], *, ranks: int, fixed: bool
) -> tuple[list[int], list[int]]:
    """Run ``case`` into its folder under ``out``, and with ``fixed`` its healthy one too.

    ns of the steps of both, turn after turn, each of its slowest rank.
    """
    jobs: list[Future[dict[str, Any]]] = []
    with ThreadPoolExecutor() as pool, tempfile.TemporaryDirectory() as apart:
        healthy = out / case.healthy.id if fixed else Path(apart) / "job"
        runs = [(case, out / case.id, True), (case.healthy, healthy, fixed)]
        try:
            with Turns([one.id for one, _, _ in runs], ranks) as turns:
                for one, folder, recorded in runs:
                    start = [*launcher(namespaces, ranks), *turns.command(one.id)]
                    jobs.append(pool.submit(_run, one, folder, start, recorded=recorded))
                taken = turns.take()
                for (one, _, recorded), job in zip(runs, jobs, strict=True):
                    turns.let(one.id, "on" if recorded and not one.script.records_itself else "end")
                    job.result()
        except OSError:  # one has ended early, and now the other: its own error says more
            for job in jobs:
                job.result()
            raise
    steps = [taken[one.id] for one, _, _ in runs]
    load = os.getloadavg()[0]  # what else ran: on a busy machine the steps' own scatter says little
    for (one, folder, recorded), job, own_ns in zip(runs, jobs, steps, strict=True):
        if recorded:
            document = {"case": one.id, "step_ns": own_ns, "built": job.result(), "load": load}
            more = {"fixed_ns": steps[1]} if one is case else {}
            (folder / "run.json").write_text(json.dumps(document | more), encoding="utf-8")
    return steps[0], steps[1]


def _run(case: Case, folder: Path, start: Sequence[str], *, recorded: bool) -> dict[str, Any]:
    """How its wrappers were built."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    traced = _TRACED if recorded and not case.script.records_itself else 0
    # Those right before a recording say what it costs: no turn ends in them.
    warmup = STEPS + (LAST_STEPS + 2 if traced else 0)
    asked = Order(str(folder.resolve()), warmup=warmup, traced=traced)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    command = [*start, *case.command(folder)]
    left = own.run(command, asked, environment, timeout_s=_TIMEOUT_S)
    built: dict[str, Any] = left[0]["built"]
    return built


def launcher(namespaces: Sequence[str], ranks: int) -> list[str]:
    """What stands before a script to start it as ``ranks`` ranks, each in its namespace."""
    apart = ["--namespaces", ",".join(namespaces)] if namespaces else []
    started = ["-m", "benchmarks.scripts.launch", "--ranks", str(ranks), *apart]
    return [sys.executable, *started, "--"]


def traces(case: Case, folder: Path) -> Path:
    """Where the recording of a case is."""
    return folder / case.script.records_itself if case.script.records_itself else folder
