"""What a job's settings gave since its earlier recording: said, and not proposed again in vain."""

from advisor.engine.notes import note
from advisor.findings import Basis, Finding, Note, Severity
from advisor.metrics.compare.tried import Tried
from advisor.vocabulary.words import about, estimate

_MOST = 3  # settings that a note names


def note_of(tried: Tried) -> Note:
    """The change, what steps gained by it, and what was expected of it."""
    gain_ns, low_ns, high_ns = tried.gains_ns()
    return note(
        "tried",
        recording=tried.recording,
        changed=[(name, *pair) for name, pair in tried.changed.items()][:_MOST],
        helped=tried.helped,
        needed=tried.difference.steps_needed,
        gain_ns=gain_ns,
        low_ns=low_ns,
        high_ns=high_ns,
        expected=_expected(tried.promised()),
    )


def not_again(finding: Finding, tried: Tried) -> Finding:
    """``finding``, as a hint without a fix where more of the same did not help."""
    if not tried.repeats(finding):
        return finding
    text = note_of(tried).text
    words = f"{text[:1].upper()}{text[1:]}."
    update = {"severity": Severity.INFO, "basis": Basis.OPTION, "probability": None,
              "because": [words], "fix": []}  # fmt: skip
    return finding.model_copy(update=update)


def _expected(promised: Finding | None) -> str:
    if promised is None or not promised.savings_ns:
        return ""
    if (most_ns := promised.at_most_ns()) is not None:
        return f"up to {about(most_ns)}"
    return estimate(promised.savings_ns, promised.savings_low_ns, promised.savings_high_ns)
