"""Ingest on a Ray cluster: many traces at once into one Parquet store on a shared path.

Three rounds of tasks: a look at every file (format and rank), then batches of ranks, each written
by one task, then what needs the whole run (logs, dumps), joined with the ranks' rows. A task whose
worker or machine dies is run again; a batch that keeps killing its workers is split, so that only
the file that does it is given up. See docs/scale.md.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.errors import AdvisorError
from advisor.ingest import ray_look, ray_task
from advisor.ingest.own_files import is_own, own_folders
from advisor.ingest.ray_plan import Item, Look, Piece, batches, is_url, list_inputs, pieces
from advisor.ingest.ray_task import Done, Job
from advisor.ingest.unknown import NOT_READ
from advisor.store.batches import Index, clear_unfinished
from advisor.store.opening import connect
from advisor.store.parquet import prepare_parquet, refuse_present
from advisor.store.store import SCHEMA_VERSION

MAX_RETRIES = 3
_FILES_PER_LOOK = 64
_NO_ANSWER = "start one: ray start --head; or export RAY_AUTH_MODE=token (with the head's \
~/.ray/auth_token) where one runs that asks for a token"
ClusterProgress = Callable[[int, int], None]
"""Called with (bytes of the files done, bytes of all files)."""


@dataclass
class Summary:
    """What an ingest on a cluster did. ``failed``: (path or URL, reason), one per file."""

    ranks: int = 0
    files: int = 0
    batches: int = 0
    bytes_read: int = 0
    events_read: int = 0
    events_dropped: int = 0
    cpu_s: float = 0.0
    failed: list[tuple[str, str]] = field(default_factory=list)

    def error(self, folder: str) -> AdvisorError | None:
        """The error that names the files that could not be read, or None."""
        if not self.failed:
            return None
        title = f"{len(self.failed)} of {self.files} files could not be read, the others are in"
        return AdvisorError(_list_failed(f"{title} {folder}", self.failed))


def ingest_on_ray(
    paths: Iterable[str | Path],
    folder: str | Path,
    *,
    run: str = "run",
    lean: bool = False,
    force: bool = False,
    address: str | None = None,
    progress: ClusterProgress | None = None,
    read_batch: Callable[[Sequence[Piece], Job], Done] = ray_task.read_batch,
) -> Summary:
    """Read traces (paths, folders, patterns, fsspec URLs) of one run into the store ``folder``.

    ``address``: of a running cluster; by default the one of ``RAY_ADDRESS``, else the one running
    on this machine, else one is started here. ``folder`` and the paths must be the same on every
    machine. ``read_batch`` is what a task runs. Files that cannot be read are in
    ``Summary.failed`` and the others are read all the same. Raises :class:`AdvisorError` when
    nothing can be read, when a rank is in the store already (unless ``force``), or when the
    cluster cannot be used.
    """
    if is_url(str(folder)):
        raise AdvisorError("the output must be a folder on a shared path", where=str(folder))
    folder = Path(folder).resolve()
    with _cluster(address) as ray:
        prepare_parquet(folder, schema_version=SCHEMA_VERSION)
        items = list_inputs(paths, first_number=_next_number(folder, run))
        cpus = max(1, int(ray.cluster_resources().get("CPU", 1)))
        looks = _look(ray, items, cpus)
        total = sum(look.item.size_bytes for look in looks)
        apart, together = pieces(looks)
        failed, ignored = _unread(looks)
        if not apart and not together.items:
            raise AdvisorError(_list_failed("nothing could be read", _readable(failed)))
        job = Job(folder, run, lean=lean, force=force)
        if not force:
            refuse_present(folder, run, (piece.rank for piece in apart))
        plan = batches(apart, cpus)
        summary = Summary(files=len(items), batches=len(plan))
        written: set[int] = set()
        names: set[str] = set()
        later: list[Item] = []

        def count(done: Done) -> None:
            written.update(done.ranks)
            if done.batch:
                names.add(done.batch)
            elif done.ranks:
                names.add(f"{min(done.ranks)}-{max(done.ranks)}-{len(done.ranks)}")
            failed.extend(done.failed)
            later.extend(done.later)
            summary.bytes_read += sum(item.size_bytes for item in done.read)
            summary.events_read += done.events_read
            summary.events_dropped += done.events_dropped
            summary.cpu_s += done.cpu_s
            if progress is not None:
                progress(summary.bytes_read, total)

        for batch, done, problem in _run(ray, read_batch, plan, job):
            lost = tuple((item, problem) for piece in batch for item in piece.items)
            count(Done(failed=lost) if done is None else done)
        notes = [*((item, NOT_READ) for item in ignored), *failed]
        # A merged trace may tell its ranks late: then it turns up where it was read as one rank.
        together = Piece((*together.items, *later))
        if together.items or notes:
            count(_together(ray, together, notes, sorted(written), job))
        _check_written(written, job)
        planned = {piece.rank for piece in apart if piece.rank is not None}
        clear_unfinished(folder, run, ranks=planned | written, names=names)
        summary.ranks = len(written)
        summary.failed = _readable(failed)
        if not written and summary.failed:
            raise AdvisorError(_list_failed("nothing could be read", summary.failed))
        return summary


@contextmanager
def _cluster(address: str | None) -> Iterator[Any]:
    """Ray, connected; left as it was found."""
    # Ray reports usage to its makers unless told not to: a diagnosis must not call out.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise AdvisorError(
            "Ray is not installed", hint='install it: pip install "nccl-advisor[ray]"'
        ) from error
    if ray.is_initialized():
        yield ray
        return
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise AdvisorError(
            f"no Ray cluster answers: {str(error).splitlines()[0]}",
            where=address or "",
            hint=_NO_ANSWER,
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _remote(ray: Any, function: Callable[..., Any]) -> Any:
    options = {"num_cpus": 1, "max_retries": MAX_RETRIES, "scheduling_strategy": "SPREAD"}
    return ray.remote(**options)(function)


def _look(ray: Any, items: Sequence[Item], cpus: int) -> list[Look]:
    size = max(1, min(_FILES_PER_LOOK, -(-len(items) // (2 * cpus))))
    parts = [items[first : first + size] for first in range(0, len(items), size)]
    found: list[Look] = []
    for part, looks, problem in _run(ray, ray_look.look_at, parts):
        found += [Look(item, problem=problem) for item in part] if looks is None else looks
    return sorted(found, key=lambda look: look.item.number)


def _run(
    ray: Any, function: Callable[..., Any], parts: Iterable[Sequence[Any]], *shared: Any
) -> Iterator[tuple[Sequence[Any], Any, str]]:
    """Run ``function(part, *shared)`` for all parts, in the order in which they end.

    A part that fails as a whole is split into its members, so that only the member at fault comes
    back with None and the reason.
    """
    task = _remote(ray, function)
    waiting = {task.remote(part, *shared): part for part in parts}
    try:
        while waiting:
            (ready, *_), _ = ray.wait(list(waiting), num_returns=1)
            part = waiting.pop(ready)
            try:
                result = ray.get(ready)
            except ray.exceptions.RayError as error:
                _raise_if_hopeless(error)
                if len(part) > 1:
                    waiting.update({task.remote((one,), *shared): (one,) for one in part})
                else:
                    yield part, None, _reason(error)
                continue
            yield part, result, ""
    finally:
        for reference in waiting:
            ray.cancel(reference)


def _raise_if_hopeless(error: Exception) -> None:
    """Errors that every task would meet."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, AdvisorError):
        raise cause from error
    if isinstance(cause, ImportError):
        raise AdvisorError(
            f"a worker cannot run this: {_reason(error)}",
            hint="every machine of the cluster needs the same advisor installed",
        ) from error


def _together(
    ray: Any, piece: Piece, notes: Sequence[tuple[Item, str]], ranks: Sequence[int], job: Job
) -> Done:
    task = _remote(ray, ray_task.read_together)
    try:
        done: Done = ray.get(task.remote(piece, notes, ranks, job))
    except ray.exceptions.RayError as error:
        done = Done(failed=tuple((item, _reason(error)) for item in piece.items))
    return done


def _reason(error: Exception) -> str:
    """One line: Ray's own errors come with the worker's whole traceback."""
    cause = getattr(error, "cause", None)
    if cause is not None:
        lines = str(cause).splitlines()
        return f"{type(cause).__name__}: {lines[0] if lines else ''}"[:300]
    return f"its worker died on it {MAX_RETRIES + 1} times ({type(error).__name__})"


def _next_number(folder: Path, run: str) -> int:
    """The first number for ``source`` that the run does not have yet."""
    index = Index(folder)
    files = [
        str(batch.of_run(folder, "source"))
        for batch in index.batches
        if batch.run == run and "source" in batch.tables
    ]
    files = [file for file in files if Path(file).exists()]  # those replaced since may be gone
    if not files:
        return 0
    with connect() as con:
        (largest,) = con.execute(
            "SELECT max(source_id) FROM read_parquet(?, hive_partitioning = false)", [files]
        ).fetchone() or (None,)
    return 0 if largest is None else int(largest) + 1


def _check_written(ranks: Iterable[int], job: Job) -> None:
    missing = sorted(set(ranks) - Index(job.folder).ranks(job.run))
    if missing:
        raise AdvisorError(
            f"a worker wrote rank {missing[0]}, but it is not here",
            where=str(job.folder),
            hint="choose a folder on a file system that all machines share",
        )


def _unread(looks: Sequence[Look]) -> tuple[list[tuple[Item, str]], list[Item]]:
    """Files that could not be read, and those of no known format; none that advisor wrote."""
    ours = own_folders(look.item.place for look in looks)
    unread = [
        look
        for look in looks
        if (look.problem or not look.format)
        and (look.item.named or not (look.own or is_own(look.item.place, b"", ours)))
    ]
    failed = [(look.item, look.problem) for look in unread if look.problem]
    return failed, [look.item for look in unread if not look.problem]


def _readable(failed: Iterable[tuple[Item, str]]) -> list[tuple[str, str]]:
    return [(item.place, reason) for item, reason in sorted(failed, key=lambda f: f[0].number)]


def _list_failed(title: str, failed: Sequence[tuple[str, str]], most: int = 20) -> str:
    lines = [f"{place}: {reason}" for place, reason in failed[:most]]
    if len(failed) > most:
        lines.append(f"and {len(failed) - most} more")
    return "\n".join([title, *lines])
