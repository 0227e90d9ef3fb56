"""A first look at some files: format and rank of each. Nothing here needs Ray."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.ingest.detect import detect
from advisor.ingest.own_files import is_own
from advisor.ingest.ray_plan import Item, Look, file_system_of, is_url
from advisor.ingest.scratch import temporary_folder
from advisor.ingest.source import Source
from advisor.ingest.unknown import why_unknown

_HEAD_BYTES = 1 << 20


def look_at(items: Sequence[Item]) -> list[Look]:
    """Format and rank of every file; a file that cannot be read has its ``problem`` set."""
    with temporary_folder("look") as scratch:
        return [_look(item, scratch / str(item.number)) for item in items]


def _look(item: Item, scratch: Path) -> Look:
    try:
        path, size = fetch(item, scratch, at_most=_HEAD_BYTES)
        item = replace(item, size_bytes=size)
        look = _classify(item, path)
        if look.apart and look.rank is None and size > _HEAD_BYTES and is_url(item.place):
            path, _ = fetch(item, scratch)
            look = _classify(item, path)
    except AdvisorError as error:
        return Look(item, problem=error.message)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return look


def _classify(item: Item, path: Path) -> Look:
    source = Source.of(path, item.number)
    if source.size == 0:
        return Look(item, problem="is empty")
    reader = detect(source)
    if reader is None:
        own = is_own(item.place, source.head, ())
        return Look(item, own=own, problem=why_unknown(source).reason if item.named else "")
    if not hasattr(reader, "rank_hint"):
        return Look(item, reader.FORMAT)
    hint = reader.rank_hint(source)
    part = source.size < item.size_bytes
    rank = hint.rank if hint.certain or not part else None
    return Look(item, reader.FORMAT, apart=not hint.several, rank=rank)


def fetch(item: Item, scratch: Path, *, at_most: int | None = None) -> tuple[Path, int]:
    """A local path with the file's content (of a URL: its beginning), and its size in bytes.

    Raises :class:`AdvisorError` where it cannot be read.
    """
    if not is_url(item.place):
        path = Path(item.place)
        try:
            return path, path.stat().st_size
        except OSError as error:
            raise AdvisorError(f"cannot be read: {error.strerror}", where=item.place) from error
    file_system, remote = file_system_of(item.place)
    # The names of a file and its folder may tell the rank.
    path = scratch / (Path(remote).parent.name or "_") / Path(remote).name
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with file_system.open(remote, "rb") as source, path.open("wb") as target:
            if at_most is None:
                shutil.copyfileobj(source, target, 1 << 20)
            else:
                target.write(source.read(at_most))
        size = file_system.size(remote)
    except Exception as error:  # drivers raise errors of their own libraries
        raise AdvisorError(f"cannot be read: {error}", where=item.place) from error
    return path, path.stat().st_size if size is None else int(size)
