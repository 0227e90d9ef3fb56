"""Why a launch failed, from what the ranks left behind: whose fault it was, and whether memory.

A rank that raised left its exception with the elastic agent; one that was ended by a signal left
only its log. The others fail because they lost it, so the cause is the first that is no echo.
"""

import re
import signal
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.profile import files
from advisor.vocabulary.words import named_ranks

_ECHO = re.compile(
    r"Connection (closed|reset) by peer|Broken pipe|remote process exited|Socket (closed|Timeout)|"
    r"Timed out waiting|timed out|DistNetworkError|SystemExit: 143|Connection refused|"
    r"ChildFailedError",  # torchrun's own, which says nothing of why
    re.IGNORECASE,
)
_OUT_OF_MEMORY = re.compile(
    r"out of memory|OutOfMemoryError|can't allocate memory|Cannot allocate memory|MemoryError|"
    r"std::bad_alloc"
)
# As Python ends a traceback; torchrun puts "[rank0]: " in front.
_ERROR = re.compile(
    r"^(\[rank\d+\]:? *)?[\w.]*(Error|Exception|Interrupt)\b|" + _OUT_OF_MEMORY.pattern
)
_LOG_END = 65536  # bytes of a command's log in which its errors are looked for
_LAST_WORDS = 4096  # bytes of a log's end in which a dying process says why


class LaunchError(AdvisorError):
    """A launch that failed; ``out_of_memory`` when memory ran out, on a GPU or on the host."""

    def __init__(self, message: str, *, hint: str = "", out_of_memory: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.out_of_memory = out_of_memory


class LaunchStoppedError(AdvisorError):
    """Somebody ended the launch (Ctrl-C, SIGTERM): nothing is to be concluded from it."""


def rank_that_failed(
    failures: dict[int, Any], logs: Path, *, hint: str, killed_before: int | None
) -> LaunchError:
    """The error that names the first rank whose failure is no echo of another's.

    ``logs`` is the launch's folder of logs; ``killed_before`` is :func:`kernel_kills` from before.
    """
    rank, failure = min(failures.items(), key=_order)
    how = _how(failure, logs)
    ran_out = bool(_OUT_OF_MEMORY.search(how))
    if int(failure.exitcode) == -signal.SIGKILL and _kernel_killed_since(killed_before):
        ran_out, how = True, f"{how}: the machine (or its memory group) was out of memory"
    return LaunchError(
        f"rank {rank} {how}; the others were ended", hint=hint, out_of_memory=ran_out
    )


def kernel_kills() -> int | None:
    """How many processes this kernel ended for want of memory; None if it does not say."""
    try:
        lines = Path("/proc/vmstat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)


def last_error(log: Path) -> tuple[str, bool]:
    """Why a command failed, from the end of its ``log``: the first error that is no echo of
    another rank's end, and whether memory ran out. ('', False) where it does not say."""
    said = _said_at_end(log, _LOG_END, _ERROR)
    ran_out = next((line for line in said if _OUT_OF_MEMORY.search(line)), None)
    cause = ran_out or next((line for line in said if not _ECHO.search(line)), None)
    return (cause or (said[0] if said else ""))[:300], ran_out is not None


def kept(folder: Path, world_size: int) -> str:
    """Where the logs are, and whose recording is there."""
    ranks = [rank for rank in range(world_size) if files.trace(folder, rank).exists()]
    return f"logs in {folder / 'logs'}; " + (
        f"kept what {named_ranks(ranks)} recorded" if ranks else "nothing was recorded yet"
    )


def _said_at_end(log: Path, most_bytes: int, wanted: re.Pattern[str]) -> list[str]:
    """The lines at the end of a log in which something ``wanted`` stands."""
    with log.open("rb") as handle:
        handle.seek(max(0, log.stat().st_size - most_bytes))
        lines = handle.read().decode("utf-8", "replace").splitlines()
    return [line.strip() for line in lines if wanted.search(line)]


def _kernel_killed_since(before: int | None) -> bool:
    now = kernel_kills()
    return now is not None and before is not None and now > before


def _order(item: tuple[int, Any]) -> tuple[bool, int]:
    failure = item[1]
    is_echo = bool(_ECHO.search(_text(failure))) or failure.exitcode == -signal.SIGTERM
    return is_echo, int(failure.timestamp)


def _how(failure: Any, logs: Path) -> str:
    exitcode = int(failure.exitcode)
    text = _text(failure)
    if text:
        return f"failed: {text.splitlines()[0][:300]}"
    if exitcode < 0:
        why = _last_words(failure, logs)
        return f"was killed by {signal.Signals(-exitcode).name}" + (f": {why}" if why else "")
    return f"exited with status {exitcode}"


def _text(failure: Any) -> str:
    message = failure.message
    return str(message.get("message", "")).strip() if isinstance(message, dict) else ""


def _last_words(failure: Any, logs: Path) -> str:
    """What the process's log says of memory at its end: C++ aborts without a Python exception."""
    for log in sorted(logs.glob(f"*/attempt_0/{failure.local_rank}/stderr.log"))[-1:]:
        said = _said_at_end(log, _LAST_WORDS, _OUT_OF_MEMORY)
        return said[-1][:300] if said else ""
    return ""
