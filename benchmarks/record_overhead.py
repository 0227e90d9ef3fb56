"""What `advisor.record` costs outside the steps that it records: A against B, interleaved.

    python -m benchmarks.record_overhead --pairs 3 --out /tmp/record-overhead

A is a small DDP loop under torchrun (two gloo processes), B the same script with no change under
`-m advisor.record`. Fresh processes run A B A B ...; the script writes its own step times. Compared
are the medians of the steps before the recorded window and of those after it (the window, the
profiler's start and its export lie between), B over A of the same pair; the noise is the spread of
the same ratio between runs of A alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from statistics import median

_SKIP, _RECORDED, _STEPS = 150, 5, 320
_SETTLE = 20  # steps left out at the start and around the recorded window
_SCRIPT = f"""
import json, sys, time
import torch, torch.distributed as dist, torch.nn as nn
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(0)
layers = [nn.Linear(128, 128) for _ in range(4)]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
optimizer = torch.optim.AdamW(model.parameters())
data, times = torch.randn(16, 128), []
for _ in range({_STEPS}):
    start = time.perf_counter_ns()
    model(data).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    times.append(time.perf_counter_ns() - start)
if dist.get_rank() == 0:
    with open(sys.argv[1], "w") as file:
        json.dump(times, file)
dist.destroy_process_group()
"""
_WINDOWS = {
    "before the recorded steps": slice(_SETTLE, _SKIP - _SETTLE),
    "after the recorded steps": slice(_SKIP + _RECORDED + _SETTLE, _STEPS),
}


def run(folder: Path, name: str, *, recorded: bool) -> list[int]:
    """One fresh job of two processes; the step times of rank 0 in ns."""
    script, result = folder / "train.py", folder / f"{name}.json"
    script.write_text(_SCRIPT, encoding="utf-8")
    options = ["--skip", str(_SKIP), "--steps", str(_RECORDED), "-o", str(folder / name)]
    program = ["-m", "advisor.record", *options] if recorded else []
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    subprocess.run(
        [*launcher, "--nproc-per-node", "2", *program, str(script), str(result)],
        check=True,
        capture_output=True,
        env={**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"},
    )
    if recorded and not (folder / name / "rank0.json.gz").exists():
        raise SystemExit(f"{name} recorded nothing")
    times: list[int] = json.loads(result.read_text(encoding="utf-8"))
    return times


def main() -> None:
    """Run the pairs and print one line per window."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=3, help="runs of each kind, at least 2")
    parser.add_argument("--out", type=Path, required=True, help="folder for scripts and times")
    options = parser.parse_args()
    if options.pairs < 2:
        parser.error("--pairs: the noise needs at least 2")
    options.out.mkdir(parents=True, exist_ok=True)
    plain, recorded = [], []
    for number in range(options.pairs):
        plain.append(run(options.out, f"a{number}", recorded=False))
        recorded.append(run(options.out, f"b{number}", recorded=True))
    for title, window in _WINDOWS.items():
        a = [median(times[window]) for times in plain]
        b = [median(times[window]) for times in recorded]
        ratios = [right / left - 1 for left, right in zip(a, b, strict=True)]
        noise = max(abs(second / first - 1) for first, second in pairwise(a))
        print(
            f"{title}: without {median(a) / 1e6:.3f} ms, with {median(b) / 1e6:.3f} ms per step; "
            f"with / without {median(ratios):+.1%} "
            f"({', '.join(f'{ratio:+.1%}' for ratio in ratios)}); "
            f"noise between runs without {noise:.1%}"
        )


if __name__ == "__main__":
    main()
