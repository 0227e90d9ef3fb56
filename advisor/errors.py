"""The one error that people see: what happened, where, and what to do about it."""

import errno
import signal
from pathlib import Path
from typing import ClassVar


class AdvisorError(Exception):
    """A problem the user can act on.

    ``message`` says what happened, ``where`` the place (``file:line``, ``file:offset`` or a
    name), ``hint`` what to do. The command line prints it in one line (or a short list when
    the message holds several lines) and exits with status 2; it is caught in one place.
    """

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.where}: {self.message}" if self.where else self.message
        return f"{text}\n  {self.hint}" if self.hint else text


class EndedBySignalError(KeyboardInterrupt):
    """SIGTERM or SIGHUP: ends what runs as Ctrl-C does; ``number`` is the signal."""

    last: ClassVar[int] = signal.SIGINT
    """The signal that came last: the database hides the exception behind one of its own."""
    came: ClassVar[bool] = False
    """Whether one came since this process began its command: what fails after it fails for it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number
        EndedBySignalError.last = number


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM}
_REFUSED = {*_FORBIDDEN, errno.EROFS}
_EXHAUSTED = {
    errno.EIO: "the disk or the network file system fails: look at dmesg, copy the files elsewhere",
    errno.EMFILE: "allow more open files: ulimit -n 1024",
    errno.ENFILE: "the whole machine has no file left to open: end what holds many",
}


def not_written(error: OSError, place: Path | str) -> AdvisorError:
    """What to tell of a file or folder at ``place`` that could not be written."""
    reason = (error.strerror or type(error).__name__).lower()
    return AdvisorError(f"cannot be written: {reason}", where=str(place), hint=_way_out(error))


def refused(error: Exception, place: Path | str = "") -> AdvisorError | None:
    """What to tell of a disk or a limit of the system that ended a command; None of other errors.

    ``place`` is told where the error itself names none.
    """
    if not isinstance(error, OSError) or error.errno not in {*_FULL, *_REFUSED, *_EXHAUSTED}:
        return None
    if error.errno in _EXHAUSTED or error.errno in _FORBIDDEN:  # read or written
        reason = (error.strerror or type(error).__name__).lower()
        where = str(error.filename or place)
        return AdvisorError(
            reason, where=where, hint=_EXHAUSTED.get(error.errno) or _way_out(error)
        )
    return not_written(error, error.filename or place or "a file of this command")


def _way_out(error: OSError) -> str:
    if error.errno in _FULL:
        return "make room there (also check quotas and ulimit -f), or write somewhere else"
    if error.errno in _REFUSED:
        return "use a folder of yours, or have its permissions changed"
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return "a part of this path is a file, no folder: check the path"
    return "check the path, or write somewhere else"
