"""For whom its peers wait, step by step: by a rank's own delay, those that it meets."""

import json
from typing import Any

from advisor.store.evidence import PER_PEER

_SQL = f"""
SELECT rank, wait_by_step, {PER_PEER},
  coalesce(TRY_CAST(TRY_CAST(reason_evidence AS JSON) -> '$.with' AS INTEGER[]), [rank])
FROM lateness WHERE run = ? AND process_group IS NULL
"""
_STEPS = "SELECT DISTINCT rank, step FROM step_breakdown WHERE run = ? AND used ORDER BY rank, step"


def waited_for(con: Any, run: str) -> dict[int, dict[int, float]]:
    """By rank and used step, how long each of its peers waits for it, exposed, ns.

    The same waiting as a late rank's ``peer_wait_ns``, which is its mean over the steps. Ranks of a
    host that is late as a whole are late together.
    """
    costs: dict[int, dict[int, float]] = {}
    for rank, by_step, per_peer, together in con.execute(_SQL, [run]).fetchall():
        own = {int(step): per_peer * ns for step, ns in json.loads(by_step or "{}").items()}
        if own:
            costs |= dict.fromkeys([rank, *together], own)
    found: dict[int, dict[int, float]] = {}
    for rank, step in con.execute(_STEPS, [run]).fetchall():
        found.setdefault(rank, {})[step] = costs.get(rank, {}).get(step, 0.0)
    return found
