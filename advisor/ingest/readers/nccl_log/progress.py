"""Whether a job trained on or was done after what its output says went wrong: it may try again.

Ranks print the step before, their own and the next one after another has died, so that four
different ones are asked for. A file may hold several runs, one behind the other: what a later one
trained on after is over, whatever it died of itself, and so is what a launcher ended on before the
next one began: with its banner, or with lines that the file began with.
Where srun or mpirun mark the lines of every task, one without a mark is the batch script's.
"""

import re
from dataclasses import dataclass, field

from advisor.ingest.readers.nccl_log.collected import Where
from advisor.model.nccl.effects import by_form, ends_a_job, recovers, reported, starts_no_task

_STEPS = 4
_MOST = 1_000
# What stands beside a step's number in outputs of training: HuggingFace, Megatron, DeepSpeed,
# torchtitan, nanoGPT, timm, Lightning, and tqdm's bars.
_MEASURED = re.compile(r"[Ll]oss\b|s/it\b|it/s\b|per iteration")
_NUMBER = re.compile(
    r"(?:[Ss]teps?|[Ii]ter(?:ation)?s?|[Ee]poch|[Tt]rain)['\"]?[\s:=#\[]{1,12}(\d{1,12}(?:\.\d{1,6})?)"
    r"|\s(\d{1,9})/\s{0,8}\d{1,9}\b"
)
_LONGEST = 300
# What vLLM and SGLang print of the tokens that they made since they last did, and torch of a wait
# for others at the start.
_SERVED = re.compile(
    r"gen(?:eration)? throughput(?: \(tokens?/s\))?: (?!0\.0+\b)\d|Completed store-based barrier"
)
# What torchrun and DeepSpeed's launcher print once, as they begin.
_BEGINS = re.compile(
    r"Setting OMP_NUM_THREADS environment variable for each process|"
    r"Starting elastic_operator with launch configs|\[runner\.py:\d{1,5}:main\] cmd = "
)
# srun --label, mpirun --tag-output.
_OF_TASK = re.compile(r"\s{0,8}(?:\d{1,7}:\s|\[\d{1,7},\d{1,7}\]<)")
_LAUNCHER_ENDED = frozenset(("child-failed", "first-failed"))
_FIRST_LINES, _ALIKE = 8, 3
_SHORTEST = 12
_OF_TRACEBACK = re.compile(r"\s|Traceback|[│╭]")
_ANY_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
# DeepSpeed's launcher of a process that ended well.
_DONE = re.compile(r"\] Process \d{1,9} exits successfully")


def is_step(text: str) -> bool:
    """Whether a line tells of a step of training."""
    return bool(_MEASURED.search(text, 0, _LONGEST) and _NUMBER.search(text, 0, _LONGEST))


@dataclass
class Progress:
    """``see`` the lines of a file that are not NCCL's, and what went ``wrong`` between them."""

    _first: list[str] = field(default_factory=list)
    """The first different lines of the file, every number in them a zero."""
    _again: set[str] = field(default_factory=set)
    """Those of them that came again since a launcher ended."""
    _steps: dict[tuple[str, ...], int] = field(default_factory=dict)
    """The last different ones since the last error, with their lines."""
    _is_wrong: bool = False
    _failed: bool = False
    """By more than what others print as one ends."""
    _launcher_ended: bool = False
    _done: tuple[int, str] | None = None
    _said: str = ""
    _waits: list[Where] = field(default_factory=list)
    _since: list[Where] = field(default_factory=list)
    """What went wrong since the job was last seen to train on."""
    _unmarked: list[Where] = field(default_factory=list)
    """What a program ended with whose lines no launcher of tasks marked."""

    over: list[tuple[Where, str]] = field(default_factory=list)
    """What the job trained on after before it went wrong again, and the line that shows it."""

    def wrong(self, message: str, where: Where, printed: str = "") -> None:
        """The entry that names a line, ``printed`` with its launcher's mark."""
        if ends_a_job(message) or recovers(message):
            if len(self._steps) >= _STEPS:
                self.over += [(earlier, self._said) for earlier in self._since]
                self._since = []
            self._steps.clear()
        if ends_a_job(message):
            if _OF_TASK.match(printed):
                self.over += [(earlier, printed[:_LONGEST]) for earlier in self._unmarked]
                self._unmarked = []
            elif printed and message in starts_no_task() and len(self._unmarked) < _MOST:
                self._unmarked.append(where)
            if len(self.over) + len(self._since) < _MOST:
                self._since.append(where)
            self._is_wrong = True
            self._failed |= message not in by_form() - reported()
            self._launcher_ended |= message in _LAUNCHER_ENDED
            self._again.clear()
        if recovers(message):
            self._waits.append(where)

    def see(self, text: str, line: int) -> list[Where]:
        """A line that is no error; the places of waits that it shows to be over."""
        if self._waits and (len(self._steps) >= _STEPS or _SERVED.search(text, 0, _LONGEST)):
            over, self._waits = self._waits, []
            return over
        if not self._is_wrong:
            self._remember(text)
            if self._waits:
                self._count(text, line)
            return []
        if self._launcher_ended and self._begins(text):
            self.over += [(earlier, text.strip()[:_LONGEST]) for earlier in self._since]
            self._since, self._launcher_ended, self._failed = [], False, False
        if _DONE.search(text, 0, _LONGEST):
            self._done = line, text.strip()[:_LONGEST]
        self._count(text, line)
        return []

    def measured(self, row: str, line: int) -> None:
        """A row of a benchmark's table: its steps."""
        if (self._is_wrong or self._waits) and len(self._steps) < _STEPS:
            self._steps.setdefault((row,), line)
            self._said = " ".join(row.split())[:_LONGEST]

    def _remember(self, text: str) -> None:
        if len(self._first) < _FIRST_LINES and not _OF_TRACEBACK.match(text):
            shape = _shape(text)
            self._first += [shape] if len(shape) >= _SHORTEST and shape not in self._first else []

    def _begins(self, text: str) -> bool:
        """Whether a line behind the end of a launcher shows that another run begins."""
        if (shape := _shape(text)) in self._first:
            self._again.add(shape)
        return _BEGINS.search(text, 0, _LONGEST) is not None or len(self._again) >= _ALIKE

    def _count(self, text: str, line: int) -> None:
        if len(self._steps) >= _STEPS or not _MEASURED.search(text, 0, _LONGEST):
            return
        if numbers := tuple(found[0] or found[1] for found in _NUMBER.findall(text[:_LONGEST])):
            self._steps.setdefault(numbers, line)
            self._said = text.strip()[:_LONGEST]

    def went_on(self) -> tuple[int, str] | None:
        """The last line looked at, and its number, where the job trained on or was done."""
        if self._done and not self._failed:
            return self._done
        return (max(self._steps.values()), self._said) if len(self._steps) >= _STEPS else None


def _shape(text: str) -> str:
    return _ANY_NUMBER.sub("0", text.strip()[:_LONGEST])
