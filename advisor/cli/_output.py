"""Where results go: standard output or files, decided and checked before any work starts."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from advisor.cli._marks import marked
from advisor.cli._targets import check_report_target, refuse_inputs
from advisor.config.atomic_files import PRIVATE, write_atomic
from advisor.errors import AdvisorError, not_written

_MOST_LINES = 20
_DEFAULT_NAMES = {
    "html": "report.html",
    "json": "findings.json",
    "junit": "junit.xml",
    "markdown": "report.md",
    "github": "annotations.txt",
    "chat": "chat.txt",
    "text": "report.txt",
}
_BY_ENDING = {".html": "html", ".htm": "html", ".json": "json", ".xml": "junit", ".md": "markdown"}


class Output(NamedTuple):
    """One rendering and its place; ``path`` None is standard output."""

    format: str
    path: Path | None

    @property
    def is_text(self) -> bool:
        return self.format == "text"

    def write(self, text: str, *, mode: int = PRIVATE) -> None:
        """Write the file whole or not at all, with the mark by which it is known again.

        It is this user's alone, for it may name hosts, paths and commands; a file that is replaced
        keeps its mode. Raises AdvisorError when it cannot be written.
        """
        assert self.path is not None
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self.path, marked(text, self.format), mode=mode)
        except OSError as error:
            raise not_written(error, self.path) from error

    def emit(self, text: str, *, quiet: bool, mode: int = PRIVATE) -> None:
        """Print the text, or write it and say so."""
        if self.path is None:
            show(text)
            return
        self.write(text, mode=mode)
        if not quiet:
            click.echo(f"Wrote {self.path}", err=True)


def show(text: str) -> None:
    """Print a result, its colours as they are, on a pipe too.

    Where nobody reads it any more, as behind `head`, files and the exit status are due still.
    """
    with contextlib.suppress(BrokenPipeError):
        click.echo(text, nl=not text.endswith("\n"), color=True)


def plan_outputs(
    formats: str | None,
    output: str | None,
    *,
    force: bool,
    file_names: Mapping[str, str] = _DEFAULT_NAMES,
    text_in_folder: bool = False,
    inputs: Sequence[str | Path] = (),
) -> list[Output]:
    """Turn ``--format a,b -o WHERE`` into outputs; refuse unknown formats and existing files.

    One format goes to ``output`` (a file, or into a folder that exists or is written with a final
    slash), or to standard output (html: report.html). Without ``formats`` the ending of ``output``
    says which it is, else it is text. Text beside others stays on standard output; with one other
    format ``output`` is that one's file where its name has an ending; else, and with several, it
    is a folder. ``file_names`` are the formats and what their files are called; with
    ``text_in_folder`` text is one as well.
    None of ``inputs`` is ever written over, and with ``force`` only what advisor wrote.
    """
    if formats is None:
        by_ending = _BY_ENDING.get(Path(output or "").suffix.lower(), "text")
        formats = by_ending if by_ending in file_names else "text"
    names = list(dict.fromkeys(name.strip() for name in formats.split(",") if name.strip()))
    for name in names:
        if name not in file_names:
            known = ", ".join(sorted(file_names))
            raise AdvisorError(f"unknown format '{name}'", hint=f"known: {known}")
    if not names:
        raise AdvisorError("no format named", hint="for example --format text,html")
    if output is None and len(names) == 1 and names != ["html"]:
        return [Output(names[0], None)]
    filed = [name for name in names if name != "text"] or names
    one_file = len(names) == 1 or (len(filed) == 1 and bool(Path(output or "").suffix))
    places = _places(filed, output, file_names, one_file=one_file)
    folders = {place.parent for name, place in places.items() if place.name == file_names[name]}
    if text_in_folder and output is not None and "text" in names and folders:
        places.setdefault("text", folders.pop() / file_names["text"])
    outputs = [Output(name, places.get(name)) for name in names]
    written = [item.path for item in outputs if item.path is not None]
    refuse_inputs(written, inputs)
    for path in written:
        check_report_target(path, force=force)
    return outputs


def _places(
    names: list[str], output: str | None, file_names: Mapping[str, str], *, one_file: bool
) -> dict[str, Path]:
    """Where each format that goes to a file is written."""
    if output is None:
        return {name: Path(file_names[name]) for name in names}
    place = Path(output)
    if place.is_dir() or output.endswith(("/", os.sep)):
        return {name: place / file_names[name] for name in names}
    if one_file:
        return {names[0]: place}
    if place.exists() or place.suffix:
        raise AdvisorError(
            f"{', '.join(names)}: several formats need a folder, not one file",
            where=output,
            hint="name a folder: -o FOLDER/",
        )
    return {name: place / file_names[name] for name in names}


def use_color(choice: str, *, to_file: bool = False) -> bool:
    """``--color auto|always|never`` with NO_COLOR honoured (https://no-color.org).

    By itself colour is for a terminal, never for a file.
    """
    if choice == "auto":
        return not to_file and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    return choice == "always"


def say_some(lines: Sequence[str], *, rest: str) -> None:
    """The first of ``lines`` on standard error; ``rest`` is where the others stand."""
    for line in lines[:_MOST_LINES]:
        click.echo(f"  {line}", err=True)
    if len(lines) > _MOST_LINES:
        click.echo(f"  and {len(lines) - _MOST_LINES} more: see {rest}", err=True)
