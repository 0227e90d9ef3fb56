"""The probability that a finding's cause is real: how often such findings were right in the labs.

The labs inject known faults; calibration.json counts what was named, by rule, and of rules that no
lab had tried before (``python -m benchmarks.reliability --write``). A rule's rate is drawn towards
that of untried ones by as many cases as the rules' rates differ. Where the interval of the gain
reaches into the noise, the rate is multiplied with the part of it that lies above. A row may know
better: a column ``probability`` of the rule's SQL comes first. An option, which may give nothing,
has no probability: it accuses nobody, so that no lab counts how often it is right. Nor has a bare
loss, which is seen and is no cause. What a host does is of its program: in the labs, of marked
steps, each of which does the same. Of one pass without marks nothing tells whether others do so.
"""

from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

from advisor.engine.calibration import calibration
from advisor.engine.rule import Rule
from advisor.findings import Basis

_HALF_WIDTH = NormalDist().inv_cdf(0.975)
"""Standard deviations from the middle of a 95 % interval to its end."""
_OF_ONE_PASS = (1 + 0.5) / (1 + 1)
"""The probability that another pass does what the only one did: Jeffreys' prior, one of one."""


def judged(
    rule: Rule, row: Mapping[str, Any], floor_ns: int, *, unmarked: bool = False
) -> tuple[Basis, float | None]:
    """What is known of the cause being real, and the probability that it is, 0 to 1.

    ``floor_ns`` is the least gain that this rule's evidence can show; a row's own comes first.
    ``unmarked``: no step is marked, so that all that was recorded may be one pass.
    """
    if row.get("probability") is not None:
        return Basis.EVIDENCE, float(row["probability"])
    if row.get("savings_ns") is None:
        return Basis.RECORDED, None
    known, low = calibration(), row.get("savings_low_ns")
    basis = Basis.RULE if rule.id in known.rules else Basis.UNTRIED
    if row.get("is_option") or (low is not None and low <= 0 and not row.get("is_counted")):
        return Basis.OPTION, None
    if rule.bare_loss:
        return Basis.LOSS, None
    shown = shown_share(float(row["savings_ns"]), low, row.get("floor_ns") or floor_ns)
    recurs = _OF_ONE_PASS if unmarked and rule.category == "host" else 1.0
    return basis, known.rate(rule.id) * shown * recurs


def shown_share(middle_ns: float, low_ns: float | None, floor_ns: float) -> float:
    """The probability that a gain is above ``floor_ns``; 1 where its whole interval is.

    ``low_ns`` is the end of a 95 % interval, whose lower half is taken for a normal distribution's.
    """
    if low_ns is None or low_ns > floor_ns or middle_ns <= low_ns:
        return 1.0
    spread_ns = (middle_ns - low_ns) / _HALF_WIDTH
    return NormalDist(middle_ns, spread_ns).cdf(2 * middle_ns - floor_ns)
