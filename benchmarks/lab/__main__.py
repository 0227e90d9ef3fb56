"""``python -m benchmarks.lab record | score | settle | show | clean``: README.md here."""

from __future__ import annotations

import argparse
import fnmatch
import sys
from pathlib import Path

from benchmarks.lab import hosts
from benchmarks.lab.cases import DEVELOPMENT_SEED, all_cases, quick_cases

DEFAULT_OUT = Path.home() / ".cache" / "advisor-lab"
RESULTS = Path(__file__).with_name("results.json")
PREDICTIONS = Path(__file__).with_name("predictions.json")
SHARED = Path(__file__).with_name("shared.json")


def main() -> int:
    """Run one of the lab's commands; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lab")
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the cases and keep their traces")
    recording.add_argument("--out", type=Path, default=DEFAULT_OUT)
    recording.add_argument("--only", default="*", help="pattern of case ids")
    recording.add_argument("--seed", type=int, default=DEVELOPMENT_SEED)
    recording.add_argument("--quick", action="store_true", help="a subset, under five minutes")
    recording.add_argument("--again", action="store_true", help="also cases recorded before")
    scoring = commands.add_parser("score", help="diagnose recordings and compare with the truth")
    scoring.add_argument("folder", type=Path, nargs="?", default=DEFAULT_OUT)
    scoring.add_argument("--only", default="*", help="pattern of case ids")
    scoring.add_argument("--results", type=Path, default=RESULTS, help="file to write")
    scoring.add_argument(
        "--shift-all",
        type=float,
        default=0.0,
        metavar="MS",
        help="move every host's clock by up to MS first (needs --results)",
    )
    scoring.add_argument(
        "--shift-one",
        type=_milliseconds,
        default=(),
        metavar="MS[,MS...]",
        help="count what stays with one host's clock moved by each MS (needs --results)",
    )
    scoring.add_argument(
        "--every-host", action="store_true", help="with --shift-one: each host's clock in turn"
    )
    showing = commands.add_parser("show", help="print the last score")
    showing.add_argument("--results", type=Path, default=RESULTS)
    commands.add_parser("list", help="the cases of a seed").add_argument(
        "--seed", type=int, default=DEVELOPMENT_SEED
    )
    predicting = commands.add_parser(
        "predict", help="predictions from one trace, against the truth"
    )
    predicting.add_argument("--out", type=Path, default=DEFAULT_OUT / "predictions")
    predicting.add_argument("--only", default="*", help="pattern of family names")
    predicting.add_argument("--again", action="store_true", help="measure once more")
    predicting.add_argument("--results", type=Path, default=PREDICTIONS, help="file to write")
    others = commands.add_parser("shared", help="score other people's recordings of known truth")
    others.add_argument("folder", type=Path, nargs="?", help="default: ../shared/data")
    others.add_argument("--results", type=Path, default=SHARED, help="file to write")
    settling = commands.add_parser("settle", help="what a change gives a recorded case, measured")
    settling.add_argument("folder", type=Path, help="of one case")
    settling.add_argument("changes", nargs="+", metavar="FIELD=VALUE", help="bucket_cap_mb=25")
    settling.add_argument("--rounds", type=int, default=4)
    commands.add_parser("clean", help="remove what a killed lab left behind")
    return _COMMANDS[(arguments := parser.parse_args()).command](arguments)


def _record(arguments: argparse.Namespace) -> int:
    reason = hosts.unavailable()
    if reason:
        print(f"the lab cannot run here: {reason}", file=sys.stderr)
        return 0
    from benchmarks.lab.record import record

    cases = (quick_cases if arguments.quick else all_cases)(arguments.seed)
    chosen = [case for case in cases if fnmatch.fnmatch(case.id, arguments.only)]
    failed = record(chosen, arguments.out, say=_say, again=arguments.again)
    return 1 if failed else 0


def _score(arguments: argparse.Namespace) -> int:
    from benchmarks.lab import score, table

    if (arguments.shift_all or arguments.shift_one) and arguments.results == RESULTS:
        print("shifted clocks need --results: the committed file is of clocks as they are")
        return 2
    if arguments.shift_one:
        return _score_shifts(arguments)
    scores = score.score_all(
        arguments.folder, only=arguments.only, say=_say, shift_all_ms=arguments.shift_all
    )
    results = score.summarise(scores)
    table.write(results, arguments.results)
    print(table.render(results))
    return 0


def _score_shifts(arguments: argparse.Namespace) -> int:
    from benchmarks.lab import shifts, table

    found = shifts.score_shifts(
        arguments.folder,
        only=arguments.only.split(","),
        shifts_ms=arguments.shift_one,
        every_host=arguments.every_host,
        say=_say,
    )
    results = shifts.summarise(found)
    table.write(results, arguments.results)
    print(shifts.render(results))
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from benchmarks.lab import table

    print(table.render(table.read(arguments.results)))
    return 0


def _list(arguments: argparse.Namespace) -> int:
    for case in all_cases(arguments.seed):
        job = case.faulty
        print(f"{case.id:36} {job.strategy:12} {job.ranks} ranks  {case.strength}")
    return 0


def _predict(arguments: argparse.Namespace) -> int:
    """Record what is not recorded yet (where the lab can run), then score everything recorded."""
    from benchmarks.lab import predictions
    from benchmarks.lab.families import families
    from benchmarks.lab.measure import record_families

    chosen = [family for family in families() if fnmatch.fnmatch(family.name, arguments.only)]
    reason = hosts.unavailable()
    if reason:
        print(f"the lab cannot record here: {reason}", file=sys.stderr)
        failed = []
    else:
        failed = record_families(chosen, arguments.out, again=arguments.again, say=_say)
    results = predictions.score_all(chosen, arguments.out, say=_say)
    predictions.write(results, arguments.results)
    print(predictions.render(results))
    return 1 if failed else 0


def _shared(arguments: argparse.Namespace) -> int:
    from benchmarks.lab import shared

    folder = arguments.folder or shared.DEFAULT_DATA
    if not folder.is_dir():
        print(f"no recordings at {folder}", file=sys.stderr)
        return 0
    results = shared.score_all(folder, say=_say)
    shared.write(results, arguments.results)
    print(shared.render(results))
    return 0


def _settle(arguments: argparse.Namespace) -> int:
    reason = hosts.unavailable()
    if reason:
        print(f"the lab cannot run here: {reason}", file=sys.stderr)
        return 2
    from benchmarks.lab import settle

    changed = settle.changes(arguments.changes)
    print(settle.settle(arguments.folder, changed, rounds=arguments.rounds, say=_say))
    return 0


def _clean(_arguments: argparse.Namespace) -> int:
    removed = hosts.clean()
    print("\n".join(removed) if removed else "nothing left behind")
    return 0


def _milliseconds(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


_COMMANDS = {
    "record": _record,
    "score": _score,
    "show": _show,
    "list": _list,
    "predict": _predict,
    "shared": _shared,
    "settle": _settle,
    "clean": _clean,
}

if __name__ == "__main__":
    sys.exit(main())
