"""What was read, as a command may be given it again: to be pasted."""

import shlex
from collections.abc import Sequence
from pathlib import PurePath

from advisor.findings import FindingsReport, Verdict
from advisor.report.clean import one_line

# Options whose value is a place too, but none that was read.
_WRITES_TO = ("-o", "--output", "--store")


def made_by(report: FindingsReport) -> str:
    """The command that made the report, without where it wrote to: what it was given, to be given
    again."""
    try:
        words = shlex.split(report.command)
    except ValueError:
        return report.command
    return shlex.join(
        word
        for before, word in zip(["", *words], words, strict=False)
        if word not in (*_WRITES_TO, "--force") and before not in _WRITES_TO
    )


def given(report: FindingsReport, run: str) -> str:
    """What a command must be given to read ``run`` again, quoted for a shell; 'PATH' if unknown.

    Of the arguments of the command that made the report, those that hold the run's files.
    """
    return _arguments(report, next((item.inputs for item in report.runs if item.run == run), []))


def _arguments(report: FindingsReport, inputs: Sequence[str], others: Sequence[str] = ()) -> str:
    """The command's arguments that hold these files and no ``others``, else a name for them all."""
    try:
        words = shlex.split(report.command)[2:]
    except ValueError:
        words = []
    places = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if word and not word.startswith("-") and before not in _WRITES_TO
    ]
    holding = [
        place
        for place in places
        if any(_within(path, place) for path in inputs)
        and not any(_within(path, place) for path in others)
    ]
    if inputs and all(any(_within(path, place) for place in holding) for path in inputs):
        return shlex.join(one_line(place) for place in holding)
    read = what_was_read(inputs)
    return shlex.quote(one_line(read)) if read else "PATH"


def _within(path: str, place: str) -> bool:
    return PurePath(path).is_relative_to(place)


def filled_in(report: FindingsReport) -> FindingsReport:
    """``report`` whose steps and proofs name what was read in the place of OLD, for every view.

    Of logs and benchmarks beside recordings nothing can be compared: they are left out; of
    several recordings each is named alone.
    """
    read = {item.run: item.recordings or item.inputs for item in report.runs}
    places = {
        run: _arguments(report, own, [path for one in read if one != run for path in read[one]])
        for run, own in read.items()
    }
    known = {run: place for run, place in places.items() if place != "PATH"}
    whose = report.verdict.run or (report.runs[0].run if len(report.runs) == 1 else "")

    def said(verdict: Verdict, run: str) -> Verdict:
        steps = [_with(known.get(run), step) for step in verdict.next_steps]
        return verdict.model_copy(update={"next_steps": steps})

    return report.model_copy(
        update={
            "verdict": said(report.verdict, whose),
            "runs": [
                item.model_copy(update={"verdict": item.verdict and said(item.verdict, item.run)})
                for item in report.runs
            ],
            "findings": [
                item.model_copy(update={"verify": _with(known.get(item.run), item.verify)})
                for item in report.findings
            ],
        }
    )


def _with(place: str | None, text: str) -> str:
    return text if place is None else text.replace(" OLD NEW", f" {place} NEW")


def what_was_read(inputs: Sequence[str]) -> str:
    """One name for the inputs, as a command may be given it again; '' when there is none."""
    if len(inputs) == 1:
        return inputs[0]
    folders = {PurePath(path).parent for path in inputs}
    # The folder that holds all others and a file of its own: that one was given, or might be.
    around = (top for top in folders if all(one.is_relative_to(top) for one in folders))
    return str(next(around, ""))
