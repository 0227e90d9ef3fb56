"""Whether a job trained on or was done after what its output says went wrong: it may try again.

Ranks print the step before, their own and the next one after another has died, so that four
different ones are asked for. A file may hold several runs, one behind the other: what a later one
trained on after is over, whatever it died of itself, and so is what a launcher ended on before the
next one began.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from advisor.ingest.readers.nccl_log.collected import Where
from advisor.model.nccl.messages import by_form, ends_a_job, recovers, reported

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
# What vLLM and SGLang print of the tokens that they made since they last did.
_SERVED = re.compile(r"gen(?:eration)? throughput(?: \(tokens?/s\))?: (?!0\.0+\b)\d")
# DeepSpeed's launcher of a process that ended well.
# What torchrun and DeepSpeed's launcher print once, as they begin.
_BEGINS = re.compile(
    r"Setting OMP_NUM_THREADS environment variable for each process|"
    r"Starting elastic_operator with launch configs|\[runner\.py:\d{1,5}:main\] cmd = "
)
_LAUNCHER_ENDED = frozenset(("child-failed", "first-failed"))
_DONE = re.compile(r"\] Process \d{1,9} exits successfully")


@dataclass
class Progress:
    """``see`` the lines of a file that are not NCCL's, and what went ``wrong`` between them."""

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

    over: list[tuple[Where, str]] = field(default_factory=list)
    """What the job trained on after before it went wrong again, and the line that shows it."""

    def wrong(self, message: str, where: Where) -> None:
        """An entry of the catalogue that a line was named by."""
        if ends_a_job(message):
            if len(self._steps) >= _STEPS:
                self.over += [(earlier, self._said) for earlier in self._since]
                self._since = []
            if len(self.over) + len(self._since) < _MOST:
                self._since.append(where)
            self._is_wrong = True
            self._failed |= message not in by_form() - reported()
            self._launcher_ended |= message in _LAUNCHER_ENDED
            self._steps.clear()
        if recovers(message):
            self._waits.append(where)

    def see(self, text: str, line: int) -> list[Where]:
        """A line that is no error; the places of waits that it shows to be over."""
        if self._waits and _SERVED.search(text, 0, _LONGEST):
            over, self._waits = self._waits, []
            return over
        if self._launcher_ended and _BEGINS.search(text, 0, _LONGEST):
            self.over += [(earlier, text.strip()[:_LONGEST]) for earlier in self._since]
            self._since, self._launcher_ended, self._failed = [], False, False
        if _DONE.search(text, 0, _LONGEST):
            self._done = line, text.strip()[:_LONGEST]
        if self._is_wrong and len(self._steps) < _STEPS and _MEASURED.search(text, 0, _LONGEST):
            self._step(text, line)
        return []

    def _step(self, text: str, line: int) -> None:
        if numbers := tuple(found[0] or found[1] for found in _NUMBER.findall(text[:_LONGEST])):
            self._steps.setdefault(numbers, line)
            self._said = text.strip()[:_LONGEST]

    def went_on(self) -> tuple[int, str] | None:
        """The last line looked at, and its number, where the job trained on or was done."""
        if self._done and not self._failed:
            return self._done
        return (max(self._steps.values()), self._said) if len(self._steps) >= _STEPS else None
