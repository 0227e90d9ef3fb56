"""What the command line may write over: none of its inputs, and with --force what advisor wrote."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from advisor.cli._marks import is_report
from advisor.errors import AdvisorError


def refuse_inputs(places: Sequence[Path], inputs: Sequence[str | Path]) -> None:
    """Raise AdvisorError where a place to write to is one of the files that are named as input.

    Links are followed. What stands in a folder that is read may be a report or store of before.
    """
    from advisor.store.target import settled  # late, as it brings the database

    there = {_file(real): place for place in places if (real := settled(place)).is_file()}
    if not there:
        return
    from advisor.ingest.paths import expand
    from advisor.ingest.ray_plan import is_url

    for path in inputs:
        if is_url(str(path)) or Path(path).is_dir():
            continue
        try:
            files = [found.path for found in expand([path]) if found.named]
        except AdvisorError:  # nothing is there, which whoever reads it tells
            continue
        for place in (there[_file(file)] for file in files if _file(file) in there):
            raise AdvisorError(
                "is one of the inputs", where=str(place), hint="name another file to write to"
            )


def _file(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def folder_target(output: str) -> Path | None:
    """The folder that ``output`` names where it leads through one that is not there yet, or None.

    ``new/..`` is the folder that ``new`` is to be made in.
    """
    from advisor.store.target import settled  # late, as it brings the database

    place = Path(output)
    real = settled(place) if ".." in place.parts else place
    return real if real != place and (real.is_dir() or output.endswith("/")) else None


def check_folder_target(folder: Path) -> None:
    """Raise AdvisorError where no Parquet store may be written: something else is there."""
    from advisor.store.parquet import is_parquet_store

    if not folder.exists():
        return
    if not folder.is_dir():
        raise AdvisorError("is no folder", where=str(folder), hint="name a folder, or a new one")
    if not is_parquet_store(folder) and any(folder.iterdir()):
        raise AdvisorError(
            "this folder is not empty and no store", where=str(folder), hint="choose a new one"
        )


def check_report_target(place: Path, *, force: bool) -> None:
    """As :func:`~advisor.store.target.check_target` for a report that advisor wrote."""
    from advisor.store.target import check_target  # late, as it brings the database

    check_target(place, "report", is_report, force=force)
