"""Diagnose what is watched again whenever some of its files have changed and come to rest."""

import errno
import glob
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path

import click

from advisor.errors import AdvisorError
from advisor.vocabulary.words import plural

State = dict[Path, tuple[int, int]]
Diagnose = Callable[[str, frozenset[Path]], bool]
_NAMED = 3


def watch(
    paths: Sequence[str],
    interval_s: float,
    diagnose: Diagnose,
    *,
    own: Collection[Path] = (),
    rounds: int | None = None,
) -> bool:
    """Call ``diagnose`` for every new state of ``paths``: files, folders or patterns.

    It gets a line that says when and of what, and the files to leave out; True from it ends the
    watch and is returned. A file counts once it has kept its size for one interval: what is being
    written is left out and named, but gets one interval to come to rest with the others. ``own``
    are files that the diagnosis writes. ``rounds`` ends the watch after that many diagnoses; None
    watches until interrupted.
    """
    seen: State = {}
    previous: State = {}
    before: State = {}
    done, told = 0, ""
    while rounds is None or done < rounds:
        state = snapshot(paths, own)
        settled = {path: mark for path, mark in state.items() if previous.get(path) == mark}
        moving = [path for path in state if path not in settled]
        gone = seen.keys() - state.keys()
        changed = bool(gone) or not settled.items() <= seen.items()
        if settled and changed and (not moving or settled == before):
            seen = dict(settled)
            head = f"--- {time.strftime('%H:%M:%S')}, {plural(len(seen), 'file')}"
            if moving:
                head += f"; left out, still being written: {_named(moving)}"
            try:
                if diagnose(head, frozenset([*moving, *own])):
                    return True
            except AdvisorError as error:
                # A trace that is not whole yet must not end the watch.
                click.echo(f"{head}\nnot yet: {error}", err=True)
            done += 1
        elif not seen:
            told = _say_once(told, _waits_for(paths, state, moving if previous else []), interval_s)
        previous, before = state, settled
        if rounds is None or done < rounds:
            time.sleep(interval_s)
    return False


def snapshot(paths: Sequence[str], own: Collection[Path] = ()) -> State:
    """Size and modification time of every file that ``paths`` name now, but for ``own``."""
    mine = {path.resolve() for path in own}
    names = {path.name for path in mine}
    files: State = {}
    for name in paths:
        for file in _files(name):
            try:
                status = file.stat()
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno != errno.ELOOP:  # a link to itself leads to nothing, too
                    raise
                continue
            if file.is_file() and not (file.name in names and file.resolve() in mine):
                files[file] = (status.st_size, status.st_mtime_ns)
    return files


def _files(name: str) -> Iterator[Path]:
    path = Path(name)
    if path.is_dir():
        for file in sorted(path.rglob("*")):
            if not any(part.startswith(".") for part in file.relative_to(path).parts):
                yield file
    elif glob.has_magic(name) and not path.exists():
        # Path.glob takes no absolute patterns.
        for match in sorted(glob.glob(name, recursive=True)):  # noqa: PTH207
            yield from _files(match)
    else:
        yield path


def _waits_for(paths: Sequence[str], state: State, moving: Sequence[Path]) -> str:
    """Why nothing is diagnosed yet; '' where the next look may."""
    if not state:
        return f"Nothing in {', '.join(paths)} yet"
    return f"Still being written: {_named(moving)}" if len(moving) == len(state) else ""


def _say_once(told: str, text: str, interval_s: float) -> str:
    if text and text != told:
        click.echo(f"{text}: looking every {interval_s:g} s, Ctrl-C ends", err=True)
    return text or told


def _named(files: Sequence[Path]) -> str:
    more = f" and {len(files) - _NAMED} more" if len(files) > _NAMED else ""
    return ", ".join(file.name for file in files[:_NAMED]) + more
