"""Damages recordings whose culprit is known and looks who is accused then.

    python -m benchmarks.fuzz.damage --inputs 400 --seed 1 [--recording flight/gpu_error_2nd]
    python -m benchmarks.fuzz.damage --each [--lab build/gpulab/seed22] [--recording lab/]

Each rank and each stretch of records of a recording is dropped, cut, repeated or shuffled, by
chance or (``--each``) in turn, each kind of damage on a rank that is accused and on another.
``--lab`` adds the recordings of a folder that ``benchmarks.gpulab make`` filled. The accusation
stays, or becomes "cannot tell"; nobody is accused whom the whole recording does not accuse, and
no other cause comes first. Prints what became of the damaged recordings, and every new
accusation with how to make it again; exits 1 where there is one.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.findings import Finding, FindingsReport, Severity
from benchmarks.fuzz.damages import OF_FILES, OF_RECORDS, Case, each
from benchmarks.fuzz.recordings import Recording, known

Accused = frozenset[tuple[str, str]]
"""(rule, whom): a rank, host or link that a finding names, or '' where it names nobody."""


@dataclass(frozen=True)
class Said:
    """What a diagnosis says: ``sure`` accusations, all it names, and the cause of its verdict."""

    sure: Accused
    named: frozenset[str]
    first: str
    """Rule of the verdict's finding; '' where that is but a hint, or nothing is found."""
    listed: frozenset[str]
    """Rules of the sure findings, of those merged under them, and that are known to be right."""
    hinted: Accused
    """Accusations of all findings, hints too."""
    open: tuple[Accused, ...] = ()
    """Of sure findings that leave open which of these they mean: their accusations."""


def said(place: Path) -> Said | None:
    """The diagnosis of a folder's files; None where it refuses them."""
    import advisor

    try:
        with advisor.load(*sorted(place.iterdir())) as run:
            report = run.report
    except AdvisorError:
        return None
    sure = [one for one in report.findings if one.severity != Severity.INFO]
    first = [one.rule for one in sure if one.id == report.verdict.finding]
    return Said(
        frozenset(_accusations(report, sure)),
        frozenset(whom for _, whom in _accusations(report, report.findings)),
        first[0] if first else "",
        frozenset(
            rule for one in sure for rule in (one.rule, *(effect.rule for effect in one.merged))
        ),
        frozenset(_accusations(report, report.findings)),
        tuple(frozenset(_accusations(report, [one])) for one in sure if one.one_of),
    )


def _accusations(report: FindingsReport, findings: list[Finding]) -> Iterator[tuple[str, str]]:
    read = {run.run: run.ranks_read for run in report.runs}
    for finding in findings:
        # Who names all ranks, or all but the damaged one, accuses none of them.
        count = read[finding.run]
        ranks = finding.ranks if len(finding.ranks) < min(count, max(2, count - 1)) else []
        # Beside ranks a host only says where they are.
        hosts = [] if finding.ranks else finding.hosts
        named = [*(f"rank {rank}" for rank in ranks), *hosts, *finding.links]
        for whom in named or [""]:
            yield finding.rule, whom


@cache
def of_the_whole(name: str, lab: Path | None = None) -> tuple[Recording, Said]:
    """A recording and what is said of it undamaged."""
    recording = known(lab)[name]()
    with tempfile.TemporaryDirectory() as folder:
        recording.write(recording.parts, Path(folder))
        whole = said(Path(folder))
    assert whole is not None, name
    return recording, replace(whole, listed=whole.listed | recording.causes)


def damaged(recording: Recording, place: Path, seed: int, number: int) -> str:
    """Write a damaged copy into a folder; says what was done to it."""
    rng = random.Random(f"{recording.name}/{seed}/{number}")
    copy = _copied(recording)
    kind = rng.randrange(len(OF_RECORDS) + len(OF_FILES))
    if kind < len(OF_RECORDS):
        done = OF_RECORDS[kind](copy.parts, rng)
        copy.write(copy.parts, place)
        return done
    copy.write(copy.parts, place)
    return OF_FILES[kind - len(OF_RECORDS)](place, rng)


def _copied(recording: Recording) -> Recording:
    return replace(recording, parts={name: list(part) for name, part in recording.parts.items()})


@dataclass(frozen=True)
class Result:
    """What became of one damaged recording: ``new`` are accusations that it alone makes."""

    kind: str
    done: str
    new: tuple[tuple[str, str], ...] = ()
    first: str = ""


def judge(name: str, seed: int, number: int) -> Result:
    """Damage a recording by chance and compare whom it accuses."""
    recording, whole = of_the_whole(name)
    return _judged(whole, lambda place: damaged(recording, place, seed, number))


def judge_case(recording: Recording, whole: Said, case: Case) -> Result:
    """Damage a recording as a case says and compare whom it accuses."""

    def damage(place: Path) -> str:
        copy = _copied(recording)
        case.of_records(copy.parts)
        copy.write(copy.parts, place)
        case.of_files(place)
        return case.done

    return _judged(whole, damage)


def _judged(whole: Said, damage: Callable[[Path], str]) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        done = damage(Path(folder))
        try:
            after = said(Path(folder))
        except Exception:  # noqa: BLE001 - whatever it is, it is the finding
            return Result("internal error", done + "\n" + traceback.format_exc())
    if after is None:
        return Result("refused", done)
    new = tuple(sorted(after.sure - whole.sure))
    # Who is one of several is not accused, where he whom the whole accuses is among them.
    open_to = frozenset().union(*(several for several in after.open if several & whole.sure))
    if any(one not in {*whole.named, ""} for _, one in {*new} - open_to):
        return Result(NEW_ACCUSATION, done, new, after.first)
    firsts = {pair for pair in after.sure if pair[0] == after.first}
    if not (after.first in {*whole.listed, ""} or firsts <= whole.hinted):
        return Result(ANOTHER_CAUSE, done, new, after.first)
    if after.first == whole.first:
        return Result(_SAME, done, new, after.first)
    return Result("weaker", done, new, after.first)


NEW_ACCUSATION, ANOTHER_CAUSE, _SAME = "NEW ACCUSATION", "ANOTHER CAUSE FIRST", "same first"


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20, help="of each recording")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--recording", action="append", metavar="NAME or its beginning")
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--each", action="store_true", help="each kind of damage in turn")
    parser.add_argument("--damage", action="append", metavar="WORDS", help="of --each, only these")
    parser.add_argument("--lab", type=Path, help="recordings of benchmarks.gpulab or lab too")
    parser.add_argument(
        "--budget",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="of processor time for each recording: some kinds, by the seed",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="what became weaker too")
    arguments = parser.parse_args()
    wanted = tuple(arguments.recording or [""])
    names = [name for name in known(arguments.lab) if name.startswith(wanted)]
    all_kinds: Counter[str] = Counter()
    for name in names:
        begun = time.process_time()
        recording, whole = of_the_whole(name, arguments.lab)
        of_the_whole.cache_clear()
        counted: Counter[str] = Counter()
        for number, result in enumerate(_results(recording, whole, arguments), arguments.first):
            counted[result.kind] += 1
            if result.kind in _WRONG or (arguments.verbose and result.kind != _SAME):
                print(f"  {result.kind}, input {number}: {result.done}: {result.first}", flush=True)
                print(f"    {result.new}", flush=True)
        spent = f"{time.process_time() - begun:.0f} CPU s"
        print(f"{name} ({whole.first or 'nothing'}): {_shown(counted)} ({spent})", flush=True)
        all_kinds += counted
    print(f"{all_kinds.total()} damaged recordings: {_shown(all_kinds)}")
    return 1 if any(all_kinds[kind] for kind in _WRONG) else 0


def _results(recording: Recording, whole: Said, arguments: argparse.Namespace) -> Iterator[Result]:
    end_s = time.process_time() + arguments.budget
    if arguments.each:
        cases = [case for case in each(recording, whole.named)
                 if any(words in case.done for words in arguments.damage or [""])]  # fmt: skip
        if arguments.budget < math.inf:
            random.Random(f"{recording.name}/{arguments.seed}").shuffle(cases)
        for case in cases:
            if time.process_time() < end_s:
                yield judge_case(recording, whole, case)
        return
    for number in range(arguments.first, arguments.first + arguments.inputs):
        if time.process_time() < end_s:
            yield _judged(whole, partial(damaged, recording, seed=arguments.seed, number=number))


_WRONG = (NEW_ACCUSATION, ANOTHER_CAUSE, "internal error")


def _shown(counted: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counted.items()))


if __name__ == "__main__":
    sys.exit(main())
