"""How quick the tool is at once: CPU seconds (user and system) of what people wait for most.

    python -m benchmarks.quick [RECORDING]

Each command runs in a process of its own, five times, with compiled files and the cache of rules
warm, as from the second start on; the least is printed: other work of the machine only adds.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDING = "fixtures/gpt2-tiny-ddp-2"
_RUNS = 5


def cpu_seconds(arguments: list[str], env: dict[str, str]) -> float:
    """User and system time of one command, its children too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, cwd=ROOT, env=env, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    recording = sys.argv[1] if len(sys.argv) > 1 else RECORDING
    catalogue = (
        "from advisor.engine import load_catalogue as f; from time import process_time as t;"
        "f(); a = t(); f(); print(t() - a)"
    )
    commands = {
        "advisor --version": (["-m", "advisor", "--version"], 0.15),
        "advisor --help": (["-m", "advisor", "--help"], 0.15),
        f"advisor diagnose {recording}": (["-m", "advisor", "diagnose", recording, "-q"], 0.8),
        "its imports alone": (
            [
                "-c",
                "import advisor.api, advisor.metrics, advisor.whatif, advisor.engine;"
                "from advisor.ingest.detect import readers; readers()",
            ],
            0.3,
        ),
        "advisor rules --test": (["-m", "advisor", "rules", "--test"], 15.0),
    }
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
        env |= {"XDG_CACHE_HOME": f"{folder}/cache"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for name, (arguments, goal) in commands.items():
            runs = 1 if goal > 5 else _RUNS
            cpu_seconds(arguments, env) if runs > 1 else None
            least = min(cpu_seconds(arguments, env) for _ in range(runs))
            print(f"{name:<45} {least:6.2f} s   goal {goal:g} s", flush=True)
        run = subprocess.run(
            [sys.executable, "-c", catalogue], check=True, cwd=ROOT, env=env, capture_output=True
        )
        print(f"{'the catalogue, read and checked':<45} {float(run.stdout):6.3f} s  goal 0.05 s")


if __name__ == "__main__":
    main()
