"""Which test sees which fault at which operation, or why there is nothing to see.

python -m tests.trust.matrix        prints the table of docs/faults.md
"""

from __future__ import annotations

OPERATIONS = ("store", "Parquet", "report", "calibrate", "sweep", "resume", "record")

_FILES, _SWEEPS, _JOBS = "test_faults", "test_faults_of_sweeps", "test_jobs_end"
_RECORDINGS = "test_faults_of_recordings"
_STREAMS = "test_closed_streams"

Cells = dict[str, str]


def _of(files: str, sweeps: str, record: str, *, resume: str = "") -> Cells:
    """The same test for all that writes one file, one for the sweep, one for the recording."""
    cells = dict.fromkeys(OPERATIONS[:4], files)
    return {**cells, "sweep": sweeps, "resume": resume or sweeps, "record": record}


_SHARED = (
    "— launchers of one job share a folder on purpose; recordings of two jobs in one are said to "
    "be two (the verdict `never-met`)"
)
_NO_INPUT = "— reads no file"
_NO_CLOCK = "— no clock decides anything: what others left is known by its lock"
_NO_JOB = "— starts no job"
_RECORD = f"{_RECORDINGS}::test_a_job_goes_on_whose_trace_cannot_be_written"

MATRIX: dict[str, Cells] = {
    "kill -9 at a random moment": _of(
        f"{_FILES}::test_killed_at_any_moment",
        f"{_SWEEPS}::test_killed_at_any_moment",
        f"{_RECORDINGS}::test_a_job_that_is_killed_while_it_writes_its_trace",
    ),
    "full disk": _of(
        f"{_FILES}::test_a_disk_that_is_full", f"{_SWEEPS}::test_writes_that_fail", _RECORD
    ),
    "read-only disk": _of(
        f"{_FILES}::test_a_disk_that_is_read_only",
        f"{_SWEEPS}::test_a_disk_that_is_read_only",
        f"{_RECORDINGS}::test_a_job_goes_on_whose_folder_is_read_only",
    ),
    "quota (EDQUOT, ulimit -f)": _of(
        f"{_FILES}::test_writes_that_fail", f"{_SWEEPS}::test_writes_that_fail", _RECORD
    ),
    "EIO": _of(f"{_FILES}::test_writes_that_fail", f"{_SWEEPS}::test_writes_that_fail", _RECORD),
    "no descriptors": _of(
        f"{_FILES}::test_no_descriptors",
        f"{_SWEEPS}::test_too_little_of_something",
        f"{_RECORDINGS}::test_a_job_goes_on_that_has_no_descriptor_left_for_its_trace",
    ),
    "no memory (ulimit -v)": _of(
        f"{_FILES}::test_no_memory",
        f"{_SWEEPS}::test_too_little_of_something",
        "test_goes_on::test_a_trace_that_cannot_be_written_is_left_out",
    ),
    "SIGTERM": _of(
        f"{_FILES}::test_asked_to_end",
        f"{_SWEEPS}::test_asked_to_end",
        f"{_JOBS}::test_what_ends_record_ends_its_job",
    ),
    "SIGINT": _of(
        f"{_FILES}::test_asked_to_end",
        f"{_SWEEPS}::test_asked_to_end",
        f"{_JOBS}::test_what_ends_record_ends_its_job",
    ),
    "SIGPIPE": _of(
        f"{_FILES}::test_nobody_reads_what_is_printed",
        f"{_SWEEPS}::test_nobody_reads_what_is_printed",
        "— prints on standard error only, a report (--diagnose) as diagnose does",
    ),
    "closed streams": _of(
        f"{_STREAMS}::test_diagnose_on_closed_streams_ends_as_on_open_ones",
        f"{_SWEEPS}::test_closed_streams",
        "— what is printed is the job's own",
    ),
    "two at once on one output": _of(
        f"{_FILES}::test_two_at_once", f"{_SWEEPS}::test_two_at_once", _SHARED
    ),
    "a file that is replaced while it is read": {
        **_of(
            f"{_FILES}::test_a_file_that_changes_while_it_is_read",
            f"{_SWEEPS}::test_the_journal_changes_meanwhile",
            _NO_INPUT,
        ),
        "calibrate": "— a table is read at once, in a few milliseconds",
    },
    "a clock that jumps": _of(
        _NO_CLOCK,
        f"{_JOBS}::test_a_clock_that_jumps_is_no_hang",
        "test_watching::test_a_recording_begins_where_no_rank_has_been_yet",
    ),
    "a job that ignores SIGTERM, and forks": _of(
        _NO_JOB,
        f"{_JOBS}::test_a_trial_that_ignores_sigterm_and_forks_leaves_nothing",
        "— the job runs to its own end, and is never made to",
    ),
}


def table() -> str:
    """The matrix in Markdown: + where a test sees it, a letter where there is nothing to see."""
    reasons: list[str] = []
    lines = ["| | " + " | ".join(OPERATIONS) + " |", "|---" * (len(OPERATIONS) + 1) + "|"]
    for fault, cells in MATRIX.items():
        signs = []
        for operation in OPERATIONS:
            cell = cells[operation]
            if not cell.startswith("—"):
                signs.append("+")
                continue
            reason = cell.removeprefix("— ")
            if reason not in reasons:
                reasons.append(reason)
            signs.append(chr(ord("a") + reasons.index(reason)))
        lines.append(f"| {fault} | " + " | ".join(signs) + " |")
    notes = [f"- {chr(ord('a') + number)}: {reason}" for number, reason in enumerate(reasons)]
    return "\n".join([*lines, "", *notes]) + "\n"


if __name__ == "__main__":
    print(table())
