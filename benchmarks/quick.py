"""How quick the tool is at once: CPU seconds (user and system) of what people wait for most.

    python -m benchmarks.quick [RECORDING] [--beside CHECKOUT] [--runs 5]

Each command runs in a process of its own, with compiled files and the cache of rules warm, as from
the third start on. Printed are the least, as other work of the machine only adds, and the median.
With ``--beside`` another checkout's commands take turns with these.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDING = "fixtures/gpt2-tiny-ddp-2"
_ONCE_FROM_S = 5.0


def cpu_seconds(arguments: list[str], env: dict[str, str], root: Path = ROOT) -> float:
    """User and system time of one command, its children too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        cwd=root,
        env=env | {"PYTHONPATH": str(root)},
        capture_output=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Command line; prints a line per command and checkout."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("recording", nargs="?", default=RECORDING)
    parser.add_argument("--beside", type=Path, help="another checkout, measured in turns with this")
    parser.add_argument("--runs", type=int, default=5)
    chosen = parser.parse_args()
    roots = [ROOT, *([chosen.beside.resolve()] if chosen.beside else [])]
    recording = str(Path(chosen.recording).resolve())
    catalogue = (
        "from advisor.engine import load_catalogue as f; from time import process_time as t;"
        "f(); a = t(); f(); print(t() - a)"
    )
    commands = {
        "advisor --version": (["-m", "advisor", "--version"], 0.15),
        "advisor --help": (["-m", "advisor", "--help"], 0.15),
        f"advisor diagnose {chosen.recording}": (
            ["-m", "advisor", "diagnose", recording, "-q"],
            0.8,
        ),
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
        env = os.environ | {"PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
        env |= {"XDG_CACHE_HOME": f"{folder}/cache"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for name, (arguments, goal) in commands.items():
            runs = 1 if goal > _ONCE_FROM_S else chosen.runs
            for root in roots * 2 if runs > 1 else ():  # some is kept from the second time on
                cpu_seconds(arguments, env, root)
            taken = [[cpu_seconds(arguments, env, root) for root in roots] for _ in range(runs)]
            for root, seconds in zip(roots, zip(*taken, strict=True), strict=True):
                print(
                    f"{name if root == ROOT else f'  the same in {root.name}':<45} "
                    f"{min(seconds):6.2f} s   median {statistics.median(seconds):.2f} s   "
                    f"goal {goal:g} s",
                    flush=True,
                )
        run = subprocess.run(
            [sys.executable, "-c", catalogue],
            check=True,
            cwd=ROOT,
            env=env | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
        )
        print(f"{'the catalogue, read and checked':<45} {float(run.stdout):6.3f} s  goal 0.05 s")


if __name__ == "__main__":
    main()
