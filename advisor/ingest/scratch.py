"""Folders for temporary files on this machine's own disk, which hold what may be large.

The name holds its process; what a process that was killed left there goes with the next folder.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from advisor.config.atomic_files import removed_at_end
from advisor.store.batches import is_dead, new_token


@contextmanager
def temporary_folder(what: str) -> Iterator[Path]:
    """A folder of this process; ``what`` is a word for those who find it."""
    for left in Path(tempfile.gettempdir()).glob("advisor-*-*"):
        if is_dead(left.name.split("-", 2)[2]):
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.gettempdir()) / f"advisor-{what}-{new_token()}"
    with removed_at_end(folder):
        folder.mkdir(mode=0o700)
        yield folder
