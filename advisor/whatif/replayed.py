"""What was replayed of slow links while the run was read (table ``whatif``), for the command."""

from __future__ import annotations

from advisor.messages import CHANGES, say
from advisor.store import Store
from advisor.whatif.predict import Prediction

_RESTORED = """
SELECT setting, value, step_ns, step_low_ns, step_high_ns, measured_step_ns, replayed_step_ns,
  gain_low_ns, gain_high_ns, extrapolates, inconclusive
FROM whatif WHERE run = ? AND setting IN ('restore-link', 'restore-network')
  AND gain_low_ns IS NOT NULL ORDER BY step_ns, setting, value
"""


def restored(store: Store, run: str) -> list[tuple[str, Prediction]]:
    """The step with each slow link as fast as its peers: the change in words and its prediction."""
    rows = []
    for setting, value, step, low, high, measured, replayed, *gain in store.con.execute(
        _RESTORED, [run]
    ).fetchall():
        gain_low, gain_high, extrapolates, inconclusive = gain
        found = Prediction(
            step_ns=step,
            low_ns=low,
            high_ns=high,
            measured_ns=measured,
            replayed_ns=replayed,
            gain_low_ns=gain_low,
            gain_high_ns=gain_high,
            extrapolates=bool(extrapolates),
            inconclusive=bool(inconclusive),
        )
        rows.append((say(CHANGES, setting, {"value": value}), found))
    return rows


def latency_is_slow(store: Store, run: str) -> bool:
    """Whether a link is slow because each pass of a call takes longer, whatever its size."""
    row = store.con.execute(
        "SELECT 1 FROM link_excess WHERE run = ? "
        "AND (try_cast(evidence AS JSON) ->> '$.added_ns')::DOUBLE > 0 LIMIT 1",
        [run],
    ).fetchone()
    return row is not None
