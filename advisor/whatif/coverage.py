"""Whether traces tell waiting from transfer: only where all ranks of the calls were read."""

from collections.abc import Sequence

from advisor.errors import AdvisorError
from advisor.store import Store
from advisor.whatif.program import Program

# A call or two at the edge of a recording may lack a rank; no more of all calls' time than this.
_MOST_UNMATCHED = 0.05


def require_all_ranks(store: Store, run: str, steps: Sequence[Program]) -> None:
    """Raise AdvisorError where the replay of ``steps`` would count waiting as transfer."""
    if has_all_ranks(store, run, steps):
        return
    ranks = {rank for step in steps for rank in step.items}
    (world,) = store.con.execute(
        "SELECT max(world_size) FROM rank WHERE run = ?", [run]
    ).fetchone() or (None,)
    given = f"{len(ranks)} of {world} ranks" if world else f"{len(ranks)} ranks"
    raise AdvisorError(
        f"{given} have whole steps here: waiting for the others looks like transfer",
        where=run,
        hint="needs the traces of all ranks",
    )


def has_all_ranks(store: Store, run: str, steps: Sequence[Program]) -> bool:
    """Whether every rank of the calls in ``steps`` was read, but for a few at the edges.

    A rank that is not read may have come late to a call: the time of the others in it is then at
    most its transfer, and what another setting or link would give cannot be told.
    """
    used = sorted({step.step for step in steps})
    ranks = {rank for step in steps for rank in step.items}
    row = store.con.execute(
        "SELECT sum(end_ns - start_ns) FILTER (WHERE t_is = 'upper bound'), "
        "sum(end_ns - start_ns), count(DISTINCT rank) FROM collective "
        "WHERE run = ? AND list_contains(?::INTEGER[], step)",
        [run, used],
    ).fetchone()
    unmatched, total, read = row or (0, 0, 0)
    cut = int(read or 0) - len(ranks)
    return cut <= 0 and (unmatched or 0) <= _MOST_UNMATCHED * (total or 0)
