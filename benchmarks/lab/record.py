"""Recording cases: times without and with the fault, interleaved, then the traces of the fault."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from advisor.profile.emulate import EmulatedLayer
from benchmarks.lab import runs
from benchmarks.lab.case import CASE_FILE, TRACES, Case, Truth
from benchmarks.lab.config import RunConfig
from benchmarks.lab.edits import edit_recording
from benchmarks.lab.hosts import Network
from benchmarks.lab.layers import EmulatedModel, product_ns
from benchmarks.lab.worker import Phase

PHASES_EACH = 2
ATTEMPTS = 3
CALM = 0.10
"""Steps of one kind may differ by this much between phases, and traced from timed ones."""
RESTLESS = ("noisy-neighbours",)  # disturbed on purpose
TIMED_STEPS = 10
RECORDED_STEPS = 7


def record(
    cases: Iterable[Case],
    out: Path,
    *,
    say: Callable[[str], None],
    again: bool = False,
) -> list[str]:
    """Record every case into ``out/<id>``; the ids that failed. Present ones are kept."""
    import_once()
    failed = []
    for case in cases:
        folder = out / case.id
        if (folder / CASE_FILE).exists() and not again:
            continue
        began = time.monotonic()
        shutil.rmtree(folder, ignore_errors=True)
        if case.edit is not None:
            if not (out / case.base / CASE_FILE).exists():
                say(f"{case.id}: left out, its base was not recorded")
                continue
            edit_recording(out / case.base, folder, case)
            say(f"{case.id}: made from {case.base}")
            continue
        try:
            truth = record_case(case, folder)
        except runs.PhaseError as error:
            failed.append(case.id)
            say(f"{case.id}: failed: {error}")
            shutil.rmtree(folder, ignore_errors=True)
            continue
        say(
            f"{case.id}: {truth.healthy_step_ns[0] / 1e6:.1f} -> "
            f"{truth.faulty_step_ns[0] / 1e6:.1f} ms per step, "
            f"gain {truth.gain_ns / 1e6:.1f} ms ({truth.slowdown:.0%}), "
            f"noise {truth.noise_ns / 1e6:.1f} ms, took {time.monotonic() - began:.0f} s"
        )
    return failed


def record_case(case: Case, folder: Path) -> Truth:
    """Record a case, again where other work on the machine disturbed it; the calmest is kept.

    What is compared are steps of one kind with each other, never what a fault costs.
    """
    attempts = []
    for number in range(ATTEMPTS):
        attempt = folder / f"attempt{number}"
        attempts.append((_record_once(case, attempt), attempt))
        if attempts[-1][0].disturbance <= CALM or case.kind in RESTLESS:
            break
    truth, kept = min(attempts, key=lambda item: item[0].disturbance)
    (kept / TRACES).rename(folder / TRACES)
    for _, attempt in attempts:
        shutil.rmtree(attempt)
    truth.write(folder)
    case.write(folder)
    return truth


def _record_once(case: Case, folder: Path) -> Truth:
    """One case: healthy, faulty, healthy, faulty; the last faulty run is recorded too.

    A control whose two configurations are equal is timed twice and recorded.
    """
    scratch = folder / "phases"
    kinds: list[tuple[str, RunConfig]] = [("healthy", case.healthy), ("faulty", case.faulty)]
    if case.healthy == case.faulty:
        kinds = kinds[1:]
    times: dict[str, list[int]] = {"healthy": [], "faulty": []}
    recorded_ns = 0
    hosts = max(case.healthy.hosts, case.faulty.hosts)
    with Network(hosts) as network:
        for repeat in range(PHASES_EACH):
            for name, config in kinds:
                is_last = repeat == PHASES_EACH - 1
                phase = Phase(
                    folder=scratch / f"{name}{repeat}",
                    timed=TIMED_STEPS,
                    recorded=RECORDED_STEPS if is_last and name == "faulty" else 0,
                )
                times[name].append(runs.step_ns(runs.run_phase(network, config, phase)))
                if phase.recorded:
                    recorded_ns = runs.step_ns(runs.recorded_steps(config, phase))
    traces = folder / TRACES
    traces.mkdir(parents=True, exist_ok=True)
    for path in sorted((scratch / f"faulty{PHASES_EACH - 1}").glob("*.trace.json.gz")):
        path.rename(traces / path.name)
    shutil.rmtree(scratch)
    return Truth(tuple(times["faulty"]), tuple(times["healthy"] or times["faulty"]), recorded_ns)


def import_once() -> None:
    """Import and warm up in this process what its forks will need."""
    import torch.distributed.fsdp
    import torch.distributed.optim
    import torch.distributed.pipelining

    torch.set_num_threads(1)
    product_ns()
    model = EmulatedModel([EmulatedLayer([8], forward_ns=1, backward_ns=1)])
    model(torch.ones(1, 1)).sum().backward()
