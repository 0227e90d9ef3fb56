"""``python -m benchmarks.gpulab make|score|compare``: simulated NCCL jobs with known truth."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from benchmarks.gpulab import compare, make, score, table

ROOT = Path(__file__).resolve().parent


def main() -> int:
    """Make or score recordings; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpulab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make", help="simulate a seed's cases and write their traces")
    maker.add_argument("--seed", type=int, required=True)
    maker.add_argument("--out", type=Path, required=True)
    maker.add_argument("--quick", action="store_true", help="one case of each kind")
    maker.add_argument("--only", default="", help="cases whose id holds this")
    scorer = commands.add_parser("score", help="diagnose every recording and compare")
    scorer.add_argument("folder", type=Path)
    scorer.add_argument("--only", default="")
    scorer.add_argument("--resume", action="store_true", help="keep what was scored before")
    scorer.add_argument("--misses", type=Path, help="write the misses as a Markdown table too")
    comparer = commands.add_parser("compare", help="fields of a real and a simulated trace")
    comparer.add_argument("real", type=Path)
    comparer.add_argument("simulated", type=Path)
    arguments = parser.parse_args()
    begun = time.monotonic()
    if arguments.command == "compare":
        pair = (compare.read(arguments.real), compare.read(arguments.simulated))
        print("\n".join(compare.differences(*pair)))
        return 0
    if arguments.command == "make":
        count = make.make_seed(
            arguments.seed, arguments.out, quick=arguments.quick, only=arguments.only, say=print
        )
        print(f"{count} recordings in {time.monotonic() - begun:.0f} s under {arguments.out}")
        return 0
    scores = score.score_all(
        arguments.folder, only=arguments.only, resume=arguments.resume, say=print
    )
    results = score.summarise(scores, arguments.folder.name)
    (arguments.folder / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    if arguments.misses:
        arguments.misses.write_text(table.markdown(results) + "\n")
    print("\n" + table.render(results))
    print(f"{len(scores)} recordings scored in {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
