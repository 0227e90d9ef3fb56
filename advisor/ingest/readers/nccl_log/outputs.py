"""One file of a job's output: what its readers keep between its lines."""

from dataclasses import dataclass, field

from advisor.ingest.readers.nccl_log.last_words import LastWords
from advisor.ingest.readers.nccl_log.numbered import Numbered
from advisor.ingest.readers.nccl_log.progress import Progress
from advisor.ingest.readers.nccl_log.tracebacks import Raised, Tracebacks
from advisor.ingest.readers.nccl_log.whence import Around
from advisor.model.nccl.effects import follows_a_cause, tells_a_cause


@dataclass
class Output:
    """``names`` takes what each line is called; the readers take the lines themselves."""

    around: Around = field(default_factory=Around)
    tracebacks: Tracebacks = field(default_factory=Tracebacks)
    last_words: LastWords = field(default_factory=LastWords)
    progress: Progress = field(default_factory=Progress)
    numbered: Numbered = field(default_factory=Numbered)
    told: set[str] = field(default_factory=set)
    """What its lines are named; "" of those that are none of the catalogue's."""
    _ended: int | None = None
    """The first line that tells of an end whose cause stands before it."""

    def names(self, message: str, where: tuple[str, int], printed: str) -> None:
        """The entry that names a line, "" where none does; ``printed`` is "" of NCCL's own."""
        self.progress.wrong(message, where, printed)
        self.numbered.wrong()
        self.told.add(message)
        if self._ended is None and follows_a_cause(message):
            self._ended = where[1]

    def cut(self) -> tuple[str, int, Raised] | None:
        """The traceback at its end that is cut off, where nothing tells a cause.

        One that stands behind an end comes of that end.
        """
        if any(map(tells_a_cause, self.told)) or (cut := self.tracebacks.cut()) is None:
            return None
        return cut if self._ended is None or cut[1] < self._ended else None
