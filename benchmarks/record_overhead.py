"""What `advisor.record` costs outside the steps that it records, shown on a busy machine too.

    python -m benchmarks.record_overhead --out /tmp/record-overhead

Three processes train the same small DDP model (gloo): two as they are, one with no change under
`-m advisor.record`. They take turns, a short block of steps each, so that whatever else the machine
does hits all three alike. Compared is the CPU time of a block with that of its neighbour in the
same round: recorded over plain, and plain over plain, which is the noise. Given are the median over
the rounds and its 95 % interval (bootstrap), before the recorded steps and after them. Beside it
stands what the hook itself takes, timed alone: all that is run in a step before the recorded ones;
and what `advisor record --every N` takes at the end of N steps of rank 0, with 8 ranks' calls.
`--every` compares whole jobs of two ranks instead, one of them watched: all that it costs is in it,
torch's flight recorder and the store too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

_BLOCK, _WARM_UP, _RECORDED = 5, 10, 5
_CALLS = 100_000
_SCRIPT = """
import json, os, sys, time
import torch, torch.distributed as dist, torch.nn as nn
torch.set_num_threads(1)
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
torch.manual_seed(0)
layers = [nn.Linear(128, 128) for _ in range(4)]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
optimizer = torch.optim.AdamW(model.parameters())
data = torch.randn(16, 128)
print("ready", flush=True)
for line in sys.stdin:
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    for _ in range(int(line)):
        model(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    used = [time.process_time_ns() - cpu, time.perf_counter_ns() - wall]
    print(json.dumps(used), flush=True)
dist.destroy_process_group()
"""


_EVERY = 100
_PAIR = _SCRIPT.replace(
    "store=dist.HashStore(), rank=0, world_size=1",
    "init_method='tcp://127.0.0.1:' + os.environ['PORT'], rank=int(os.environ['RANK']), "
    "world_size=2",
)


class Pair:
    """Two ranks that train together, watched or not; they run a block of steps when told to."""

    def __init__(self, folder: Path, *, watched: bool) -> None:
        from advisor.profile.hook import order

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "lateness.jsonl").unlink(missing_ok=True)
        script = folder / "pair.py"
        script.write_text(_PAIR, encoding="utf-8")
        told = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "PORT": port}
        if watched:
            told = order.environment(order.Order(str(folder), every=_EVERY), told)
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.ranks: list[subprocess.Popen[str]] = [
            subprocess.Popen(
                [sys.executable, str(script)], env={**told, "RANK": rank},
                stderr=subprocess.DEVNULL, **pipes,
            )
            for rank in "01"
        ]  # fmt: skip
        for rank in self.ranks:
            assert rank.stdout is not None and rank.stdout.readline()

    def run(self, steps: int) -> tuple[float, float]:
        """Make ``steps`` steps; CPU time of one on both ranks together and its wall time, ns."""
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.write(f"{steps}\n")
            rank.stdin.flush()
        said = [json.loads(rank.stdout.readline()) for rank in self.ranks if rank.stdout]
        return sum(cpu for cpu, _ in said) / steps, max(wall for _, wall in said) / steps

    def close(self) -> None:
        """Let the scripts come to their end."""
        for rank in self.ranks:
            assert rank.stdin is not None
            rank.stdin.close()
        for rank in self.ranks:
            rank.wait()


class Job:
    """One training process that runs a block of steps when told to."""

    def __init__(self, folder: Path, name: str, *, skip: int | None) -> None:
        script = folder / "train.py"
        script.write_text(_SCRIPT, encoding="utf-8")
        self.trace = folder / name / "rank0.json.gz"
        self.trace.unlink(missing_ok=True)
        options = ["--skip", str(skip), "--steps", str(_RECORDED), "-o", str(folder / name)]
        program = ["-m", "advisor.record", *options] if skip is not None else []
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, *program, str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
        )
        self._answer()

    def run(self, steps: int) -> tuple[float, float]:
        """Make ``steps`` steps; CPU and wall time of one, ns."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{steps}\n")
        self.process.stdin.flush()
        cpu, wall = json.loads(self._answer())
        return cpu / steps, wall / steps

    def close(self) -> None:
        """Let the script come to its end."""
        self.process.communicate()
        if self.process.returncode:
            raise SystemExit(f"a training process failed with {self.process.returncode}")

    def _answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a training process ended early")
        return line


def rounds(
    jobs: Mapping[str, Job | Pair], count: int, block: int = _BLOCK
) -> dict[str, list[float]]:
    """CPU time of a step, ns, per job and round; who begins changes from round to round."""
    found: dict[str, list[float]] = {name: [] for name in jobs}
    names = list(jobs)
    for number in range(count + _WARM_UP):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            cpu, _ = jobs[name].run(block)
            if number >= _WARM_UP:
                found[name].append(cpu)
    return found


def compare(one: list[float], other: list[float]) -> tuple[float, float, float]:
    """Median over rounds of ``other / one - 1`` with its 95 % interval."""
    ratios = [right / left - 1 for left, right in zip(one, other, strict=True)]
    generator = random.Random(0)
    draws = sorted(median(generator.choices(ratios, k=len(ratios))) for _ in range(2_000))
    return median(ratios), draws[49], draws[-50]


def hook_ns() -> float:
    """CPU time of the hook that counts steps, ns per step: the least of several tries."""
    from advisor.profile.recorder import StepRecorder

    recorder = StepRecorder(Path("unused"), skip=10**12)
    hook: Any = recorder._optimizer_stepped
    optimizer = object()

    def timed() -> float:
        start = time.process_time_ns()
        for _ in range(_CALLS):
            hook(optimizer, (), {})
        return (time.process_time_ns() - start) / _CALLS

    return min(timed() for _ in range(7))


def watch_ns(windows: int = 50, ranks: int = 8) -> tuple[float, float]:
    """Wall time of the lines of ``--every``, ns: a step's, and a window's end on rank 0.

    Torch's flight recorder is full (512 calls), the store is a real TCPStore.
    """
    os.environ["TORCH_FR_BUFFER_SIZE"] = "512"
    import torch
    import torch.distributed as dist

    from advisor.profile.hook.lateness import Watch

    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    tensor = torch.ones(1)
    every = 10
    watches = [Watch(Path(os.devnull).parent, every, store, r, ranks) for r in range(ranks)]
    watches[0].say = lambda line: None
    for watch in watches:
        watch.step(0)
    ends, steps, number = [], [], 0
    for _ in range(windows):
        for _ in range(every):
            number += 1
            for _ in range(60):
                dist.all_reduce(tensor)
            for watch in watches[1:]:
                watch.step(number)
            start = time.perf_counter_ns()
            watches[0].step(number)
            (ends if number % every == 0 else steps).append(time.perf_counter_ns() - start)
    dist.destroy_process_group()
    return median(steps), median(ends)


def compare_watched(folder: Path, count: int) -> None:
    """Print what ``--every`` costs a step, both ranks together, beside the noise."""
    jobs = {
        name: Pair(folder / name, watched=name == "watched")
        for name in ("plain", "again", "watched")
    }
    found = rounds(jobs, count, _EVERY)
    for job in jobs.values():
        job.close()
    lines = (folder / "watched" / "lateness.jsonl").read_text(encoding="utf-8").count("\n")
    step = median(found["plain"])
    print(
        f"{count} rounds of {_EVERY} steps, {lines} lines; a step takes {step / 1e6:.3f} ms of CPU"
    )
    for label, name in (("watched", "watched"), ("the noise", "again")):
        middle, low, high = (part * step / 1e3 for part in compare(found["plain"], found[name]))
        print(f"{label}: {middle:+.1f} us of CPU a step ({low:+.1f} to {high:+.1f})")


def main() -> None:
    """Run the rounds and print one line per window."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=400, help="rounds before and after each")
    parser.add_argument("--out", type=Path, required=True, help="folder for the script and trace")
    parser.add_argument(
        "--every", action="store_true", help="compare jobs of two ranks, one watched"
    )
    options = parser.parse_args()
    if options.every:
        compare_watched(options.out, options.rounds)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    skip = (options.rounds + _WARM_UP) * _BLOCK
    jobs = {
        "plain": Job(options.out, "plain", skip=None),
        "again": Job(options.out, "again", skip=None),
        "recorded": Job(options.out, "recorded", skip=skip),
    }
    before = rounds(jobs, options.rounds)
    for job in jobs.values():
        job.run(4 * _RECORDED)  # the recorded ones are among them
    if not jobs["recorded"].trace.exists():
        raise SystemExit("nothing was recorded")
    after = rounds(jobs, options.rounds)
    for job in jobs.values():
        job.close()
    step = median(before["plain"])
    print(f"{options.rounds} rounds of {_BLOCK} steps; a step takes {step / 1e6:.3f} ms of CPU")
    for title, found in (("before", before), ("after", after)):
        for label, name in (("with / without", "recorded"), ("without / without", "again")):
            middle, low, high = compare(found["plain"], found[name])
            print(f"{title} the recorded steps, {label}: {middle:+.2%} ({low:+.2%} to {high:+.2%})")
    hook = hook_ns()
    print(f"the hook alone: {hook:.0f} ns per step, {hook / step:.3%} of this step")
    each, window = watch_ns()
    print(
        f"--every: {each / 1e3:.1f} us per step and {window / 1e6:.1f} ms at the end of N on rank 0"
    )


if __name__ == "__main__":
    main()
