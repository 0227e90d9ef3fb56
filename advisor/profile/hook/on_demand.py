"""A running job is asked for a recording by a file in its folder; the ranks begin at one step.

Rank 0 says how far it is beside the file; who asks names a step that all ranks are still to make,
far enough ahead that each of them has looked. Clocks of two machines are never compared. SIGUSR2
to rank 0 asks as well, where the job leaves that signal alone.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import AdvisorError
from advisor.profile import files
from advisor.profile.hook import order

if TYPE_CHECKING:
    from advisor.profile.recorder import StepRecorder

LOOK_EVERY_S = 0.5
_AHEAD_S = 6.0  # what a shared file system may take to show how far the job is, and the request
_AHEAD_STEPS = 2
_SILENT_S = 60.0
_WAIT_S = 0.1


@dataclass(frozen=True)
class Pace:
    """How far rank 0 is: steps made, ns of the latest ones, the job's size."""

    seen: int
    step_ns: float
    world_size: int

    def __post_init__(self) -> None:
        if not (self.seen >= 0 and 0 <= self.step_ns < math.inf and self.world_size > 0):
            raise ValueError(f"no pace: {self}")


@dataclass(frozen=True)
class Request:
    """Record ``steps`` steps from step ``begin`` on, into folder ``name`` of the job's."""

    name: str
    begin: int
    steps: int


def pace_file(folder: Path) -> Path:
    """Where rank 0 says how far it is."""
    return folder / order.HIDDEN / "pace.json"


def request_file(folder: Path) -> Path:
    """Where a recording is asked for."""
    return folder / order.HIDDEN / "request.json"


def ask(folder: Path, steps: int) -> tuple[Request, Pace]:
    """Ask the job that runs with ``folder`` for a recording. Raises AdvisorError."""
    pace = _next_pace(folder)
    return _ask(folder, pace, steps), pace


def _ask(folder: Path, pace: Pace, steps: int) -> Request:
    place = files.next_free(folder / "capture")
    ahead = _AHEAD_STEPS + int(_AHEAD_S * 1e9 / max(pace.step_ns, 1.0))
    request = Request(place.name, pace.seen + ahead, steps)
    files.write_json(request_file(folder), asdict(request))
    return request


def _next_pace(folder: Path) -> Pace:
    """What rank 0 says next: what stands there may be old."""
    before = now = _pace(folder)
    most_s = max(_SILENT_S, 10 * before.step_ns / 1e9)
    deadline = time.monotonic() + most_s
    while now == before:
        if time.monotonic() > deadline:
            raise AdvisorError(
                f"the job made no step within {most_s:.0f} s",
                where=str(folder),
                hint="is it running?",
            )
        time.sleep(_WAIT_S)
        now = _pace(folder)
    return now


def _pace(folder: Path) -> Pace:
    try:
        return Pace(**json.loads(pace_file(folder).read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise AdvisorError(
            "no job waits here to be asked",
            where=str(folder),
            hint="start it with: advisor record --on-demand -o FOLDER -- COMMAND",
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise AdvisorError("does not say how far a job is", where=str(pace_file(folder))) from error


def _is_nobodys() -> bool:
    """Whether SIGUSR2 has no handler, as the kernel says: Python does not know those of C code."""
    status = Path("/proc/self/status")
    if not status.exists():
        return False
    lines = dict(line.split(":", 1) for line in status.read_text("utf-8").splitlines())
    taken = int(lines["SigCgt"], 16) | int(lines["SigIgn"], 16)
    return not taken >> (signal.SIGUSR2 - 1) & 1


class OnDemand:
    """One rank's side. Call :meth:`step` at the end of every step."""

    def __init__(self, asked: order.Order, rank: int, world: int) -> None:
        self.asked = asked
        self.folder = Path(asked.folder)
        self.rank, self.world = rank, world
        self._looked = time.monotonic()
        self._seen_then: int | None = None
        self._known = self._changed()
        self._wanted: Request | None = None
        self._recorder: StepRecorder | None = None
        self._signalled = False
        self._hear()

    def _hear(self) -> None:
        """Take SIGUSR2 where it is nobody's: untaken it would end the process.

        A scheduler may send it to all ranks; only rank 0 then asks, the others are to survive it.
        """
        if threading.current_thread() is not threading.main_thread() or not _is_nobodys():
            return
        signal.signal(signal.SIGUSR2, self._hears)
        signal.siginterrupt(signal.SIGUSR2, False)  # no call of a library is broken off by it
        if self.rank == 0:
            where = f"kill -USR2 {os.getpid()} on {socket.gethostname()}"
            print(f"advisor: this asks for a recording too: {where}", file=sys.stderr)

    def _hears(self, *_: Any) -> None:
        self._signalled = self.rank == 0

    def step(self, seen: int) -> None:
        """Step number ``seen`` has ended."""
        if self._recorder is not None:
            self._recorder.step()
            if self._recorder.finished:
                self._recorder = None
            return
        if self._wanted is not None and seen >= self._wanted.begin:
            self._begin(self._wanted)
            return
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY_S:
            return
        if self.rank == 0:
            self._say(seen, now)
        self._looked, self._seen_then = now, seen
        changed = self._changed()
        if changed != self._known:
            self._known = changed
            document = json.loads(request_file(self.folder).read_text(encoding="utf-8"))
            self._wanted = Request(**document)

    def _changed(self) -> int:
        try:
            return os.stat(request_file(self.folder)).st_mtime_ns  # noqa: PTH116 - every half second
        except FileNotFoundError:
            return 0

    def _say(self, seen: int, now: float) -> None:
        if self._seen_then is None or seen == self._seen_then:
            return
        step_ns = (now - self._looked) * 1e9 / (seen - self._seen_then)
        pace = Pace(seen, step_ns, self.world)
        files.write_json(pace_file(self.folder), asdict(pace))
        if self._signalled:
            self._signalled = False
            _ask(self.folder, pace, self.asked.traced)

    def _begin(self, wanted: Request) -> None:
        from advisor.profile.recorder import StepRecorder

        self._wanted = None
        place = self.folder / wanted.name
        self._recorder = StepRecorder.at_once(self.asked, place, wanted.steps)
        self._recorder.step()
