"""Collectives of Python objects: told by their sizes, and what pickling takes counted with them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from advisor.metrics.collectives.redundant import REDUNDANT
from advisor.store.store import Store
from advisor.vocabulary.operations import PICKLES, UNPICKLES

_MS = 1_000_000
_CALL = """
INSERT INTO collective BY NAME SELECT 'run' AS run, ? AS rank, ? AS call_id, 1 AS step, ? AS op,
  '0' AS process_group, 2 AS group_size, ? AS bytes, ? AS dtype, ? * 1000000 AS start_ns,
  ? * 1000000 AS end_ns, 500000 AS exposed_transfer_ns, 1000000 AS wait_ns
"""
_RANGE = """
INSERT INTO event BY NAME SELECT 'run' AS run, ? AS rank, ? AS event_id, ? AS class, ? AS name,
  ? * 1000000 AS start_ns, ? * 1000000 AS dur_ns
"""
_SIZES = (("all_gather", 16, "int64", 10, 12), ("all_gather", 16, "int64", 10, 12))


def _rows(
    payload: Sequence[tuple[str, int | None, str]],
    ranges: Sequence[tuple[int, str, str, int, int]] = (),
) -> list[tuple[str, str, int, float, int]]:
    """Rows of ``redundant``: kind, operation, bytes, calls and ms of their span.

    Each rank gathers sizes from 10 to 12 ms, then from 13 to 15 ms its ``payload``; ``ranges`` are
    rank, class, name, start and duration in ms.
    """
    with Store.create() as store:
        con = store.con
        con.execute("INSERT INTO run (run, created_at, advisor_version) VALUES ('run', '', '')")
        for rank, (sizes, sent) in enumerate(zip(_SIZES, payload, strict=True)):
            con.execute(
                "INSERT INTO rank BY NAME SELECT 'run' AS run, $1 AS rank, 'host' AS timeline",
                [rank],
            )
            con.execute(
                "INSERT INTO step BY NAME SELECT 'run' AS run, $1 AS rank, 1 AS step, "
                "0 AS start_ns, 100000000 AS end_ns, true AS complete, true AS used, "
                "'annotation' AS source",
                [rank],
            )
            con.execute(_CALL, [rank, 0, *sizes])
            con.execute(_CALL, [rank, 1, *sent, 13, 15])
        for number, (rank, *what) in enumerate(ranges):
            con.execute(_RANGE, [rank, number, *what])
        con.execute(REDUNDANT, ["run"])
        found = con.execute(
            "SELECT kind, op, bytes, calls_per_step, span_ns_per_step FROM redundant ORDER BY ALL"
        ).fetchall()
    return [(kind, op, size, calls, span // _MS) for kind, op, size, calls, span in found]


@pytest.mark.parametrize(
    ("payload", "rows"),
    [
        ([("all_gather", 5000, "uint8")] * 2, [("objects", "all_gather", 5000, 1.0, 3)]),
        # of a gather to one rank the others do not say what they send
        ([("gather", 5000, "uint8"), ("gather", None, "?")], [("objects", "gather", 5000, 1.0, 3)]),
        ([("all_gather", 5000, "float32")] * 2, [("tiny", "all_gather", 16, 1.0, 0)]),
    ],
)
def test_bytes_behind_their_sizes_are_python_objects(
    payload: list[tuple[str, int | None, str]], rows: list[tuple[str, str, int, float, int]]
) -> None:
    """From asking for the sizes to the end of the bytes 5 ms, of which each call waits 1."""
    assert _rows(payload) == rows


@pytest.mark.parametrize(
    ("kind", "before"), [("annotation", ""), ("python", "torch/distributed/x.py(9): ")]
)
def test_pickling_is_counted_on_the_rank_that_does_most(kind: str, before: str) -> None:
    ranges = [
        (0, kind, before + PICKLES, 4, 6),
        (0, kind, before + UNPICKLES, 16, 7),
        (0, kind, before + UNPICKLES, 23, 8),
        (1, kind, before + PICKLES, 4, 6),
        (1, kind, before + UNPICKLES, 120, 9),  # of the next step, which is not used
    ]
    payload = [("gather", 5000, "uint8"), ("gather", None, "?")]
    assert _rows(payload, ranges) == [("objects", "gather", 5000, 1.0, 3 + 6 + 7 + 8)]
