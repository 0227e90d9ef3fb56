"""Rings that NCCL built, from its log where one was given along with the traces."""

import json
from collections import defaultdict
from itertools import pairwise
from typing import Any


def logged_rings(con: Any, run: str) -> dict[frozenset[int], frozenset[tuple[int, int]]]:
    """Members of each communicator -> (sender, receiver) of the edges of all its rings."""
    return {
        members: frozenset(edge for ring in rings for edge in pairwise([*ring, ring[0]]))
        for members, rings in ring_orders(con, run).items()
    }


def ring_orders(con: Any, run: str) -> dict[frozenset[int], tuple[tuple[int, ...], ...]]:
    """Members of each communicator -> the ranks of its rings, in order, each ring once.

    A ring of which the log lacks a part is left out.
    """
    rows = con.execute(
        "SELECT value FROM topology WHERE run = ? AND kind = 'ring' ORDER BY name", [run]
    ).fetchall()
    found: dict[frozenset[int], dict[tuple[int, ...], None]] = defaultdict(dict)
    for (value,) in rows:
        ring = json.loads(value)
        ranks = ring.get("ranks") or []
        if ring.get("complete") and len(ranks) > 1 and all(isinstance(r, int) for r in ranks):
            found[frozenset(ranks)][tuple(ranks)] = None
    return {members: tuple(rings) for members, rings in found.items()}
