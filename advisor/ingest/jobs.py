"""Tells the recordings of different jobs apart when they come in one folder.

A rank that stands in several files is either one rank recorded several times (the same process, at
other times) or several jobs. Merging jobs would compare ranks that never met, so they are told
apart by folder, by process or by world size, and read each by itself.
"""

import contextlib
import os
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from advisor.errors import AdvisorError
from advisor.ingest.source import Reader, Source

_LISTED = 4
# How folders are called into which one job writes again and again: torchtitan's, our own.
_OF_PROGRESS = re.compile(r"(iteration|iter|step|epoch|cycle|capture)([-_ ]?\d+)?", re.IGNORECASE)
_PUT = "put it into the folder of its own, or pass it with the files of that one"


class SeveralJobsError(AdvisorError):
    """The files are of several jobs; ``jobs`` holds the files of each that can be told.

    ``apart`` holds files that are of none of them and stand in folders of their own, by a name for
    each folder; ``left_out`` says of every other file why it is not read. ``found`` are
    those that the user did not name but a folder held: one that cannot be used is left out.
    """

    def __init__(
        self,
        jobs: Mapping[str, Sequence[Path]],
        evidence: str,
        *,
        apart: Mapping[str, Sequence[Path]] | None = None,
        left_out: Mapping[Path, str] | None = None,
        found: Collection[Path] = (),
    ) -> None:
        listed = "; ".join(
            f"{name}: {files[0]}" + (f" and {len(files) - 1} more" if len(files) > 1 else "")
            for name, files in list(jobs.items())[:_LISTED]
        )
        more = f"; {len(jobs) - _LISTED} more" if len(jobs) > _LISTED else ""
        super().__init__(
            f"these files are of {len(jobs)} recordings ({evidence})",
            hint=f"pass the files of one: {listed}{more}",
        )
        self.jobs = {name: list(files) for name, files in jobs.items()}
        self.evidence = evidence
        self.apart = {name: list(files) for name, files in (apart or {}).items()}
        self.left_out = dict(left_out or {})
        self.found = frozenset(found)


def with_neighbours(
    several: SeveralJobsError,
    chosen: Sequence[tuple[Source, Reader]],
    skipped: Sequence[tuple[Source, str]] = (),
    *,
    logs: str,
) -> SeveralJobsError:
    """``several`` with the other files: of the job in whose folder they stand, apart, or left out.

    ``skipped`` are files that no reader takes, and why. Raises AdvisorError where the jobs are
    told apart by files of the format ``logs`` and another file may be of any of them.
    """
    taken = {path for files in several.jobs.values() for path in files}
    formats = {source.path: reader.FORMAT for source, reader in chosen}
    tops = {
        name: Path(os.path.commonpath([path.absolute().parent for path in files]))
        for name, files in several.jobs.items()
    }
    jobs = {name: list(files) for name, files in several.jobs.items()}
    apart: dict[Path, list[Path]] = defaultdict(list)
    left_out = {source.path: reason for source, reason in skipped}
    for path in sorted(formats.keys() - taken):
        owners = [name for name, top in tops.items() if top in path.absolute().parents]
        inner = [
            name
            for name in owners
            if not any(tops[name] in tops[other].parents for other in owners)
        ]
        if len(inner) == 1 and len(set(tops.values())) == len(tops):
            jobs[inner[0]].append(path)
        elif (own := _folder_without(path, taken)) is not None:
            apart[own].append(path)
        elif {formats.get(path) for path in taken} == {logs}:
            raise AdvisorError(
                f"these NCCL logs are of {len(jobs)} jobs ({several.evidence}), and "
                f"{path.name} can be of any of them",
                where=str(path),
                hint="pass it with the logs of its own job, or put each job into its own folder",
            )
        else:
            left_out[path] = f"it can be of any of several recordings; {_PUT}"
    return SeveralJobsError(
        jobs,
        several.evidence,
        apart=_named(apart.values(), jobs),
        left_out=left_out,
        found={source.path for source, _ in chosen if not source.named},
    )


def _folder_without(path: Path, taken: Collection[Path]) -> Path | None:
    """The outermost folder around ``path`` that holds none of ``taken``; None where all do."""
    held = {folder for file in taken for folder in file.absolute().parents}
    own = [folder for folder in path.absolute().parents if folder not in held]
    return own[-1] if own else None


def _named(groups: Iterable[list[Path]], jobs: Collection[str]) -> dict[str, list[Path]]:
    """Each of ``groups`` under the name of its folder, which is none of ``jobs``."""
    found: dict[str, list[Path]] = {}
    for files in groups:
        folder = Path(os.path.commonpath([file.absolute().parent for file in files]))
        base = name = folder.name or "files"
        number = 1
        while name in found or name in jobs:
            number += 1
            name = f"{base}-{number}"
        found[name] = files
    return found


class RankFile(NamedTuple):
    """One file of one rank, and the size of the job and the process (host and number) it tells."""

    path: Path
    rank: int
    world_size: int | None = None
    process: str | None = None


class Part(NamedTuple):
    """One file of one rank: when it was recorded and by which process (None: not told)."""

    path: Path
    rank: int
    start_ns: int
    end_ns: int
    process: int | None


def refuse_several(chosen: Sequence[tuple[Source, Reader]]) -> None:
    """Raise :class:`SeveralJobsError` when folders hold the same ranks, or world sizes differ.

    Looks at the beginning of the files only, and only at ranks that the files themselves name:
    one taken from a file's name may be the number within a host.
    """
    told: dict[str, list[RankFile]] = defaultdict(list)
    for source, reader in chosen:
        recorded = getattr(reader, "recorded_rank", None)
        found = None
        if recorded is not None and len(chosen) > 1:
            with contextlib.suppress(AdvisorError):  # the reader says what is wrong with it
                found = recorded(source)
        if found is not None:
            told[reader.FORMAT].append(RankFile(source.path, *found))
    for files in told.values():
        split_by_folder(files)


def split_by_folder(files: Sequence[RankFile]) -> None:
    """Raise :class:`SeveralJobsError` when folders (else world sizes) part ``files`` in jobs."""
    jobs = _by_folder(files)
    if jobs:
        raise SeveralJobsError(jobs, "the same ranks stand in several folders")
    sizes: dict[int, list[Path]] = defaultdict(list)
    for file in files:
        if file.world_size is not None:
            sizes[file.world_size].append(file.path)
    if len(sizes) > 1:
        raise SeveralJobsError(
            {f"of-{size}-ranks": paths for size, paths in sorted(sizes.items())},
            "they tell different numbers of ranks: " + ", ".join(map(str, sorted(sizes))),
        )


def refuse_twice(files: Sequence[RankFile]) -> None:
    """As :func:`split_by_folder` for files of which a job has one per rank; AdvisorError else."""
    split_by_folder(files)
    for rank, count in Counter(file.rank for file in files).items():
        if count > 1:
            twice = ", ".join(str(file.path) for file in files if file.rank == rank)
            raise AdvisorError(
                f"rank {rank} is in {count} files, which cannot be told apart: {twice}",
                hint="pass the files of one recording, or put each recording into its own folder",
            )


def split_by_process(parts: Sequence[Part]) -> None:
    """Raise :class:`SeveralJobsError` when processes recorded the ranks one after another.

    The files of one process are parts of one recording. Raises AdvisorError when the processes of
    the ranks do not add up to whole jobs.
    """
    launches: dict[int, list[list[Part]]] = {}
    for part in sorted(parts, key=lambda part: part.start_ns):
        mine = launches.setdefault(part.rank, [])
        known = mine[-1][-1].process if mine else None
        if mine and (part.process is None or known is None or part.process == known):
            mine[-1].append(part)
        else:
            mine.append([part])
    counts = {len(mine) for mine in launches.values()}
    if counts <= {1}:
        return
    rank = next(rank for rank, mine in launches.items() if len(mine) > 1)
    evidence = f"rank {rank} was recorded by {len(launches[rank])} processes"
    if len(counts) == 1:
        jobs = [[part for mine in launches.values() for part in mine[k]] for k in range(*counts)]
        if all(
            max(part.end_ns for part in one) <= min(part.start_ns for part in other)
            for one, other in pairwise(jobs)
        ):
            raise SeveralJobsError(
                {
                    f"launch-{number}": [part.path for part in job]
                    for number, job in enumerate(jobs, 1)
                },
                evidence,
            )
    raise AdvisorError(
        f"these files are of several jobs: {evidence} "
        f"({', '.join(str(mine[0].path) for mine in launches[rank])})",
        hint="pass the files of one job, or put each job into a folder of its own",
    )


def _by_folder(files: Sequence[RankFile]) -> dict[str, list[Path]]:
    """Folder -> its files, where each folder is a job of its own; {} where that cannot be told."""
    if not _twice(files):
        return {}
    top = Path(os.path.commonpath([file.path.absolute().parent for file in files]))
    inside: dict[str, list[RankFile]] = defaultdict(list)
    for file in files:
        parts = file.path.absolute().parent.relative_to(top).parts
        inside[parts[0] if parts else "."].append(file)
    if len(inside) < 2 or _one_after_another(inside):
        return {}
    jobs: dict[str, list[Path]] = {}
    ranks: list[set[int]] = []
    whole = True
    for name, mine in inside.items():
        deeper = _by_folder(mine)
        if _twice(mine) and not deeper:
            return {}
        jobs |= {f"{name}/{below}".removesuffix("/."): paths for below, paths in deeper.items()}
        if not deeper:
            jobs[top.name or "top" if name == "." else name] = [file.path for file in mine]
            ranks.append({file.rank for file in mine})
            whole = whole and {file.world_size for file in mine} == {len(ranks[-1])}
    shared = all(one & other for index, one in enumerate(ranks) for other in ranks[:index])
    return jobs if whole or shared else {}


def _one_after_another(inside: Mapping[str, Sequence[RankFile]]) -> bool:
    """Whether the folders are numbered recordings of one job: the same process in each of them.

    torchtitan writes a step each into iteration_N/. A process's number alone is none of a job's: in
    a container every launch has the same.
    """
    processes: dict[int, set[str | None]] = defaultdict(set)
    for files in inside.values():
        for file in files:
            processes[file.rank].add(file.process)
    named = all(_OF_PROGRESS.fullmatch(name) for name in inside)
    return named and all(len(own) == 1 and None not in own for own in processes.values())


def _twice(files: Sequence[RankFile]) -> bool:
    return len({file.rank for file in files}) < len(files)
