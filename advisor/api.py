"""The Python interface: load traces, look at the tables, get the findings.

>>> import advisor
>>> run = advisor.load("traces/")          # doctest: +SKIP
>>> run.findings()                          # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.errors import AdvisorError
from advisor.store import Store, is_store
from advisor.store.reading import reading
from advisor.store.stored import reading_stored
from advisor.store.target import database_writing

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from advisor.findings import FindingsReport

PathLike = str | Path


class Run:
    """What was read from one set of traces, logs and dumps, with everything derived from it.

    The tables come as pandas DataFrames (``arrow()`` gives the Arrow table).
    Times are int64 nanoseconds, sizes bytes, bandwidths decimal GB/s. Use it as a context manager,
    or call :meth:`close`.
    """

    def __init__(self, store: Store, *, command: str = "") -> None:
        self._store = store
        self._folder: Path | None = None
        self._closed = False
        self._command = command
        self._report: FindingsReport | None = None

    @property
    def store(self) -> Store:
        """The tables; raises AdvisorError once the run is closed."""
        if self._closed:
            raise AdvisorError(
                "this run is closed: its tables are gone",
                hint="load it again with advisor.load(...), and close it after the last query",
            )
        return self._store

    def diagnose(
        self,
        *,
        rule_dirs: Sequence[PathLike] = (),
        select: Sequence[str] = (),
        ignore: Sequence[str] = (),
        params: dict[str, Any] | None = None,
    ) -> FindingsReport:
        """Run the rules and return the whole report (verdict, findings, outcomes)."""
        from advisor import earlier, engine
        from advisor.report.pasted import filled_in

        found = engine.diagnose(
            self.store,
            rule_dirs=[Path(folder) for folder in rule_dirs],
            select=select,
            ignore=ignore,
            params=params,
            command=self._command,
            tried=earlier.tried(self, self._folder, _alone) if self._folder else None,
        )
        self._report = filled_in(found)
        return self._report

    @property
    def report(self) -> FindingsReport:
        """The report with the shipped rules; computed once."""
        return self._report if self._report is not None else self.diagnose()

    def findings(self) -> pd.DataFrame:
        """One row per finding, worst first; ``savings_ns`` is the recoverable time per step."""
        from advisor.frames import findings_table, frame

        return frame(findings_table(self.report.findings))

    def breakdown(self, per: str = "step") -> pd.DataFrame:
        """Where the time goes, per rank and ``step`` (or per whole ``run``); sums to window_ns."""
        if per not in ("step", "run"):
            raise AdvisorError(f"breakdown per {per!r} is not known", hint="use 'step' or 'run'")
        order = "run, rank, step" if per == "step" else "run, rank"
        return self.sql(f"SELECT * FROM {per}_breakdown ORDER BY {order}")

    def collectives(self) -> pd.DataFrame:
        """One row per rank and collective call, with sizes, waiting, transfer and bandwidths."""
        return self.sql("SELECT * FROM collective ORDER BY run, rank, start_ns")

    def ranks(self) -> pd.DataFrame:
        """One row per rank: what was read, dropped, aligned."""
        return self.sql("SELECT * FROM rank ORDER BY run, rank")

    def steps(self) -> pd.DataFrame:
        """One row per rank and step."""
        return self.sql("SELECT * FROM step ORDER BY run, rank, step")

    def sql(self, query: str, parameters: Sequence[Any] = ()) -> pd.DataFrame:
        """Any query over the store's tables (``advisor schema`` lists them); they stay as they are.

        Raises AdvisorError for anything but one SELECT, or when it fails.
        """
        from advisor.frames import frame

        return frame(self.arrow(query, parameters))

    def arrow(self, query: str, parameters: Sequence[Any] = ()) -> pa.Table:
        """The same as an Arrow table."""
        with reading(self.store.con, query, parameters) as result:
            table: pa.Table = result.to_arrow_table()
        return table

    def render(self, format: str = "text", **options: Any) -> str:
        """The report as ``text``, ``html``, ``json``, ``junit``, ``github``, ``markdown`` or
        ``chat`` (five lines)."""
        from advisor.report import render

        return render(self.report, self.store, format, **options)

    def __repr__(self) -> str:
        """The runs with their ranks and files; nothing is computed for it."""
        if self._closed:
            return "<advisor.Run closed>"
        counted = self.store.con.execute(
            "SELECT run, (SELECT count(*) FROM rank k WHERE k.run = r.run), "
            "(SELECT count(*) FROM source s WHERE s.run = r.run) FROM run r ORDER BY run"
        ).fetchall()
        runs = "; ".join(f"{run}: {ranks} ranks, {files} files" for run, ranks, files in counted)
        return f"<advisor.Run {runs}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the verdict, what to do first, and a row per finding."""
        from advisor.report import notebook

        return notebook.render(self.report)

    def close(self) -> None:
        """Release the store; what was diagnosed stays in :attr:`report`."""
        self._closed = True
        self._store.close()

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def load(
    *paths: PathLike,
    run: str = "run",
    store: PathLike | None = None,
    lean: bool = False,
    force: bool = False,
    leave_out: Collection[Path] = (),
    hardware: str | None = None,
    command: str = "",
    progress: Any = None,
    share: bool = False,
) -> Run:
    """Read traces, logs and dumps (files, directories, globs) of one run, and derive everything.

    Folders that hold the recordings of several jobs become one run each. ``hardware`` is the
    machine that benchmarks among them ran on, where their output does not tell.

    A single store (``RUN.duckdb`` or a Parquet dataset made by ``advisor ingest``) is opened
    instead of read again. With ``store`` the tables are kept in that file, else in memory.
    ``leave_out`` are files that are not read, though they are among ``paths``.
    With ``share`` pseudonyms stand for hosts, users and paths in all tables but those of events,
    and in ``command``.
    Raises AdvisorError with what, where and what to do.
    """
    from advisor.ingest.from_store import is_derived

    if not paths:
        raise AdvisorError("nothing to read", hint="name a trace, a directory or a glob")
    if store is not None and share:
        raise AdvisorError(
            "a store is not made to be shared: it holds every event as recorded",
            hint="leave --store out, or --share",
        )
    if store is None and not share and len(paths) == 1 and is_store(Path(paths[0])):
        opened = Store.open(Path(paths[0]))
        with reading_stored(Path(paths[0])):
            if is_derived(opened):
                return Run(opened, command=command)
            if Path(paths[0]).is_dir():
                # The events stay in their files; everything else is in memory already.
                return _derived(opened, command=command)
        opened.close()
    made = Store.create(Path(store) if store is not None else None, force=force)
    read = _read(
        made,
        {run: paths},
        lean=lean,
        leave_out=leave_out,
        hardware=hardware,
        command=command,
        progress=progress,
    )
    if share:
        from advisor.config.share_key import share_key
        from advisor.store.hide_names import hide_names

        names = hide_names(made, share_key())
        return Run(made, command=names.hidden_command(command, [str(path) for path in paths]))
    if len(paths) == 1 and Path(paths[0]).is_dir() and not lean:  # a second one takes memory too
        read._folder = Path(paths[0])
    return read


def _alone(folder: Path) -> Run:
    """A recording without what was tried before it."""
    return _read(Store.create(), {"run": [folder]}, lean=False, command="")


def load_runs(paths: Sequence[PathLike]) -> Run:
    """Read several runs into one store, each under its name (advisor.ingest.run_names)."""
    from advisor.ingest.run_names import run_names

    runs = {name: [path] for name, path in zip(run_names(paths), paths, strict=True)}
    return _read(Store.create(), runs, lean=False, command="")


def _read(
    made: Store,
    runs: Mapping[str, Sequence[PathLike]],
    *,
    lean: bool,
    command: str,
    leave_out: Collection[Path] = (),
    hardware: str | None = None,
    progress: Any = None,
) -> Run:
    """Read each run into ``made`` and derive everything; a failure leaves nothing behind.

    Files of several jobs become a run each where one run was asked for: ranks of different jobs
    must not be compared. An error where several were.
    """
    from advisor.ingest import SeveralJobsError, ingest, refuse_nothing
    from advisor.ingest.from_store import take
    from advisor.ingest.read_jobs import read_jobs

    try:
        for name, paths in runs.items():
            if len(paths) == 1 and is_store(Path(paths[0])):
                take(Path(paths[0]), made, run=name if len(runs) > 1 else None)
                continue
            try:
                ingest(
                    [str(path) for path in paths],
                    made,
                    run=name,
                    lean=lean,
                    leave_out=leave_out,
                    progress=progress,
                )
            except SeveralJobsError as several:
                if len(runs) > 1:
                    raise
                read_jobs(several, made, lean=lean, progress=progress)
                break
            refuse_nothing(made, name)
    except BaseException:
        made.close()
        raise
    return _derived(made, hardware=hardware, command=command)


def _derived(made: Store, *, hardware: str | None = None, command: str) -> Run:
    from advisor.metrics import derive
    from advisor.whatif import annotate

    try:
        with database_writing(made.path):
            made.use_threads_sparingly()
            derive(made, hardware=hardware)
            annotate(made)
    except BaseException:
        made.close()
        raise
    return Run(made, command=command)
