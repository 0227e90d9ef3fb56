"""Tells the NCCL logs of different jobs apart, as far as the logs themselves tell.

Logs that name a communicator together are of one job, and a job uses one version of NCCL. Versions
up to 2.14 print no id of a communicator: there a rank that two processes hold means two jobs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from advisor.errors import AdvisorError
from advisor.ingest.jobs import SeveralJobsError
from advisor.ingest.readers.nccl_log.facts import CommLine

Process = tuple[str, int]
"""Host and process id."""


@dataclass
class Told:
    """What one log, or several of one job, tell of their job."""

    paths: list[Path]
    versions: set[str] = field(default_factory=set)
    communicators: set[str] = field(default_factory=set)
    roles: dict[tuple[int, int], set[Process]] = field(default_factory=dict)
    """(rank, ranks of its communicator) -> the processes that were it."""
    processes: set[Process] = field(default_factory=set)

    @property
    def size(self) -> int:
        """Ranks of the largest communicator; 0 where none is named."""
        return max((ranks for _, ranks in self.roles), default=0)

    @property
    def whole(self) -> bool:
        """Whether every rank of the largest communicator is in it."""
        return self.size > 0 and all((rank, self.size) in self.roles for rank in range(self.size))

    def saw(self, line: CommLine, process: Process) -> None:
        """Take a line that names a communicator, which ``process`` printed."""
        self.roles.setdefault((line.rank, line.ranks), set()).add(process)
        if line.comm_id is not None:
            self.communicators.add(line.comm_id)

    def takes(self, other: "Told") -> None:
        """Add what another log of the same job tells."""
        self.paths += other.paths
        self.versions |= other.versions
        self.communicators |= other.communicators
        self.processes |= other.processes
        for role, held in other.roles.items():
            self.roles.setdefault(role, set()).update(held)


def refuse_several_logs(logs: Sequence[Told]) -> None:
    """Raise :class:`SeveralJobsError` where ``logs`` (one per file) are of several jobs.

    Raises AdvisorError, with their names, for logs that cannot be told apart.
    """
    joined = _joined(logs)
    jobs = [log for log in joined if log.communicators]
    named = [log for log in joined if not log.communicators and log.roles]
    for size in sorted({log.size for log in named}):
        jobs += _without_ids([log for log in named if log.size == size])
    jobs = _halves_joined(jobs)
    for log in joined:
        if not log.communicators and not log.roles:
            _add(jobs, log)
    if len(jobs) > 1:
        raise SeveralJobsError(
            {name: sorted(job.paths) for name, job in zip(_names(jobs), jobs, strict=True)},
            _evidence(jobs),
        )


def _joined(logs: Sequence[Told]) -> list[Told]:
    """Logs that share a communicator, or a process that one of them alone begins."""
    out: list[Told] = []
    for alike in (_share_a_communicator, _share_a_process):
        out, waiting = [], list(out or logs)
        for log in waiting:
            mine = [known for known in out if alike(known, log)]
            for known in mine:
                out.remove(known)
            out.append(_merged([log, *mine]))
    return out


def _share_a_communicator(one: Told, other: Told) -> bool:
    return bool(one.communicators & other.communicators)


def _share_a_process(one: Told, other: Told) -> bool:
    """Process ids come again in every container: two that were the same rank are two processes."""
    return (
        bool(one.processes & other.processes)
        and not one.roles.keys() & other.roles.keys()
        and _one_version(one, other)
    )


def _one_version(*logs: Told) -> bool:
    return len(set[str]().union(*(log.versions for log in logs))) <= 1


def _one_job(logs: Iterable[Told]) -> bool:
    """Whether nothing speaks against their being one job: one version, one process per rank."""
    logs = list(logs)
    held: dict[tuple[int, int], set[Process]] = {}
    for log in logs:
        size = log.size
        for role, processes in log.roles.items():
            if role[1] == size:
                held.setdefault(role, set()).update(processes)
    return _one_version(*logs) and all(len(processes) == 1 for processes in held.values())


def _without_ids(logs: Sequence[Told]) -> list[Told]:
    """The jobs of logs that name ranks of equally large communicators, but no communicator."""
    if len(logs) == 1 or _one_job(logs):
        return [_merged(logs)]
    if all(log.whole for log in logs):
        return list(logs)
    folders: dict[Path, list[Told]] = {}
    for log in logs:
        folders.setdefault(log.paths[0].absolute().parent, []).append(log)
    if len(folders) > 1 and all(_one_job(inside) for inside in folders.values()):
        return [_merged(inside) for inside in folders.values()]
    raise _cannot_tell(logs)


def _halves_joined(jobs: list[Told]) -> list[Told]:
    """A log whose lines with ids are lost belongs to the one job that it does not contradict."""
    out = [job for job in jobs if job.communicators]
    for job in jobs:
        fits = [known for known in out if known.size == job.size and _one_job([known, job])]
        if job.communicators:
            continue
        if len(fits) == 1 and not job.whole:
            fits[0].takes(job)
        else:
            out.append(job)
    return out


def _add(jobs: list[Told], log: Told) -> None:
    """Put a log that names no rank (warnings, a version) to the one job that it can be of."""
    fits = [job for job in jobs if _one_version(job, log)]
    if len(fits) > 1:
        folder = log.paths[0].absolute().parent
        fits = [job for job in fits if any(path.absolute().parent == folder for path in job.paths)]
        if len(fits) != 1:
            raise _cannot_tell([*jobs, log])
    if fits:
        fits[0].takes(log)
    else:
        jobs.append(log)


def _merged(logs: Sequence[Told]) -> Told:
    out = Told([])
    for log in logs:
        out.takes(log)
    return out


def _cannot_tell(logs: Sequence[Told]) -> AdvisorError:
    paths = [str(path) for log in logs for path in log.paths]
    return AdvisorError(
        "these NCCL logs are of several jobs, which cannot be told apart: "
        + ", ".join(paths[:8])
        + (f" and {len(paths) - 8} more" if len(paths) > 8 else ""),
        hint="pass the logs of one job, or put those of each job into a folder of its own",
    )


def _names(jobs: Sequence[Told]) -> list[str]:
    """A job's folder, else its only file; a number where neither tells jobs apart."""
    folders = [{path.absolute().parent for path in job.paths} for job in jobs]
    for names in (
        [inside.copy().pop().name if len(inside) == 1 else "" for inside in folders],
        [job.paths[0].stem if len(job.paths) == 1 else "" for job in jobs],
    ):
        if all(names) and len(set(names)) == len(jobs):
            return names
    return [f"job-{number}" for number, _ in enumerate(jobs, 1)]


def _evidence(jobs: Sequence[Told]) -> str:
    versions = [sorted(job.versions) for job in jobs]
    if all(versions) and len({tuple(names) for names in versions}) == len(jobs):
        listed = ", ".join("/".join(names) for names in versions[:4])
        return f"NCCL {listed}" + (" and more" if len(jobs) > 4 else "")
    if all(job.communicators for job in jobs):
        return "their NCCL logs have no communicator in common"
    return "different processes were the same rank in their NCCL logs"
