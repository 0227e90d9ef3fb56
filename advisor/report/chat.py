"""Five lines for a chat: verdict, why, what to do, how sure and what it gives, what was read.

Plain text, a line each, so that Slack, Teams and mail show it alike; what is to be pasted stands
below its line between fences, as it was written: a command behind a comment would not run.
"""

from advisor.findings import FindingsReport
from advisor.report import summary
from advisor.report.clean import one_line, printable
from advisor.report.options import Options
from advisor.store.store import Store
from advisor.vocabulary.words import plural

_LONGEST = 300  # characters of a line: chats fold longer ones away
_FENCE = "```"


def render(report: FindingsReport, store: Store | None, options: Options) -> str:
    """The five lines; those that have nothing to say are left out."""
    del store, options
    verdict, finding = report.verdict, summary.of_verdict(report)
    steps = verdict.next_steps
    has_gain = finding is not None and bool(finding.savings_ns)
    lines = {
        "Verdict": verdict.headline(),
        "Why": verdict.why,
        "Next": steps[0] if steps else "",
        "Gives" if has_gain else "State": _gives(report) if has_gain else summary.state(report),
        "Read": "; ".join(_read(report)),
    }
    shown = (f"{label}: {_with_code(text)}" for label, text in lines.items() if text)
    return "\n".join(shown) + "\n"


def _gives(report: FindingsReport) -> str:
    finding = summary.of_verdict(report)
    assert finding is not None
    sure = summary.confidence(finding)
    return f"{summary.gain(finding, summary.per(report))}{f' ({sure})' if sure else ''}"


def _read(report: FindingsReport) -> list[str]:
    return [
        f"{run.run}: " * (len(report.runs) > 1)
        + f"{plural(run.ranks_read, 'rank')}"
        + (f" of {run.world_size}" if (run.world_size or 0) > run.ranks_read else "")
        + f", {plural(run.steps_complete, 'complete step')}"
        for run in report.runs
    ]


def _with_code(text: str) -> str:
    """The words in one line, and the lines of code that follow them between fences."""
    words, _, code = text.partition("\n")
    if not code:
        return _short(words)
    lines = [printable(line).rstrip().replace(_FENCE, "") for line in code.splitlines()]
    return "\n".join([_short(words), _FENCE, *lines, _FENCE])


def _short(text: str) -> str:
    line = one_line(printable(text)).replace("`", "")
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1].rstrip() + "…"
