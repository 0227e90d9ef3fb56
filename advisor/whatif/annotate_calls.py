"""Replays of what rules on needless calls advise: leave calls out, send fewer of them, or less."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from advisor.metrics.collectives.redundant import TINY_BYTES
from advisor.whatif.cost import ServiceModel
from advisor.whatif.predict import Change, Prediction, predict, service_models
from advisor.whatif.program import Program
from advisor.whatif.removed import with_half_the_bytes, without_calls
from advisor.whatif.sharded import (
    GATHER,
    SCATTER,
    prefetched,
    scatters,
    with_wrapping,
    without_resharding,
)

# Calls that are exposed for less than this share of the step are not worth a replay.
_LEAST_SHARE = 0.005

Row = tuple[str, str, bool, Prediction]


def call_rows(con: Any, run: str, steps: Sequence[Program]) -> Iterator[Row]:
    """(setting, value, is_current, prediction) of each change that the run gives reason for.

    ``without-calls``: KIND OP GROUP as in ``redundant``; ``gradient-sync`` and ``gradient-bits``:
    OP GROUP of the gradients; ``reshard_after_forward``: false; where a CPU's calls stop their
    rank (a device's own order of launches says more than a replay) ``prefetch``: units ahead,
    ``gathers``: of each unit per step, and ``wrapping``: neighbouring units that become one.
    """
    least = _LEAST_SHARE * max(step.measured_ns for step in steps)
    for values, calls in _needless(con, run, least):
        prediction = _without(steps, calls)
        for value in values:
            yield from _named("without-calls", value, prediction)
    for values, calls in _early_syncs(con, run, least):
        prediction = _without(steps, calls)
        for value in values:
            yield from _named("gradient-sync", value, prediction)
    if _sixteen_bits(con, run):
        yield from _narrow(con, run, steps, least)
    if _regathers(con, run, least):
        yield from _named("reshard_after_forward", "false", predict(steps, without_resharding))
    if steps[0].timeline == "host" and _exposed_gathers(con, run, least):
        both = ("forward", "backward")
        yield from _named("prefetch", "1", predict(steps, lambda p: prefetched(p, both, 1)))
        repeated = _repeated_gathers(con, run)
        if repeated:
            yield from _named("gathers", "1", _without(steps, repeated))
        yield from _coarser(steps)


def _without(steps: Sequence[Program], calls: frozenset[int]) -> Prediction | None:
    return predict(steps, lambda program: without_calls(program, calls))


def _named(setting: str, value: str, prediction: Prediction | None) -> Iterator[Row]:
    if prediction is not None:
        yield setting, value, False, prediction


_KEPT = f"AND bytes > {TINY_BYTES} AND coalesce(phase NOT IN ('backward', 'optimizer'), true)"
_NEEDLESS = {
    "barrier": "",
    "tiny": f"AND bytes <= {TINY_BYTES} AND NOT (op = 'broadcast' AND phase = 'forward')",
    "buffers": "AND phase = 'forward'",
    "gathered": _KEPT,
    "shown": _KEPT,
}


def _needless(con: Any, run: str, least_ns: float) -> list[tuple[list[str], frozenset[int]]]:
    """Calls of the kinds above, by kind, operation and the groups of one dimension."""
    kinds = con.execute(
        "SELECT kind, op, process_group FROM redundant WHERE run = ? "
        f"AND kind IN ({', '.join(repr(kind) for kind in _NEEDLESS)}) GROUP BY ALL "
        "HAVING sum(exposed_ns_per_step) + sum(coalesce(wait_ns_per_step, 0)) > ? ORDER BY ALL",
        [run, least_ns],
    ).fetchall()
    return [
        (
            [_value(f"{kind} {op}", group) for group in groups],
            _calls_in(con, run, op, groups, _NEEDLESS[kind]),
        )
        for (kind, op), groups in _by_dimension(con, run, [(row[:2], row[2]) for row in kinds])
    ]


def _value(what: str, group: str | None) -> str:
    return f"{what} {group or ''}".strip()


def _by_dimension(
    con: Any, run: str, found: Sequence[tuple[tuple[Any, ...], str | None]]
) -> list[tuple[tuple[Any, ...], list[str | None]]]:
    """What is alike in the groups of one dimension of a mesh, with those groups.

    What one line of a script asks for runs in all of them: changed in one only, its ranks wait for
    the others.
    """
    if len(found) < 2:
        return [(what, [group]) for what, group in found]
    ranks = {
        group: frozenset(members)
        for group, members in con.execute(
            "SELECT process_group, list(DISTINCT rank) FROM collective WHERE run = ? GROUP BY ALL",
            [run],
        ).fetchall()
    }
    result: list[tuple[tuple[Any, ...], list[str | None]]] = []
    for what, group in found:
        own = ranks.get(group, frozenset())
        for other, groups in result:
            members = [ranks.get(one, frozenset()) for one in groups]
            if other == what and own and all(len(m) == len(own) and not m & own for m in members):
                groups.append(group)
                break
        else:
            result.append((what, [group]))
    return result


def _early_syncs(con: Any, run: str, least_ns: float) -> list[tuple[list[str], frozenset[int]]]:
    """The reductions of all micro-batches but the last, where each has its own; with hybrid
    sharding one setting leaves out those of shards and those over replicas."""
    repeated = con.execute(
        "SELECT op, median(syncs), process_group FROM gradient_sync WHERE run = ? "
        "GROUP BY op, process_group HAVING min(syncs) = max(syncs) AND median(syncs) >= 2 "
        "AND median(exposed_ns) > ? ORDER BY ALL",
        [run, least_ns],
    ).fetchall()
    values: dict[int, list[str]] = defaultdict(list)
    calls: dict[int, frozenset[int]] = defaultdict(frozenset)
    for (op, syncs), groups in _by_dimension(con, run, [(row[:2], row[2]) for row in repeated]):
        of_gradients = (
            "AND call_id IN (SELECT call_id FROM param_bucket b WHERE b.run = collective.run "
            "AND b.rank = collective.rank AND early)"
        )
        calls[syncs] |= _calls_in(con, run, op, groups, of_gradients)
        values[syncs] += [_value(op, group) for group in groups]
    return [(values[syncs], calls[syncs]) for syncs in values]


def _narrow(con: Any, run: str, steps: Sequence[Program], least_ns: float) -> Iterator[Row]:
    """Gradients, parameters, and what experts exchange, that travel in 32 bits, sent in 16."""
    wide_calls = (
        "dtype IN ('float32', 'float') AND (op = 'all_to_all' OR call_id IN "
        "(SELECT call_id FROM param_bucket b WHERE b.run = collective.run) "
        f"OR op = 'all_gather' AND bytes >= {_LEAST_PARAMETERS} AND process_group IN ("
        "SELECT process_group FROM collective s SEMI JOIN param_bucket USING (run, rank, call_id) "
        "WHERE s.run = collective.run AND s.op = 'reduce_scatter'))"
    )
    wide = con.execute(
        "SELECT op, process_group, sum(coalesce(exposed_transfer_ns, 0)) "
        f"/ count(DISTINCT (rank, step)) > ? FROM collective WHERE run = ? AND {wide_calls} "
        "GROUP BY ALL ORDER BY ALL",
        [least_ns, run],
    ).fetchall()
    exposed = {(op, group) for op, group, is_exposed in wide if is_exposed}
    models = service_models(steps) if exposed else {}
    hybrid = {op for op, _, _ in wide} >= _HYBRID
    values: dict[str, list[str]] = defaultdict(list)
    halved: dict[str, dict[int, ServiceModel]] = defaultdict(dict)
    for (op,), groups in _by_dimension(con, run, [(row[:1], row[1]) for row in wide]):
        own = [_value(f"16 {op}", group) for group in groups]
        what = "" if hybrid and op in _HYBRID else own[0]
        if what and not exposed & {(op, group) for group in groups}:
            continue
        calls = _calls_in(con, run, op, groups, f"AND {wide_calls}")
        sizes = {len(step.calls[key].ranks) for step in steps for key in calls & step.calls.keys()}
        model = models.get((op, sizes.pop())) if len(sizes) == 1 else None
        if model is not None:
            values[what] += own
            halved[what] |= dict.fromkeys(calls, model)
    for what, by_call in halved.items():
        prediction = predict(steps, partial(with_half_the_bytes, models=by_call))
        yield from (row for one in values[what] for row in _named("gradient-bits", one, prediction))


def _coarser(steps: Sequence[Program]) -> Iterator[Row]:
    """Neighbouring units of sharded parameters as one, where latency is much of their calls."""
    models = {key: model for key, model in service_models(steps).items() if key[0] in _SHARDED}
    count = min(len(scatters(step)) for step in steps)
    if len(models) != len(_SHARDED) or not any(map(_mostly_latency, models.values())):
        return
    units = 2
    while 2 * units <= count:  # at least two are left
        prediction = predict(
            steps,
            _wrapped(units, models),
            extremes=[(_wrapped(units, _shifted(models, sign)), None) for sign in (-1, 1)],
            extrapolates=any(
                m.extrapolates(round(units * m.typical_bytes)) for m in models.values()
            ),
            identified=all(model.identified for model in models.values()),
        )
        yield from _named("wrapping", str(units), prediction)
        units *= 2


_SHARDED = (GATHER, SCATTER)
# What one setting of hybrid sharding is about: shards of gradients, and their sums over replicas.
_HYBRID = {SCATTER, "all_reduce"}
# Statistics of a layer (SyncBatchNorm) are smaller, those of a layer's parameters are not.
_LEAST_PARAMETERS = 1_000_000
# From here on latency is more of a call than the tenth that bandwidth-bound calls have.
_LATENCY_SHARE = 0.1

Models = dict[tuple[str, int], ServiceModel]


def _mostly_latency(model: ServiceModel) -> bool:
    return model.a_ns > _LATENCY_SHARE * model.service_ns(round(model.typical_bytes))


def _shifted(models: Models, sign: int) -> Models:
    """The same calls explained by a latency that is one sigma smaller (-1) or larger (1)."""
    return {key: m.with_latency(m.a_ns + sign * m.a_sigma_ns) for key, m in models.items()}


def _wrapped(units: int, models: Models) -> Change:
    return lambda program: with_wrapping(program, units, models)


def _sixteen_bits(con: Any, run: str) -> bool:
    """Whether the job computes in 16 bits, as its recording says or its calls show."""
    row = con.execute(
        "SELECT 1 FROM rank WHERE run = $1 AND try_cast(metadata AS JSON) "
        "->> '$.advisor.workload.precision' IN ('bf16', 'fp16') UNION ALL "
        "SELECT 1 FROM collective WHERE run = $1 "
        "AND dtype IN ('bfloat16', 'float16', 'half', 'bf16') UNION ALL "
        "SELECT 1 FROM rank_content WHERE run = $1 AND narrow_share > 0.5 LIMIT 1",
        [run],
    ).fetchone()
    return row is not None


def _regathers(con: Any, run: str, least_ns: float) -> bool:
    row = con.execute(
        "SELECT coalesce(sum(exposed_ns_per_step), 0) FROM redundant "
        "WHERE run = ? AND kind = 'repeated-gather'",
        [run],
    ).fetchone()
    return row is not None and row[0] > least_ns


def _exposed_gathers(con: Any, run: str, least_ns: float) -> bool:
    """Whether the gathers of one group are exposed; those of several wait for one another."""
    groups = con.execute(
        "SELECT sum(exposed_transfer_ns) / count(DISTINCT (rank, step)) FROM collective "
        "WHERE run = ? AND op = 'all_gather' AND phase IN ('forward', 'backward') "
        "GROUP BY process_group",
        [run],
    ).fetchall()
    return len(groups) == 1 and (groups[0][0] or 0) > least_ns


def _repeated_gathers(con: Any, run: str) -> frozenset[int]:
    """All gathers of a unit in a step but its first, where micro-batches repeat them (FSDP2)."""
    rows = con.execute(
        "WITH accumulates AS (SELECT process_group FROM gradient_sync WHERE run = $1 "
        "  GROUP BY ALL HAVING median(micro_batches) >= 2 AND median(gathers) >= 3), "
        "unit AS (SELECT call_id, row_number() OVER w AS place, "
        "    count(module) OVER (PARTITION BY rank, step) AS named "
        "  FROM collective SEMI JOIN accumulates USING (process_group) WHERE run = $1 "
        "    AND op = 'all_gather' AND step IS NOT NULL "
        "  WINDOW w AS (PARTITION BY rank, step, module ORDER BY start_ns)) "
        "SELECT DISTINCT call_id FROM unit WHERE place > 1 AND named > 0",
        [run],
    ).fetchall()
    return frozenset(int(call) for (call,) in rows)


def _calls_in(
    con: Any, run: str, op: str, groups: Sequence[str | None], condition: str
) -> frozenset[int]:
    """The calls of an operation in these groups that a condition (SQL from AND on) holds for."""
    found: set[int] = set()
    for group in groups:
        found |= _calls(
            con,
            f"op = ? AND process_group IS NOT DISTINCT FROM ? {condition}",
            [run, op, group],
        )
    return frozenset(found)


def _calls(con: Any, condition: str, values: Sequence[Any]) -> frozenset[int]:
    rows = con.execute(
        f"SELECT DISTINCT call_id FROM collective WHERE run = ? AND {condition}", values
    )
    return frozenset(int(call) for (call,) in rows.fetchall())
