"""Splits the files of a run into pieces to be read apart: one rank, or what must stay together.

A trace that names its rank needs no other file. The files of one rank (parts in time) stay
together, and so do the formats whose reader wants to see all files of the run. Nothing here needs
Ray.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest.paths import expand, natural_key, real_path

MAX_PIECES_PER_BATCH = 32
"""Ranks that one task reads with one INSERT: fewer cost start-up, more are redone after a death."""
MAX_BATCH_BYTES = 256 << 20
_BATCHES_PER_CPU = 4  # so that a slow batch at the end does not leave the other processors idle


@dataclass(frozen=True)
class Item:
    """One input file. ``place`` is an absolute path or a URL; ``rank`` the one given to it."""

    number: int
    place: str
    named: bool
    size_bytes: int = 0
    rank: int | None = None


@dataclass(frozen=True)
class Look:
    """What a first look at a file told. ``own``: advisor wrote it beside the traces."""

    item: Item
    format: str = ""
    own: bool = False
    apart: bool = False
    rank: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class Piece:
    """Files to be read together. ``rank`` is None for those whose ranks show up on reading only."""

    items: tuple[Item, ...]
    rank: int | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the files on disk."""
        return sum(item.size_bytes for item in self.items)


def is_url(place: str) -> bool:
    """Whether ``place`` is for fsspec."""
    return "://" in place or "::" in place


def list_inputs(paths: Iterable[str | Path], *, first_number: int = 0) -> list[Item]:
    """The files behind paths, folders, patterns and URLs, each once.

    Raises :class:`AdvisorError` when one of them matches nothing or a file system has no driver.
    """
    found: dict[str, bool] = {}
    for given in paths:
        # A Path squeezes the slashes of a URL; the command line passes text.
        if is_url(str(given)):
            for place, named in _expand_url(str(given)):
                found.setdefault(place, named)
        else:
            for file in expand([given]):
                found.setdefault(str(real_path(file.path)), file.named)
    return [
        Item(number, place, named)
        for number, (place, named) in enumerate(found.items(), first_number)
    ]


def _expand_url(url: str) -> list[tuple[str, bool]]:
    file_system, path = file_system_of(url)
    try:
        if any(sign in path for sign in "*?["):
            places = file_system.glob(path)
            named = True
        elif file_system.isdir(path):
            places, named = file_system.find(path), False
        else:
            return [(url, True)]
    except Exception as error:  # drivers raise errors of their own libraries
        raise AdvisorError(f"cannot be listed: {error}", where=url) from error
    if not places:
        raise AdvisorError("no file matches", where=url, hint="check the URL")
    ordered = sorted((str(place) for place in places), key=lambda place: natural_key(Path(place)))
    return [
        (file_system.unstrip_protocol(place), named)
        for place in ordered
        if not Path(place).name.startswith(".")
    ]


def file_system_of(url: str) -> tuple[Any, str]:
    """fsspec's file system for ``url``, and the path in it."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise AdvisorError(
            "URLs need fsspec", where=url, hint='install it: pip install "nccl-advisor[ray]"'
        ) from error
    try:
        file_system, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise AdvisorError(f"no driver for this URL: {error}", where=url) from error
    return file_system, str(path)


def pieces(looks: Sequence[Look]) -> tuple[list[Piece], Piece]:
    """Pieces of one rank each, and the files that have to be read together after them.

    Files that do not name their rank get the smallest free numbers in order, as they would when
    all are read at once.
    """
    good = [look for look in looks if look.format and not look.problem]
    taken = {look.rank for look in good if look.apart and look.rank is not None}
    by_rank: dict[int, list[Item]] = {}
    together: list[Item] = []
    free = 0
    for look in good:
        if not look.apart:
            together.append(look.item)
            continue
        rank = look.rank
        if rank is None:
            while free in taken:
                free += 1
            rank = free
            taken.add(rank)
        by_rank.setdefault(rank, []).append(replace(look.item, rank=rank))
    apart = [Piece(tuple(items), rank) for rank, items in sorted(by_rank.items())]
    return apart, Piece(tuple(together))


def batches(parts: Sequence[Piece], cpus: int) -> list[tuple[Piece, ...]]:
    """Consecutive pieces for one task each: few enough to keep all processors busy to the end."""
    most = max(1, min(MAX_PIECES_PER_BATCH, -(-len(parts) // (_BATCHES_PER_CPU * max(1, cpus)))))
    result: list[tuple[Piece, ...]] = []
    current: list[Piece] = []
    size = 0
    for piece in parts:
        if current and (len(current) == most or size + piece.size_bytes > MAX_BATCH_BYTES):
            result.append(tuple(current))
            current, size = [], 0
        current.append(piece)
        size += piece.size_bytes
    if current:
        result.append(tuple(current))
    return result
