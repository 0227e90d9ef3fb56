"""This user's secret from which pseudonyms are made: made once, read by nobody else.

Without it a pseudonym could be guessed: the names of hosts are few and follow patterns.
"""

import contextlib
import os
import secrets
from pathlib import Path

from advisor.config.atomic_files import PRIVATE, half_written

_BYTES = 32


def share_key() -> bytes:
    """The key; where no home can be written, one that lasts as long as this process."""
    base = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    with contextlib.suppress(RuntimeError, OSError):  # a user without a home, or a read-only one
        place = base.expanduser() / "nccl-advisor" / "share.key"
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _make(place)
        key = place.read_bytes()
        if len(key) == _BYTES:
            return key
    return secrets.token_bytes(_BYTES)


def _make(place: Path) -> None:
    """Write a new key unless there is one: of two that do so at once the first one stays."""
    if place.exists():
        return
    with half_written(place) as partial:
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(_BYTES))
        with contextlib.suppress(FileExistsError):
            place.hardlink_to(partial)
