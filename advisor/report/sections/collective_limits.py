"""What a collective is held against: its fitted curve, and what the hardware gives."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.config.hardware import find_device
from advisor.messages import on_page
from advisor.report.figures import CallGroup, Fit
from advisor.report.tables import rows
from advisor.store.store import Store
from advisor.vocabulary.bandwidth import bus_factor
from advisor.vocabulary.words import significant

MISSES = 2.0
"""From this factor between a size's median and the curve on, the curve is called a rough one."""


def curve_words(fit: Fit, groups: Sequence[CallGroup] = ()) -> str:
    """α, β and how far the curve is more than a guess; ``groups`` are the points it is drawn by."""
    off = [
        max(group.busbw_gbps / drawn, drawn / group.busbw_gbps)
        for group in groups
        if group.busbw_gbps > 0 and (drawn := fit.busbw_gbps(group.size_bytes)) > 0
    ]
    worst = max(off, default=1.0)
    return on_page(
        "curve",
        alpha_ns=fit.alpha_ns,
        beta=significant(fit.beta_ns_per_byte),
        misses=worst if worst >= MISSES else None,
    )


def fitted(store: Store, run: str, op: str, size: int | None) -> Fit | None:
    """The curve fitted to ``op`` over ``size`` ranks, traced calls first; None without."""
    found = rows(
        store,
        "SELECT * FROM alpha_beta WHERE run = ? AND op = ? AND group_size = ?"
        " AND alpha_ns IS NOT NULL AND beta_ns_per_byte > 0 AND k IS NOT NULL"
        " AND m IS NOT NULL AND sizes > 1 ORDER BY origin = 'trace' DESC, samples DESC LIMIT 1",
        [run, op, size],
    )
    factor = bus_factor(op, size)
    if not found or factor is None:
        return None
    row = found[0]
    return Fit(
        row["alpha_ns"],
        row["beta_ns_per_byte"],
        row["k"],
        row["m"],
        factor,
        row["n_star_bytes"],
        row["largest_bytes"] or 0,
    )


def ceiling_of(store: Store, run: str, op: str, size: int | None) -> tuple[float | None, str]:
    """What the hardware gives: measured by nccl-tests or a probe, else the device's links.

    The data sheet's figure counts only inside one host: no trace names the network's cards.
    """
    found = rows(
        store,
        "SELECT max(busbw_gbps) AS best, any_value(tool) AS tool FROM bench"
        " WHERE run = ? AND op = ? AND ranks = ?",
        [run, op, size],
    )
    if found and found[0]["best"]:
        return float(found[0]["best"]), on_page("best-in", tool=found[0]["tool"])
    devices = rows(
        store,
        "SELECT DISTINCT device_name, host FROM rank WHERE run = ? AND device_name IS NOT NULL",
        [run],
    )
    if len(devices) == 1 and devices[0]["host"] is not None:
        device = find_device(devices[0]["device_name"])
        if device is not None and device.link_gbps:
            return device.link_gbps, on_page("data-sheet", limit_by="links", device=device.name)
    return None, ""
