"""Every sentence of verdicts and notes, by its code: rendered last, read in one sitting.

Texts are Jinja with the filters of :mod:`advisor.vocabulary.words`. Rules word their own findings
(``rules/*.yaml``); docs/style.md says how to write, and a test reads both.
"""

from __future__ import annotations

from typing import Any

from advisor.vocabulary.words import render_lines

NOTES = {
    "file-not-read": "file {{ path }} was not read: {{ reason }}",
    "file-lost-records": (
        "file {{ path }} lost records: {{ lost | counts }}{% if words %}; {{ words }}{% endif %}"
    ),
    "file-partly-read": "file {{ path }}: {{ words }}",
    "file-of-other-format": "{{ path }}: {{ words }}",
    "file": "{{ path }}: {{ words }}",
    "warm-up": "step {{ steps | ranks }} took over 1.5 times the median and counts as warm-up",
    "odd-step": (
        "step {{ step }} took {{ '%.0f' | format(times) }} times the median and is left out of all "
        "figures per step"
    ),
    "ranks-missing": (
        "{{ ranks_read }} of {{ world_size }} ranks were given, {{ missing | named_ranks }} not: "
        "what the others did is not known"
    ),
    "ranks-cut": "the recording of rank {{ ranks | ranks }} is cut or damaged",
    "events-lost": "rank {{ rank }} lost events: {{ lost | counts }}",
    "groups-not-recorded": (
        "several process groups communicate, and the recordings do not say whose a call is: such "
        "calls are not compared across ranks"
    ),
    "probe": "{{ words }}",
    "clock-fit": (
        "clocks were aligned by when ranks leave their calls: that fit is good to "
        "{{ residual_ns | ms }}, which does not prove the clocks right"
    ),
    "steps-whole-trace": (
        "no step annotations: the whole trace is taken as one step; figures are per trace, those "
        "called per step too"
    ),
    "steps-by-period": (
        "no step annotations: a repeating pattern was taken as the step: {% if step_ns %}"
        "{{ steps }} of {{ step_ns | ms }}{% else %}none complete{% endif %}, may be a micro-batch"
    ),
    "steps-by-optimizer": (
        "no step annotations: from one optimizer step to the next was taken as the step: "
        "{% if step_ns %}{{ steps }} of {{ step_ns | ms }}{% else %}none complete{% endif %}"
    ),
    "outside-steps": (
        "{{ outside_ns | ms }} of communication on rank {{ rank }} ({{ share | pct }} of it"
        "{% if stray_calls %}, {{ stray_calls }} of {{ calls }} calls{% endif %}) belong to no "
        "step and are in no figure per step: launched outside all steps, or before the recording"
    ),
    "ranks-not-read": (
        "{{ missing | some_ranks }} {{ 'was' if missing | length == 1 else 'were' }} not read "
        "({{ ranks_read }} of {{ world_size }} {{ 'was' if ranks_read == 1 else 'were' }}): "
        "waiting for {{ 'it' if missing | length == 1 else 'them' }} counts as communication"
    ),
}
"""What is said of the inputs and of the steps, by ``Note.code``."""


def say(texts: dict[str, str], code: str, values: dict[str, Any]) -> str:
    """The text of ``code`` with its values. Raises KeyError for a code without words."""
    return render_lines(texts[code], values)
