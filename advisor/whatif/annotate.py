"""Fill the table ``whatif`` that rules use: other bucket caps, the step without a late rank, with a
slow link as fast as its peers, and without needless calls."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from advisor.store import Store
from advisor.store.columns import insert_rows
from advisor.vocabulary.phases import announce
from advisor.whatif.annotate_calls import Row, call_rows
from advisor.whatif.buckets import MIB
from advisor.whatif.cost import EXTRAPOLATION
from advisor.whatif.coverage import has_all_ranks
from advisor.whatif.extract import programs
from advisor.whatif.predict import (
    DataParallel,
    Prediction,
    data_parallel,
    predict_bucket_cap,
    predict_restored,
    predict_without_lateness,
)
from advisor.whatif.program import Program
from advisor.whatif.slow_places import hosts_of, joined_by, restored, steadied, uses_place

# The caps that are tried: torch's default, and the range people set (PEERS, STUDY B).
BUCKET_CAPS_MB: tuple[float | None, ...] = (None, 0.5, 1, 2, 5, 10, 25, 50, 100, 200)


def annotate(store: Store) -> None:
    """Fill ``whatif`` for every run that has used steps; rows of earlier calls are replaced."""
    con = store.con
    for (run,) in con.execute("SELECT run FROM run").fetchall():
        announce("replaying steps")
        steps = programs(store, run)
        whole = bool(steps) and has_all_ranks(store, run, steps)
        rows = _rows(con, run, steps, whole=whole) if steps else ()
        replayed = [_record(run, *row) for row in rows]
        con.execute("DELETE FROM whatif WHERE run = ?", [run])
        insert_rows(con, "whatif", replayed)


def _record(
    run: str, setting: str, value: str, is_current: bool, prediction: Prediction
) -> dict[str, Any]:
    return {
        "run": run,
        "setting": setting,
        "value": value,
        "is_current": is_current,
        "step_ns": round(prediction.step_ns),
        "step_low_ns": round(prediction.low_ns),
        "step_high_ns": round(prediction.high_ns),
        "measured_step_ns": round(prediction.measured_ns),
        "replayed_step_ns": round(prediction.replayed_ns),
        "extrapolates": prediction.extrapolates,
        "gain_low_ns": round(prediction.gain_low_ns),
        "gain_high_ns": round(prediction.gain_high_ns),
        "inconclusive": prediction.inconclusive,
    }


def _rows(con: Any, run: str, steps: list[Program], *, whole: bool) -> Iterator[Row]:
    """All that is replayed; of a run whose ranks are missing the slow links alone, by pairs."""
    yield from _link_rows(con, run, steps)
    if not whole:
        return
    ddp = data_parallel(steps)
    if ddp is not None:
        yield from _bucket_rows(steps, ddp)
    late = con.execute(
        "SELECT rank, max(CASE WHEN process_group IS NULL THEN reason_evidence END) FROM lateness "
        "WHERE run = ? AND systematic GROUP BY rank ORDER BY rank",
        [run],
    ).fetchall()
    units = {str(r): json.loads(found or "{}").get("with", [int(r)]) for r, found in late}
    if len(units) > 1:  # of two that are late alike, one alone on time may give nothing
        units["all"] = sorted({rank for own in units.values() for rank in own})
    for name, own in units.items():
        prediction = predict_without_lateness(steps, own)
        if prediction is not None:
            yield "without-lateness", name, False, prediction
    yield from call_rows(con, run, steps)


def _link_rows(con: Any, run: str, steps: list[Program]) -> Iterator[Row]:
    """The step with every call over a slow link as fast as over its peers, the chains behind too.

    The evidence holds the ranks on the slow place's near side, those on its far side (null: any
    other), whether only calls inside or between hosts use it, and how much of a call's time is
    excess: low, middle, high; of a slow NVLink also of calls between hosts with a ring over it.
    Of what is slow in some steps, as an unsteady network is, the mean over them tells the cost.
    ``restore-network`` is all of what lies between hosts, as fast as on other machines: it has no
    peers in the job.
    """
    hosts, joined = hosts_of(con, run), joined_by(con, run)
    slow = con.execute(
        "SELECT src, evidence, kind = 'unsteady', CASE kind WHEN 'network' THEN 'restore-network' "
        "ELSE 'restore-link' END FROM link_excess WHERE run = ? AND src IS NOT NULL ORDER BY src",
        [run],
    ).fetchall()
    for src, evidence, unsteady, setting in slow:
        found = json.loads(evidence or "{}")
        near, far = frozenset(found.get("near", ())), found.get("far")
        if "share" not in found or not any(near & step.items.keys() for step in steps):
            continue  # the recordings of the slow ranks are missing: their calls cannot be told
        low, middle, high = found["share"]
        uses = uses_place(near, far, found.get("link"), hosts)
        places = [((low, middle, high), uses)]
        if "rings_share" in found:
            places.append((tuple(found["rings_share"]), _rings_over(near, hosts)))
        service = steadied(steps, uses, joined) if unsteady else restored(places, joined)
        at_times = unsteady or bool(found.get("in_some_steps"))
        prediction = predict_restored(steps, service, comes_and_goes=at_times)
        if prediction is not None:
            yield setting, str(src), False, prediction


def _rings_over(
    near: frozenset[int], hosts: Mapping[int, str]
) -> Callable[[tuple[int, ...]], bool]:
    """Whether calls between hosts have a ring over the NVLink of one of these ranks."""

    def crosses(ranks: tuple[int, ...]) -> bool:
        on_host = Counter(hosts.get(rank, rank) for rank in ranks)
        return len(on_host) > 1 and any(
            rank in near and on_host[hosts.get(rank, rank)] > 1 for rank in ranks
        )

    return crosses


def _bucket_rows(steps: list[Program], ddp: DataParallel) -> Iterator[Row]:
    current = ddp.current_cap_mb
    caps = list(BUCKET_CAPS_MB)
    if not isinstance(current, str) and current not in caps:
        caps.append(current)
    seen, within = ddp.model.largest_bytes, round(EXTRAPOLATION * ddp.model.largest_bytes)
    if within < sum(ddp.gradient_bytes) and not any(
        cap and seen < cap * MIB <= within for cap in caps
    ):
        caps.append(within / MIB)  # the largest that the recording tells of
    for cap in caps:
        prediction = predict_bucket_cap(steps, ddp, cap)
        if prediction is not None:
            name = "default" if cap is None else f"{cap:g}"
            yield "bucket_cap_mb", name, cap == current, prediction
