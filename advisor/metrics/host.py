"""What the host threads were doing: data loading and the like, from annotations and operators."""

from __future__ import annotations

from typing import Any

from advisor.metrics.intervals import Intervals
from advisor.metrics.tables import read

# torch.utils.data names its iterator's spans so; '## data ##' is our own recordings' range.
DATA_LOADING = r"^enumerate\(DataLoader\)#|^## data ##$|DataLoaderIter\.__next__"


def data_loading(con: Any, run: str, rank: int) -> Intervals:
    """Time in which a thread of the rank waited for the next batch."""
    found = read(
        con,
        "SELECT start_ns, start_ns + dur_ns AS end_ns FROM event WHERE run = ? AND rank = ? "
        "AND class IN ('annotation', 'cpu_op') AND device IS NULL AND start_ns IS NOT NULL "
        f"AND regexp_matches(name, '{DATA_LOADING}')",
        [run, rank],
    )
    return Intervals.of(found["start_ns"], found["end_ns"])
