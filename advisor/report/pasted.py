"""What was read, as a command may be given it again: to be pasted."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import PurePath

from advisor.findings import FindingsReport
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


def _arguments(report: FindingsReport, inputs: Sequence[str]) -> str:
    """The command's arguments that hold these files, else a name for all of them."""
    try:
        words = shlex.split(report.command)[2:]
    except ValueError:
        words = []
    places = [
        word
        for before, word in zip(["", *words], words, strict=False)
        if not word.startswith("-") and before not in _WRITES_TO
    ]
    holding = [place for place in places if any(_within(path, place) for path in inputs)]
    if inputs and all(any(_within(path, place) for place in holding) for path in inputs):
        return shlex.join(one_line(place) for place in holding)
    read = what_was_read(inputs)
    return shlex.quote(one_line(read)) if read else "PATH"


def _within(path: str, place: str) -> bool:
    return PurePath(path).is_relative_to(place)


def to_paste(text: str, report: FindingsReport, run: str = "") -> str:
    """``text`` with what was read of ``run`` in the place of OLD; '' is the run where one was.

    Of logs and benchmarks beside recordings nothing can be compared: they are left out.
    """
    runs = [item for item in report.runs if item.run == run] if run else report.runs
    if len(runs) != 1:
        return text
    known = _arguments(report, runs[0].recordings or runs[0].inputs)
    return text if known == "PATH" else text.replace(" OLD NEW", f" {known} NEW")


def what_was_read(inputs: Sequence[str]) -> str:
    """One name for the inputs, as a command may be given it again; '' when there is none."""
    if len(inputs) == 1:
        return inputs[0]
    folders = {PurePath(path).parent for path in inputs}
    # The folder that holds all others and a file of its own: that one was given, or might be.
    around = (top for top in folders if all(one.is_relative_to(top) for one in folders))
    return str(next(around, ""))
