"""Rings that NCCL built, from its log where one was given along with the traces."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any


def logged_rings(con: Any, run: str) -> dict[frozenset[int], frozenset[tuple[int, int]]]:
    """Members of each communicator -> (sender, receiver) of the edges of all its rings.

    A ring of which the log lacks a part is left out, and so is what it would add.
    """
    rows = con.execute(
        "SELECT value FROM topology WHERE run = ? AND kind = 'ring' ORDER BY name", [run]
    ).fetchall()
    found: dict[frozenset[int], set[tuple[int, int]]] = defaultdict(set)
    for (value,) in rows:
        ring = json.loads(value)
        ranks = ring.get("ranks") or []
        if ring.get("complete") and len(ranks) > 1 and all(isinstance(r, int) for r in ranks):
            found[frozenset(ranks)].update(pairwise([*ranks, ranks[0]]))
    return {members: frozenset(edges) for members, edges in found.items()}
