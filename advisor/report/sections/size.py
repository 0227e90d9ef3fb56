"""How big is it really? Arithmetic and speeds, traffic against theory, memory against estimate."""

from advisor.messages import on_page
from advisor.metrics.models.speeds import Speeds
from advisor.metrics.models.theory import OpTheory, Theory, theory
from advisor.model.operator_flops import NO_SHAPES, NO_STRIDES
from advisor.model.plan_roofline import regime
from advisor.report import numbers
from advisor.report.data_table import DataTable, cell
from advisor.report.figures import Figure
from advisor.report.sections.section import Section, of_run
from advisor.report.tables import rows
from advisor.store.store import Store


def build(
    store: Store, run: str, counted: Speeds | None, *, several: bool = False
) -> Section | None:
    """The section of one run; None when nothing was measured that has a size."""
    suffix, name, title = of_run("size", "Sizes and speeds", run, several)
    expected = theory(store.con, run)
    found = (
        None if counted is None or counted.emulated else _arithmetic(counted, suffix),
        _traffic(expected, suffix),
        _memory(store, run, expected, suffix),
    )
    figures = [figure for figure in found if figure is not None]
    return Section(name, "Sizes", title, figures, figures[0].title) if figures else None


def missing(counted: Speeds) -> list[tuple[str, str]]:
    """(how to get it, what is missing) to hold the arithmetic against the device's peak."""
    work, texts = counted.work, []
    if counted.emulated:
        return [(on_page("record-real"), on_page("no-real"))]
    if calls := work.left_out[NO_SHAPES]:
        texts.append((on_page("record-shapes"), on_page("no-shapes", calls=calls)))
    if calls := work.left_out[NO_STRIDES]:
        texts.append((on_page("record-strides"), on_page("no-strides", calls=calls)))
    if not work.flops and not work.left_out:
        texts.append((on_page("record-operators"), on_page("no-operators")))
    if work.flops and counted.peak is None and counted.device != "CPU":
        how = on_page("keep-name" if counted.device is None else "add-peak")
        texts.append((how, on_page("no-peak", device=counted.device, types=[*work.by_dtype])))
    with_torch = on_page("record-with-torch")
    return [(with_torch, what) for _, what in texts] if counted.only_nsys else texts


def _arithmetic(counted: Speeds, suffix: str) -> Figure | None:
    work, peak, achieved = counted.work, counted.peak, counted.achieved_flops
    if not work.flops or not achieved or not counted.own_flops:
        return None
    per = "the recording" if counted.whole else "step"
    title = on_page(
        "arithmetic",
        work=numbers.scaled(work.flops, "FLOP"),
        per=per,
        achieved=_flops(achieved),
        share=achieved / peak.flops if peak else None,
    )
    shown = [["achieved", _flops(achieved), f"work / time of {per}"],
             ["compute speed", _flops(counted.own_flops), "work / compute time"]]  # fmt: skip
    if peak:
        shown.append(["peak", _flops(peak.flops), f"{counted.device}: {peak.source}"])
    for dtype in work.by_dtype:
        if (speed := work.speed(dtype)) is not None:
            part = (
                f", {numbers.share(speed / peak.by_dtype[dtype])} of "
                f"{_flops(peak.by_dtype[dtype])}" if peak else ""
            )  # fmt: skip
            shown.append([f"{dtype} while these ran", _flops(speed) + part, "work / own time"])
    if counted.link_gbps:
        ratio = work.flops / counted.sent_bytes
        own = regime(ratio, counted.own_flops / (counted.link_gbps * 1e9))
        shown += [
            ["sent per rank and step", numbers.traffic(counted.sent_bytes), "measured"],
            ["bandwidth", numbers.bandwidth(counted.link_gbps), "sent / transfer time"],
            ["work per byte sent", numbers.scaled(ratio, "FLOP/B"), f"{own} at its own speeds"],
        ]
        if peak:
            best = regime(ratio, peak.flops / (counted.link_gbps * 1e9))
            shown.append(["  were compute at its peak", best, "roofline"])
    shown.append([f"work per rank and {per}", numbers.scaled(work.flops, "FLOP"), "shapes"])
    least, most = min(work.by_rank.values()), max(work.by_rank.values())
    if most > 1.01 * least:
        uneven = f"{numbers.scaled(least, 'FLOP')} to {numbers.scaled(most, 'FLOP')}"
        shown.append(["  by rank", uneven, "shapes"])
    shown += [
        [f"  {name}", numbers.scaled(amount, "FLOP"), "shapes"]
        for name, amount in work.by_operator.most_common(6)
    ]
    calls = ", ".join(f"{count:,} {why}" for why, count in work.left_out.most_common())
    note = on_page("counted", left_out=calls)
    return Figure(f"arithmetic{suffix}", title, table=DataTable(["what", "value", "from"], shown),
                  note=note)  # fmt: skip


def _flops(value: float) -> str:
    return numbers.scaled(value, "FLOP/s")


def _traffic(known: Theory | None, suffix: str) -> Figure | None:
    found = [item for item in (known.ops if known else []) if item.measured_bytes is not None]
    if not found:
        return None
    total = sum(item.measured_bytes or 0.0 for item in found)
    return Figure(
        id=f"traffic{suffix}",
        title=on_page("traffic", sent_bytes=total, agreement=_agreement(found, total)),
        table=DataTable.of(
            found,
            {
                "operation": lambda item: item.op,
                "measured": lambda item: numbers.traffic(item.measured_bytes),
                "theory": lambda item: numbers.traffic(item.theory_bytes),
                "verdict": lambda item: item.verdict,
                "formula": lambda item: " + ".join(item.formulas) or "none",
                "difference": lambda item: item.explanation or "none",
            },
        ),
        note=on_page("traffic-from"),
    )


def _agreement(found: list[OpTheory], total: float) -> str:
    verdicts = {item.verdict for item in found}
    if verdicts <= {"equal"}:
        return on_page("as-theory")
    if verdicts <= {"equal", "explained"}:
        return on_page("explained")
    if "differs" not in verdicts:
        return on_page("not-predicted")
    expected = sum(item.expected_bytes for item in found)
    return on_page("times-theory", times=total / expected if expected else 0)


def _memory(store: Store, run: str, known: Theory | None, suffix: str) -> Figure | None:
    """One line: the fullest rank; the table where ranks differ."""
    found = rows(
        store,
        "SELECT rank, peak_memory_bytes AS peak, total_memory_bytes AS total, timeline FROM rank"
        " WHERE run = ? AND peak_memory_bytes > 0 ORDER BY peak DESC, rank",
        [run],
    )
    if not found:
        return None
    highest = found[0]
    title = on_page("memory", **highest)
    notes = [on_page("memory-of-host")] if any(row["timeline"] == "host" for row in found) else []
    if known is not None and known.memory_bytes is not None:
        notes.append(on_page("memory-estimate", estimate=known.memory_bytes))
    columns = {
        "rank": cell("rank"),
        "peak": cell("peak", numbers.traffic),
        "device has": cell("total", numbers.traffic),
    }
    table = DataTable.of(found[:128], columns)
    return Figure(
        f"memory{suffix}", title, table=table if len(found) > 1 else None, note=" ".join(notes)
    )
