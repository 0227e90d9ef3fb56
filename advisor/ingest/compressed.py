"""What decompressing reads from, and what a format has to provide for it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Protocol

from advisor.ingest.damage import Damage

READ = PIECE = 256 * 1024
SMALL_READ = 16 * 1024
"""Bytes of a step where a damage is near."""


class Compressed(Protocol):
    """A file on disk: ``consumed_bytes`` is the place of the next read, ``size`` is in bytes.

    ``damage`` and ``skipped`` (compressed bytes not read because of it) are told at the end.
    """

    damage: str | None
    skipped: int
    consumed_bytes: int
    size: int

    def read_compressed(self, size: int = READ) -> bytes:
        """The next bytes; empty at the end."""
        ...

    def mend(self, offset: int, header: bytes) -> None:
        """Give ``header`` instead of the bytes at ``offset`` on disk from now on."""
        ...

    def seek_compressed(self, offset: int) -> None:
        """Read on at ``offset``, which is no later than what has been read."""
        ...


Pieces = Generator[bytes, None, Damage | None]
"""Decompressed bytes; in the end the damage, or None at the end of the file."""


@dataclass(frozen=True)
class Format:
    """How to decompress one format: quickly, with every byte before a damage, and on trial.

    ``mended``: what should stand at the beginning of data whose header is damaged, if that helps.
    """

    name: str
    magic: bytes
    errors: tuple[type[Exception], ...]
    quick: Callable[[Compressed, int], Pieces]
    exact: Callable[[Compressed, int, int], Pieces]
    opens: Callable[[bytes], bool]
    mended: Callable[[bytes], bytes | None]
