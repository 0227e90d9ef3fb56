"""Runs somebody's own training command with the hook in its ranks, and ends it when they are done.

The command's launcher starts the ranks, here or on other machines; what they leave in the folder
says how far they are. A command whose ranks have their results is asked to stop (SIGTERM to its
process group), then made to (SIGKILL); so is that of a command that a signal ends.
"""

import contextlib
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.profile import files, orphans, signals
from advisor.profile.failures import LaunchError, last_error
from advisor.profile.hook import order
from advisor.profile.launchers import exporting, without_order

LOG = "logs/command.log"
_LOOK_S = 0.1
_GRACE_S = 10.0
_LOOK_FOR_RANKS_S, _TIMES_UNHEARD = 5.0, 3  # torch takes seconds to load
_LINES_ALONE = 10.0  # limits of time: an evaluation of a few minutes at the usual limit of two


def run(
    command: Sequence[str],
    asked: order.Order,
    environment: Mapping[str, str],
    *,
    timeout_s: float,
    cwd: Path | None = None,
) -> list[dict[str, Any]]:
    """Run ``command`` until its ranks have their results, or to its own end; what each rank left.

    ``timeout_s`` is how long it may make no progress (:func:`_progress`). Raises LaunchError with
    what the command said last; its output is in the order's folder (``LOG``).
    """
    folder = Path(asked.folder)
    log = folder / LOG
    log.parent.mkdir(files.LOGS_MODE, parents=True, exist_ok=True)
    came: list[int] = []
    try:
        with log.open("wb") as output, signals.handled(came.append):
            process = _started(
                command,
                asked,
                environment,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # A launcher that is asked to end ends its ranks, here and on other nodes.
                preexec_fn=lambda: orphans.killed_with_parent(signal.SIGTERM),
            )
            try:
                outcome = _await(process, folder, timeout_s, came, ends=asked.ends)
            finally:
                _end(process, folder, came)
    finally:
        if came:  # now that nothing is left behind
            signal.raise_signal(came[-1])
    found = results(folder)
    if found and len(found) == int(found[0]["world_size"]):
        return found
    if outcome is _Outcome.UNHEARD:
        why, hint = unheard()
        raise LaunchError(f"the command runs, but {why}", hint=hint)
    if outcome is _Outcome.HUNG:
        why, hint = ("", "") if order.loaded(folder).exists() else unheard()
        raise LaunchError(
            f"the command made no progress for {timeout_s:g} s{f': {why}' if why else ''}",
            hint=hint or f"see {log}",
        )
    raise _failed(process.returncode, asked, found)


def results(folder: Path) -> list[dict[str, Any]]:
    """What the ranks left so far, by rank."""
    found = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (folder / "logs").glob("rank*.result.json")
    ]
    return sorted(found, key=lambda document: int(document["rank"]))


class _Outcome(Enum):
    """How waiting for a command's ranks ended; HUNG: no progress for too long, UNHEARD: ranks run
    without the hook."""

    DONE, HUNG, UNHEARD = range(3)


def _await(
    process: subprocess.Popen[bytes],
    folder: Path,
    timeout_s: float,
    came: Sequence[int],
    *,
    ends: bool,
) -> _Outcome:
    """Until a signal comes, or the command or its ranks are done, or nothing is to be awaited."""
    done_at, started = None, time.monotonic()
    looked_at, times_unheard = started, 0
    seen: _Seen = {}
    while process.poll() is None and not came:
        time.sleep(_LOOK_S)
        if time.monotonic() - _progress(folder, started, timeout_s, seen) > timeout_s:
            return _Outcome.HUNG
        if ends and time.monotonic() - looked_at > _LOOK_FOR_RANKS_S:
            looked_at = time.monotonic()
            heard = any((folder / order.HIDDEN).glob("rank*.alive"))
            times_unheard = 0 if heard or not without_order(process.pid) else times_unheard + 1
            if times_unheard >= _TIMES_UNHEARD:
                return _Outcome.UNHEARD
        if ends and done_at is None and _all_done(folder):
            done_at = time.monotonic()
        if done_at is not None and time.monotonic() - done_at > _GRACE_S:
            return _Outcome.DONE
    return _Outcome.DONE


_Seen = dict[Path, tuple[int, float]]
"""File -> its time as last seen, and when that was new here: the clock of the day may jump."""


def _progress(folder: Path, started: float, timeout_s: float, seen: _Seen) -> float:
    """When the command last came further, seconds of the monotonic clock.

    A step does, and a line of output once a rank has loaded the hook: before that a command may
    print for ever and never be heard of. Lines alone do for some limits (data that is prepared, an
    evaluation) and no longer: who prints that it tries again is stuck.
    """
    if not order.loaded(folder).exists():
        return started
    marks = [order.loaded(folder), *(folder / order.HIDDEN).glob("rank*.alive")]
    stepped = max([started, *_changed([*marks, *files.traces(folder)], seen)])
    said = max([started, *_changed([folder / LOG], seen)])
    return max(stepped, min(said, stepped + _LINES_ALONE * timeout_s))


def _changed(paths: Sequence[Path], seen: _Seen) -> list[float]:
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # a trace that is being renamed
            written_ns = path.stat().st_mtime_ns
            if seen.get(path, (None,))[0] != written_ns:
                seen[path] = (written_ns, time.monotonic())
    return [seen[path][1] for path in paths if path in seen]


def _all_done(folder: Path) -> bool:
    found = list((folder / "logs").glob("rank*.result.json"))
    if not found:
        return False
    return len(found) >= int(json.loads(found[0].read_text(encoding="utf-8"))["world_size"])


def _end(process: subprocess.Popen[bytes], folder: Path, came: Sequence[int]) -> None:
    """No process of the command is left: asked first, then made to; at once where one more signal
    comes."""
    came_before, asked_at = len(came), time.monotonic()
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
    while process.poll() is None and len(came) == came_before:
        if time.monotonic() - asked_at > _GRACE_S:
            break
        time.sleep(_LOOK_S)
    # Ranks outlive a launcher that was killed; torchrun's, and what forks, may have left its group.
    _signal(process, signal.SIGKILL)
    for pid in _of_order(folder):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):  # it hangs in the kernel
        process.wait(_GRACE_S)


def _of_order(folder: Path) -> list[int]:
    """Processes of this machine whose environment holds the order with this folder (Linux)."""
    mark = order.mark(folder)
    found = []
    for place in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # it has ended, or is somebody else's
            if mark in place.read_bytes():
                found.append(int(place.parent.name))
    return [pid for pid in found if pid != os.getpid()]


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def _failed(status: int, asked: order.Order, found: list[dict[str, Any]]) -> LaunchError:
    log = Path(asked.folder) / LOG
    if found:
        return LaunchError(
            f"{len(found)} of {found[0]['world_size']} ranks left their results",
            hint=f"the folder must be on a file system that all nodes share; see {log}",
        )
    why, ran_out = last_error(log)
    if status:
        return LaunchError(
            f"the command ended with status {status}{f': {why}' if why else ''}",
            hint=f"see {log}",
            out_of_memory=ran_out,
        )
    why, hint = why_nothing(asked)
    return LaunchError(f"the command's ranks left nothing: {why}", hint=hint)


def why_nothing(asked: order.Order) -> tuple[str, str]:
    """Why a command that ended by itself left nothing, and what to do."""
    folder = Path(asked.folder)
    if order.loaded(folder).exists():
        made = order.steps_made(folder)
        # The profiler warms up for a step that is neither timed nor recorded.
        needed = asked.warmup + asked.steps + asked.traced + (1 if asked.traced else 0)
        seen = f" (it made {made}; {needed} are needed)" if made else ""
        return (
            f"it ended before enough steps of a torch optimizer were made{seen}, or could not "
            "write (its output says so)",
            "give it more steps, or skip and ask for fewer",
        )
    return unheard()


def unheard() -> tuple[str, str]:
    """What is said of ranks that did not load the hook, and what to do."""
    return (
        f"its ranks did not load the recorder: PYTHONPATH and {order.VARIABLE} did not reach them",
        "let the launcher hand on both variables (mpirun -x, srun --export=ALL, docker -e), and "
        "start Python without -I and -E",
    )


def attached(
    command: Sequence[str], asked: order.Order, environment: Mapping[str, str]
) -> tuple[int, bool]:
    """Run ``command`` to its own end at this terminal; its exit status, 128 + N for signal N, and
    whether this process was asked to end it (a launcher's own status does not tell).

    Raises AdvisorError where it cannot be started. Ctrl-C reaches it as it would alone, and so does
    a signal that is meant to end this process.
    """
    early: list[int] = []
    came: list[int] = []
    tell: Callable[[int], object] = early.append

    def hand_on(number: int) -> None:
        came.append(number)
        if number != signal.SIGINT:  # the terminal sends it to the job too
            tell(number)

    with signals.handled(hand_on):
        process = _started(command, asked, environment)
        tell = process.send_signal
        for number in early:
            tell(number)
        status = process.wait()
    ends = {-signal.SIGHUP, -signal.SIGINT, -signal.SIGTERM}
    return (128 - status if status < 0 else status), bool(came) or status in ends


def _started(
    command: Sequence[str], asked: order.Order, environment: Mapping[str, str], **how: Any
) -> subprocess.Popen[bytes]:
    full = order.environment(asked, environment)
    arguments = exporting(command, set(full) - set(environment) | {"PYTHONPATH"})
    try:
        return subprocess.Popen(arguments, env=full, **how)
    except OSError as error:
        raise AdvisorError(
            f"cannot start {arguments[0]}: {error.strerror}", hint="name the command after --"
        ) from error


def written(command: Sequence[str]) -> str:
    """The command as a shell reads it."""
    return shlex.join(command)
