"""One pass of ``advisor diagnose``: read, diagnose, write; again for every round of a watch."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from advisor.cli._output import Output, refuse_inputs, say_some, use_color
from advisor.cli._progress import progress_bar
from advisor.config.atomic_files import PRIVATE
from advisor.errors import AdvisorError
from advisor.vocabulary.words import plural

if TYPE_CHECKING:
    from advisor.findings import FindingsReport

_LOSSES = {"file-not-read", "file-lost-records", "file-partly-read", "ranks-cut", "events-lost"}
_QUICK_START = {
    "OPENBLAS_NUM_THREADS": "1",  # else a thread per core that spins; our matrices are small
    "PYDANTIC_DISABLE_PLUGINS": "1",  # else every installed package is looked at for some
}
"""Read as libraries are imported, which is late here; no job is started that would inherit it."""
_FAIL_ORDER = {"critical": 0, "warning": 1, "info": 2}


class Diagnosis(NamedTuple):
    """What the command line asked for; ``rules`` are the choices of :meth:`Run.diagnose`."""

    inputs: Sequence[Path]
    outputs: Sequence[Output]
    store: Path | None
    fail_on: str
    rules: Mapping[str, Any]
    verbose: bool
    quiet: bool
    color: str
    lean: bool
    force: bool
    command: str
    share: bool = False
    hardware: str | None = None

    def run(self, leave_out: frozenset[Path] = frozenset()) -> bool:
        """Write every output; whether a finding is as severe as ``fail_on``."""
        started = time.monotonic()
        os.environ.update(_QUICK_START | os.environ)
        from advisor import api

        seen = not self.quiet and not leave_out
        with progress_bar(self.inputs, enabled=seen) as progress:
            run = api.load(
                *self.inputs,
                store=self.store,
                lean=self.lean,
                hardware=self.hardware,
                force=self.force,
                leave_out=leave_out,
                command=self.command,
                progress=progress,
                share=self.share,
            )
        with run:
            with progress_bar((), enabled=seen):
                report = run.diagnose(**self.rules)
            if not self.quiet:
                _note_what_was_read(report, time.monotonic() - started)
            for item in self.outputs:
                coloured = use_color(self.color, to_file=item.path is not None)
                options = {"verbose": self.verbose, "color": coloured} if item.is_text else {}
                text = run.render(item.format, **options)
                item.emit(text, quiet=self.quiet, mode=0o644 if self.share else PRIVATE)
            if self.store is not None:
                run.store.save()
                if not self.quiet:
                    click.echo(f"Wrote {self.store}", err=True)
        worst = min((_FAIL_ORDER[f.severity] for f in report.findings), default=99)
        return self.fail_on != "never" and worst <= _FAIL_ORDER[self.fail_on]

    def again(self, head: str, leave_out: frozenset[Path]) -> bool:
        """As :meth:`run` under a line ``head``, over what the rounds before have written."""
        on_screen = any(item.is_text and item.path is None for item in self.outputs)
        if on_screen or not self.quiet:
            click.echo(head, err=not on_screen)
        return self._replace(force=True).run(leave_out)

    def check_rules(self) -> None:
        """Raise AdvisorError for a rule or folder that is not there, before any file is."""
        from advisor.engine import load_catalogue

        load_catalogue(**self.rules)

    def written(self) -> list[Path]:
        """The files that :meth:`run` writes."""
        reports = [item.path for item in self.outputs if item.path is not None]
        return reports if self.store is None else [*reports, self.store]


def check_store(
    store: Path | None, outputs: Sequence[Output], inputs: Sequence[Path], *, force: bool
) -> None:
    """Raise AdvisorError before anything is read where the store could not be kept."""
    from advisor.store.target import check_store_target

    if store is None:
        return
    refuse_inputs([store], inputs)
    check_store_target(store, force=force)
    if any(item.path is not None and item.path.resolve() == store.resolve() for item in outputs):
        raise AdvisorError("cannot be both the store and a report", where=str(store))


def _note_what_was_read(report: FindingsReport, seconds: float) -> None:
    several = len(report.runs) > 1
    if several:
        head = f"These files are of {len(report.runs)} recordings: each is diagnosed by itself"
        click.echo(head, err=True)
    for run in report.runs:
        name = f"{run.run}: " if several else ""
        dropped = f", {run.events_dropped:,} dropped" if run.events_dropped else ""
        events = f"{run.events_read:,} events" if run.events_read else "no trace among them"
        read = f"{plural(run.ranks_read, 'rank')}, {events}{dropped}"
        if not run.ranks_read:
            read = f"{plural(len(run.inputs), 'file')}, no trace among them,"
        click.echo(f"{name}Read {read} in {seconds:.1f} s", err=True)
        # What was lost in reading; other notes can wait for the report.
        lost = [note.text for note in run.notes if note.code in _LOSSES]
        say_some(lost, rest="the report")
