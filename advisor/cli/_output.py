"""Where results go: standard output or files, decided and checked before any work starts.

None of the command line's inputs is written over, and with --force only what advisor wrote.
"""

import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from advisor.config.atomic_files import PRIVATE, write_atomic
from advisor.errors import AdvisorError, not_written

_LINE = {  # comments of each format; GitHub shows a debug line to those who ask for it
    **dict.fromkeys(("html", "markdown", "junit"), "<!-- advisor report {digest} -->\n"),
    "github": "::debug::advisor report {digest}\n",
    **dict.fromkeys(("chat", "text"), "[advisor report {digest}]\n"),
}
_DIGITS = 16
_LONGEST = max(len(line.format(digest="0" * _DIGITS)) for line in _LINE.values())
_JSON = re.compile(
    rb'\{\s*"schema_version":\s*\d+,\s*"(?:advisor_version":\s*"[^"]*",\s*"command|base)":'
    rb'|\{"displayTimeUnit":"ms","traceEvents":\[\{"ph":"M","name":"process_name","pid":\d+,'
    rb'"tid":0,"args":\{"name":"advisor"\}\}'  # the trace of a finding
)

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
            write_atomic(self.path, _marked(text, self.format), mode=mode)
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


def _marked(text: str, form: str) -> str:
    """``text`` of a report in the format ``form`` with its last line, by which it is known again.

    That says that nobody changed the rest. JSON has no room for such a line: it stays as it is, is
    known by its first keys and read as a whole.
    """
    if form not in _LINE:
        return text
    whole = text if text.endswith("\n") else text + "\n"
    return whole + _LINE[form].format(digest=_digest(whole.encode()))


def _is_report(place: Path) -> bool:
    """Whether the file is a report as advisor wrote it. Raises OSError where it cannot be read."""
    with place.open("rb") as file:
        beginning = file.read(4096)
        file.seek(max(0, place.stat().st_size - _LONGEST - 1))
        last = file.read().removesuffix(b"\n").rpartition(b"\n")[2] + b"\n"
    if _JSON.match(beginning):
        try:
            return isinstance(json.loads(place.read_bytes()), dict)
        except (ValueError, RecursionError):
            return False
    lines = {line.partition("{")[0].encode() for line in _LINE.values()}
    if not any(last.startswith(line) for line in lines):
        return False
    text = place.read_bytes().removesuffix(last)
    digest = _digest(text)
    return last in {line.format(digest=digest).encode() for line in _LINE.values()}


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:_DIGITS]


def refuse_inputs(places: Sequence[Path], inputs: Sequence[str | Path]) -> None:
    """Raise AdvisorError where a place to write to is one of the files that are named as input.

    Links are followed. What stands in a folder that is read may be a report or store of before.
    """
    from advisor.store.target import settled  # late, as it brings the database

    there = {_file(real): place for place in places if (real := settled(place)).is_file()}
    if not there:
        return
    from advisor.ingest.paths import expand
    from advisor.ingest.ray_plan import is_url

    for path in inputs:
        if is_url(str(path)) or Path(path).is_dir():
            continue
        try:
            files = [found.path for found in expand([path]) if found.named]
        except AdvisorError:  # nothing is there, which whoever reads it tells
            continue
        for place in (there[_file(file)] for file in files if _file(file) in there):
            raise AdvisorError(
                "is one of the inputs", where=str(place), hint="name another file to write to"
            )


def _file(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def folder_target(output: str) -> Path | None:
    """The folder that ``output`` names where it leads through one that is not there yet, or None.

    ``new/..`` is the folder that ``new`` is to be made in.
    """
    from advisor.store.target import settled  # late, as it brings the database

    place = Path(output)
    real = settled(place) if ".." in place.parts else place
    return real if real != place and (real.is_dir() or output.endswith("/")) else None


def check_folder_target(folder: Path) -> None:
    """Raise AdvisorError where no Parquet store may be written: something else is there."""
    from advisor.store.parquet import is_parquet_store

    if not folder.exists():
        return
    if not folder.is_dir():
        raise AdvisorError("is no folder", where=str(folder), hint="name a folder, or a new one")
    if not is_parquet_store(folder) and any(folder.iterdir()):
        raise AdvisorError(
            "this folder is not empty and no store", where=str(folder), hint="choose a new one"
        )


def check_report_target(place: Path, *, force: bool) -> None:
    """As :func:`~advisor.store.target.check_target` for a report that advisor wrote."""
    from advisor.store.target import check_target  # late, as it brings the database

    check_target(place, "report", _is_report, force=force)
