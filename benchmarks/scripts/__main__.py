"""Scripts as people write them, none with our recorder: the whole road, scored.

    python -m benchmarks.scripts record --out DIR [--only ddp,nano/slow] [--again]
    python -m benchmarks.scripts score --out DIR [--only ...] [--apart no-free-core]
    python -m benchmarks.scripts sweep --out DIR --only ddp/more-work [--mbit 400] [--budget 20]
        [--space FILE]

Each case runs with its fault and, in turn with it, with the first fix applied (without the fault):
their steps are timed untraced, then some of each are recorded. With root every rank is a host of
its own behind a shaped link (benchmarks/lab); without, all share the loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
from pathlib import Path

from advisor.errors import AdvisorError
from benchmarks.lab.hosts import LinkShape, Network, unavailable
from benchmarks.scripts.cases import Case, cases
from benchmarks.scripts.judge import Judged, judge
from benchmarks.scripts.record import launcher, record

_RANKS = 2
_ENDLESS = ["--steps", "100000"]  # a trial ends the script when it has its steps


def record_all(chosen: list[Case], out: Path, *, again: bool) -> None:
    """Record what is not there yet; one line each."""
    done: set[str] = set()
    why_not = unavailable()
    if why_not:
        print(f"links are not shaped: {why_not}", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        network = None if why_not else stack.enter_context(Network(_RANKS))
        for case in chosen:
            missing = {
                one.id
                for one in (case, case.healthy)
                if one.id not in done and (again or not (out / one.id / "run.json").exists())
            }
            if case.id not in missing:
                continue
            namespaces = []
            if network is not None:
                mbit = case.script.link_mbit
                namespaces = [network.namespace(host) for host in range(_RANKS)]
                for host in range(_RANKS):
                    network.shape(host, LinkShape(send_mbit=mbit, receive_mbit=mbit))
            try:
                fixed = case.healthy.id in missing
                faulty, healthy = record(case, out, namespaces, ranks=_RANKS, fixed=fixed)
            except (AdvisorError, OSError) as error:
                print(f"{case.id:32} {error}", flush=True)
                continue
            done |= missing
            medians = [statistics.median(steps) / 1e6 for steps in (faulty, healthy)]
            print("{:32} {:8.1f} ms, fixed {:8.1f} ms".format(case.id, *medians), flush=True)


def sweep_all(chosen: list[Case], out: Path, *, mbit: float | None, asked: list[str]) -> None:
    """``advisor tune --sweep`` of each script; its own output tells the result."""
    with Network(_RANKS) as network:
        for case in {c.healthy.id: c.healthy for c in chosen}.values():
            rate = case.script.link_mbit if mbit is None else mbit
            for host in range(_RANKS):
                network.shape(host, LinkShape(send_mbit=rate, receive_mbit=rate))
            folder = out / case.id
            folder.parent.mkdir(parents=True, exist_ok=True)
            namespaces = [network.namespace(host) for host in range(_RANKS)]
            job = [*launcher(namespaces, _RANKS), *case.command(folder / "job"), *_ENDLESS]
            tune = ["-m", "advisor", "tune", "--sweep", "-o", str(folder), "--steps", "20", *asked]
            print(f"{case.id} at {rate:g} Mbit/s", flush=True)
            subprocess.run([sys.executable, *tune, "--", *job], check=False)


def score_all(chosen: list[Case], out: Path, apart: list[str]) -> list[Judged]:
    """Judge every recorded case, the healthy ones once each."""
    wanted = {c.id: c for case in chosen for c in (case.healthy, case)}
    found = []
    for case in wanted.values():
        needed = (case, case.healthy)
        if not all((out / one.id / "run.json").exists() for one in needed):
            continue
        judged = judge(case, out, apart)
        found.append(judged)
        print(line(judged, faulty=case.fault is not None), flush=True)
    return found


def line(judged: Judged, *, faulty: bool) -> str:
    """One row of the table."""
    if not faulty:
        said = "no alarm" if not judged.alarms else "ALARM " + ", ".join(judged.alarms)
        return f"{judged.id:28} {judged.step_ns / 1e6:7.1f} ms  {said}"
    marks = ("cause" if judged.right_cause else "WRONG CAUSE") + (
        "" if judged.right_place else ", WRONG PLACE"
    )
    gain = "gain not said"
    if judged.real_ns is not None:
        real = f"real {judged.real_ns / 1e6:.1f} ({_ms(judged.real_low_ns)} to " + (
            f"{_ms(judged.real_high_ns)})"
        )
        said = f"said {_ms(judged.savings_ns)} ({_ms(judged.low_ns)} to {_ms(judged.high_ns)})"
        inside = {True: "inside", False: "OUTSIDE", None: "not said"}[judged.inside]
        gain = f"{said}, {real}: {inside}" + ("" if judged.costs else "; COSTS NOTHING HERE")
    return f"{judged.id:28} {judged.step_ns / 1e6:7.1f} ms  {marks}: {judged.first}; {gain}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value / 1e6:.1f}"


def summary(found: list[Judged], chosen: list[Case]) -> dict[str, float]:
    """Counts over the healthy cases and over the faults that cost something."""
    ids = {case.id for case in chosen}
    faulty = [j for j in found if j.id in ids and j.costs]
    healthy = [j for j in found if j.id not in ids]
    gains = [j for j in faulty if j.right_cause and j.inside is not None]
    return {
        "costs_nothing": sum(j.id in ids and not j.costs for j in found),
        "faults": len(faulty),
        "cause_first": sum(j.right_cause for j in faulty),
        "place": sum(j.right_place for j in faulty),
        "gains": len(gains),
        "gain_inside": sum(bool(j.inside) for j in gains),
        "healthy": len(healthy),
        "alarms": sum(bool(j.alarms) for j in healthy),
    }


def main() -> None:
    """As the header says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("action", choices=["record", "score", "sweep"])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", default="", help="ids that begin with one of these: ddp,nano/slow"
    )
    parser.add_argument("--again", action="store_true", help="record also what is there")
    parser.add_argument("--budget", default="20", help="of a sweep: trials or time")
    parser.add_argument("--mbit", type=float, help="of a sweep's links; else the case's own")
    parser.add_argument("--space", help="of a sweep: settings to try; else those of the job")
    parser.add_argument(
        "--apart", default="", help="rules whose findings are not judged: true here"
    )
    parser.add_argument("--results", type=Path, help="write the table as JSON")
    options = parser.parse_args()
    chosen = list(cases(options.only))
    if options.action == "sweep":
        space = ["--space", options.space] if options.space else []
        asked = ["--budget", options.budget, *space]
        sweep_all(chosen, options.out, mbit=options.mbit, asked=asked)
        return
    if options.action == "record":
        record_all(chosen, options.out, again=options.again)
        return
    found = score_all(chosen, options.out, options.apart.split(","))
    counted = summary(found, chosen)
    print(counted)
    if options.results:
        document = {"summary": counted, "cases": [j.to_json() for j in found]}
        options.results.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
