"""`advisor tune --sweep` whose trials are played: its journal, recommendation, store and page are
the real ones.

    python -m tests.trust.played_sweep FOLDER [--resume]
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import Any

from advisor.cli._main import main
from advisor.config.sweep import Configuration
from advisor.tune import run as engine
from advisor.tune.trial import TrialResult
from benchmarks.fuzz import documents
from tests.support.tiny_sweep import JOB, SPACE

TRIALS = 17
_TRIAL_S = 0.02
_STEP_MS = {0.01: 90.0, 25.0: 100.0}


def _played(
    _job: Any, configuration: Configuration, folder: Path, *, number: int, **given: Any
) -> TrialResult:
    shutil.rmtree(folder, ignore_errors=True)  # of a trial that did not end, as the real one does
    folder.mkdir(parents=True)
    write, ranks = documents.FORMATS["kineto"]
    write(ranks(), folder)
    time.sleep(_TRIAL_S)
    step_ns = int(_STEP_MS[float(configuration["bucket_cap_mb"] or 0)] * 1e6) + number % 3 * 1000
    return TrialResult(
        number=number, configuration=configuration, is_baseline=given["is_baseline"],
        purpose=given["purpose"], status="ok", step_ns=[step_ns] * 15, tokens_per_step=100,
        seconds=1.0, folder=folder.name, sitting=given["sitting"],
    )  # fmt: skip


def play(folder: Path, *words: str) -> None:
    """The command, with its files in ``folder`` and its sweep below it; ends the process."""
    engine.run_trial = _played
    job, space = folder / "job.yaml", folder / "space.yaml"
    if not job.exists():
        job.write_text(JOB)
        space.write_text(SPACE)
    main(
        [*("tune", "--sweep", str(job), "--space", str(space), "--budget", str(TRIALS)),
         *("-o", str(folder / "sweep"), *words)]
    )  # fmt: skip


if __name__ == "__main__":
    play(Path(sys.argv[1]), *sys.argv[2:])
