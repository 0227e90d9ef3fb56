"""Of an output in which no line has a known form: the line at its end that tells most of a failure.

Programs say in the same few words that something went wrong. One such word is no proof, and a job
that trained on or reported its end did not die of it, so that what is found here is probable only.
"""

import re
from collections import deque
from dataclasses import dataclass, field, replace

from advisor.model.nccl.effects import follows_a_cause, reported
from advisor.model.nccl.messages import goes_on

LAST_LINES = 80
"""What a program prints as it ends stands in them; an earlier line was printed in passing."""
_LINES_BEHIND = 12
"""More of them behind the last such line, and the program went on."""
_LONGEST = 600
# A logger's words for what a program goes on after, in what stands before the line too.
_GOES_ON = re.compile(r"\b(?:WARN(?:ING)?|INFO|DEBUG|NOTICE)\b")
# What ended, what was refused or missing, and what was too much.
_WORDS = re.compile(
    r"\b(fatal|panic|abort(?:ed|ing)?|killed|crash(?:ed|es)?|core dumped|giving up|gave up|exiting|"
    r"unrecoverable|died|dead|terminated|"
    r"errors?|fail(?:ed|s|ure|ures|ing)?|exceptions?|"
    r"refused|rejected|denied|forbidden|unauthori[sz]ed|"
    r"timed[ -]out|time-?out|expired|cannot|can.t|could(?: not|n.t)|unable|"
    r"no such|not found|not (?:a )?valid|"
    r"not (?:supported|permitted|allowed|available|enough|reachable)|"
    r"(?:does|did|do)(?: not|n.t) (?:exist|match|support|respond|answer|fit|have)|"
    r"invalid|illegal|mismatch(?:ed)?|incompatible|unsupported|(?:not |un)recogni[sz]ed|"
    r"unknown|unexpected|"
    r"missing|corrupt(?:ed|ion)?|truncated|undefined|insufficient|exhausted|exceed(?:ed|s)|"
    r"out of (?:memory|range|bounds|space)|too (?:many|large|small|old|long|few)|"
    r"unreachable|unresponsive|disconnected|reset by peer|broken pipe|connection lost|"
    r"deadlock|hung|stuck|stalled|(?:is|are) required|must (?:be|have|match))\b",
    re.IGNORECASE,
)
_ENDS = re.compile(
    r"\b(?:fatal|panic|abort|crash|core dumped|giving up|exiting|unrecoverable|"
    r"error:|failed|failure)",
    re.IGNORECASE,
)
# What MPI tells stands between two of them.
_RULER = re.compile(r"-{70,}\s{0,8}$")
_LONGEST_BOX = 12
_STOPS = re.compile(
    r"exit|shut|terminat|kill|stop|clos|wait|SIG[A-Z]{3}|clean|destroy|releas|finaliz|fail|error",
    re.IGNORECASE,
)
# Counts and names of errors, and what is told of none.
_NO_FAILURE = re.compile(
    r"\b(?:it/s|s/it)\b|\b\d{1,3}%\||\b0 \w{1,12}:|"
    r"\b(?:no|without|zero|0|any) (?:\w{1,20} )?"
    r"(?:errors?|failures?|exceptions?|mismatch\w{0,4})\b|"
    r"\b(?:errors?|failed|failures?|mismatches|exceptions?)['\"]?\s{0,2}[:=]\s{0,2}(?:0\b|None|\[\]|\d+\.\d)|"
    r"\b(?:error|failure|timeout|time-out)(?:[_ -](?:rate|handler|handling|bars?|norm|correction)|"
    r"['\"]?\s{0,2}[:=]\s{0,2}\d{1,9}(?:\.\d|e-|%))|\btime-?out['\"]?\s{0,2}[:=]\s{0,2}\d|"
    r"first observed failure|"
    r"\bif\b.{0,80}\bfail|\bon[_ -](?:error|failure)\b|\bsqu?ared? error\b|\b(?:0|zero) failed\b|"
    r"^\s{0,8}frame #\d|\b(?:may|might|could) (?:crash|fail|hang|abort|die|error)\b|"
    r"During handling of the above exception|\.\w{1,4}:\d{1,6}: Failure$|"
    # The last: Singularity's shell, of an image's start script that it goes on with.
    r"\bmissing values?\b|\bvalues : 0\b|unknown token|\bunk\b|\bnot a valid test operator\b",
    re.IGNORECASE,
)
_IN_PASSING = re.compile(
    r"\b(?:\w{0,30}warn(?:ing)?|deprecat\w{1,6}|info|debug|notice|ignor(?:ed|ing)|skipp(?:ed|ing)|retry(?:ing)?|"
    r"optional|recovered|will be (?:used|ignored)|instead)\b|(?:^|\[)[IW]\d{3,4} \d\d:\d\d:\d\d|"
    r"^[IW] [\w/.]{1,200}:\d{1,6}\]|^\[[\d :,.-]{19,26} [IW] \d{1,9} \d{1,9}\]",
    re.IGNORECASE,
)
# The job trained on behind it, or says itself that it came to its end.
_WELL = re.compile(
    r"\b(?:[Ll]oss\b.{0,40}\d|it/s\b|s/it\b|per iteration)|"
    r"\b(?:(?:training|job|run|benchmark|test|all|successfully|has|is|was)\b.{0,30}"
    r"\b(?:complete[d]?|finished|done|succeeded|passed)|completed successfully|100%\|)|"
    r"`Trainer\.fit` stopped: .{0,60} reached|"
    r"^\s{0,8}(?:done|finished|complete[d]?|success)\b|exit(?:ed)?(?: with)?(?: code| status)? 0\b",
    re.IGNORECASE,
)


def strength(text: str) -> int:
    """How much a line tells of a failure: 0 where nothing."""
    text = text[:_LONGEST]
    words = {found.lower() for found in _WORDS.findall(text)}
    if not words or _NO_FAILURE.search(text) or _IN_PASSING.search(text) or goes_on(text):
        return 0
    return min(len(words), 4) + (2 if _ENDS.search(text) else 0)


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its launcher's mark, and that mark."""

    number: int
    launcher: str
    text: str


@dataclass
class LastWords:
    """Of one file: lines that no entry with a cause names, up to the first that tells of an end."""

    _lines: deque[Line] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    _is_over: bool = False
    """A line told of an end: what it was for stands before it."""

    def see(self, number: int, launcher: str, text: str, message: str | None = None) -> None:
        """Take the next line, and the entry that names it."""
        self._is_over |= message is not None and follows_a_cause(message)
        if text and not self._is_over and (message is None or message in reported()):
            self._lines.append(Line(number, launcher, text))

    def went_on(self) -> None:
        """What was seen was said in passing."""
        self._lines.clear()

    def first(self) -> Line | None:
        """The first of the last lines that tells of a failure by itself."""
        return next((line for line in self._lines if strength(line.text) > 0), None)

    def strongest(self) -> Line | None:
        """The line that tells most, of several the first; None where the job went on behind it."""
        best, most, last = 0, 0, 0
        for place, line in enumerate(self._lines):
            if _GOES_ON.search(line.launcher):
                continue
            if (found := strength(line.text)) > 0:
                last = place
                if found > most:
                    best, most = place, found
        after = list(self._lines)[last + 1 :]
        if len(after) > _LINES_BEHIND or any(_went_on(line) for line in after):
            return None
        return self._whole(best) if most else None

    def _whole(self, place: int) -> Line:
        """A line, or the whole text between two rulers that it is of."""
        lines = list(self._lines)
        rulers = [at for at, other in enumerate(lines) if _RULER.match(other.text)]
        above = sum(at < place for at in rulers)
        if above % 2 == 0 or above == len(rulers):
            return lines[place]
        box = lines[rulers[above - 1] + 1 : rulers[above]][:_LONGEST_BOX]
        return replace(lines[place], text=" ".join(" ".join(other.text for other in box).split()))


def _went_on(line: Line) -> bool:
    """Whether a line behind tells that the job trained on, ended well, or went its way."""
    said = line.text[:_LONGEST]
    logged = _GOES_ON.search(line.launcher + said[:100]) is not None
    return (logged and _STOPS.search(said) is None) or _WELL.search(said) is not None
