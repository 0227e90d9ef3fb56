"""One pass over text files that may hold nccl-tests tables, NCCL log lines, or both mixed.

All files of a run feed one :class:`Log`: a rank's lines, or the communicator that gives a line its
meaning, may stand in another file.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.errors import AdvisorError
from advisor.ingest.readers._text import numbered_lines, split_launcher
from advisor.ingest.readers.nccl_log.collect import Log
from advisor.ingest.readers.nccl_log.communicators import Slot
from advisor.ingest.readers.nccl_log.facts import Fact
from advisor.ingest.readers.nccl_log.jobs import refuse_several_logs
from advisor.ingest.readers.nccl_log.prefix import looks_like_log
from advisor.ingest.readers.nccl_log.write import write_log
from advisor.ingest.readers.nccl_tests.record import Harvest
from advisor.ingest.readers.nccl_tests.text import TableParser
from advisor.ingest.readers.nccl_tests.write import write_harvest
from advisor.ingest.readers.torch_bench import TrialsOfRanks
from advisor.ingest.source import ReadContext, Source
from advisor.vocabulary.recorded_steps import TRIAL_ENDS


@dataclass
class _File:
    source: Source
    harvest: Harvest
    understood: int
    refused: str | None
    lost: Counter[str]
    tool: str


def read_texts(sources: Sequence[Source], context: ReadContext, format_name: str) -> None:
    """Read the files of one run and report each.

    Raises :class:`SeveralJobsError` for the logs of several jobs; files with a benchmark's table
    are no job's and may be of any number of processes.
    """
    if not sources:
        return
    log = Log()
    files = [_read(source, log, context, format_name) for source in sources]
    in_files = log.collected.counts.copy()
    of_jobs = [str(file.source.path) for file in files if not file.harvest.measurements]
    refuse_several_logs([log.told[path] for path in of_jobs if path in log.told])
    log.finish()
    write_log(context, log.collected)
    for index, file in enumerate(files):
        dropped = file.harvest.dropped
        dropped += file.lost
        if index == 0:  # what is lost when the files are joined belongs to none of them
            dropped += log.collected.counts - in_files
        if file.refused is not None:
            dropped["refused"] = 1
        write_harvest(
            context, file.source, file.harvest, format_name, file.tool, also_read=file.understood
        )


def _read(source: Source, log: Log, context: ReadContext, format_name: str) -> _File:
    tables, trials = TableParser(source.path), TrialsOfRanks()
    path = str(source.path)
    understood = number = 0
    refused = None
    damage: str | None = None
    before = log.collected.counts.copy()
    try:
        stream, raw = source.open_raw()
        with stream:
            for number, line, whole in numbered_lines(stream):
                if line.endswith(TRIAL_ENDS):
                    break
                rows = tables.rows
                if not tables.feed(line):
                    launcher, text = split_launcher(line)
                    trials.feed(text)
                    understood += log.feed(text, (path, number), whole=whole, launcher=launcher)
                elif "NCCL " in line:  # a message inside a row of a table
                    understood += log.feed(line, (path, number))
                if tables.rows > rows:
                    log.measured(line, (path, number))
                if number % 4096 == 0 and context.progress is not None:
                    context.progress(str(source.path), raw.consumed_bytes, source.size)
            damage = raw.damage
    except AdvisorError as error:
        refused = error.message
    harvest = tables.finish()
    tool = "nccl-tests" if harvest.measurements else "torch"
    trials.finish(harvest)
    if format_name == "nccl-log" and not understood and not harvest.measurements and number:
        # A job's output that tells of no failure: how much was looked at.
        silent = "silent-nccl" if looks_like_log(source.head) else "silent"
        said = Fact("output", silent, f"{number}", "run")
        understood = log.collected.keep(Slot("", 0), [said], (path, number))
    harvest.notes += [note for note in (damage, refused) if note is not None]
    return _File(source, harvest, understood, refused, log.collected.counts - before, tool)
