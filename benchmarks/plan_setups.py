"""The plan against published runs: MFU, memory and the rank of the published layout.

    python -m benchmarks.plan_setups          what plan says of each row of plan_setups.yaml
    python -m benchmarks.plan_setups --fit    the numbers for advisor/model/plan_speed.py

Rows marked `fit` are fitted; the others are held out.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from math import log
from pathlib import Path
from typing import Any

from advisor.config.hardware import machine
from advisor.config.loader import read_plain
from advisor.model.plan import Plan, make_plan
from advisor.model.plan_cluster import Cluster
from advisor.model.plan_communication import Case
from advisor.model.plan_estimate import OVERHEAD_BYTES, Estimate, estimate, stage_activations
from advisor.model.plan_layout import Layout, Settings
from advisor.model.plan_speed import Speed, speed_of
from advisor.model.presets import preset
from advisor.model.transformer import TransformerShape

FILE = Path(__file__).with_name("plan_setups.yaml")


@cache
def document() -> dict[str, Any]:
    """The whole of plan_setups.yaml."""
    loaded: dict[str, Any] = read_plain(FILE)
    return loaded


def shape_of(name: str) -> TransformerShape:
    """The shape of a row's model, from the file or a preset."""
    shapes = document()["shapes"]
    return TransformerShape(name=name, **shapes[name]) if name in shapes else preset(name)


@cache
def cluster_of(hardware: str, gpus: int) -> Cluster:
    """The row's machines, with the NCCL of its time."""
    return Cluster(machine(hardware), gpus, (2, 18, 5))


def of_its_software(setup: dict[str, Any]) -> dict[str, Any]:
    """What the row's software had: attention, the loss's memory, and the gradients' bytes."""
    return {
        "unfused_attention": setup["source"] in document()["unfused_attention"]
        or setup.get("unfused_attention", False),
        "fused_loss": setup["source"] not in document()["torch_loss"],
        "fused_mlp": setup["source"] in document()["fused_mlp"],
        "overlap_tensor": setup["source"] in document()["overlap_tensor"],
        "overlap_chunks": setup["source"] in document()["overlap_chunks"],
        "transformer_engine": has_te(setup),
        "communication_bytes": setup.get("gradient_bytes", 0),
        "precision": "remainders" if setup["source"] in document()["remainders"] else "mixed",
    }


def has_te(setup: dict[str, Any]) -> bool:
    """Whether the row's software had Transformer Engine's kernels for Hopper."""
    return setup["source"] in document()["transformer_engine"]


def case_of(setup: dict[str, Any], speed: Speed | None = None) -> Case:
    """The published layout as the plan takes it."""
    cluster = cluster_of(setup["hardware"], setup["gpus"])
    tensor, pipeline, context = setup.get("tp", 1), setup.get("pp", 1), setup.get("cp", 1)
    data = setup["gpus"] // (tensor * pipeline * context)
    layout = Layout(
        setup["strategy"] if data * context > 1 else "single",
        data,
        tensor,
        pipeline,
        micro_batch=setup["micro_batch"],
        accumulation=setup["batch"] // (data * setup["micro_batch"]),
        interleave=setup.get("interleave", 1),
        context=context,
    )
    peak = cluster.device.peak_flops("bf16")
    assert peak is not None
    return Case(
        shape_of(setup["model"]),
        cluster,
        layout,
        Settings(recompute=setup["recompute"], **of_its_software(setup)),
        sequence=setup["sequence"],
        speed=speed or speed_of(cluster.device, transformer_engine=has_te(setup)),
        peak_flops=peak,
    )


def planned(setup: dict[str, Any], speed: Speed | None = None) -> Estimate:
    """What the plan says of the published layout."""
    return estimate(case_of(setup, speed))


def ratio(setup: dict[str, Any], speed: Speed | None = None) -> float:
    """Planned over published MFU."""
    return float(planned(setup, speed).mfu / setup["mfu"])


def rank_of_layout(setup: dict[str, Any]) -> int | None:
    """Where the published layout stands among the plan's rows, 1 the first; None: not among them.

    A row is the published one if its tensor and pipeline degrees agree.
    """
    for place, row in enumerate(_plan_of(_place(setup)).rows, 1):
        layout = row.estimate.layout
        if (layout.tensor, layout.pipeline) == (setup.get("tp", 1), setup.get("pp", 1)):
            return place
    return None


def is_tied(setup: dict[str, Any]) -> bool:
    """Whether the plan says that the published degrees are as fast as the recommended."""
    return (setup.get("tp", 1), setup.get("pp", 1)) in _plan_of(_place(setup)).tied


def _place(setup: dict[str, Any]) -> int:
    return [*document()["setups"], *document()["layouts"]].index(setup)


@cache
def _plan_of(place_in_file: int) -> Plan:
    setup = [*document()["setups"], *document()["layouts"]][place_in_file]
    return make_plan(
        shape_of(setup["model"]),
        setup["hardware"],
        setup["gpus"],
        nccl=(2, 18, 5),
        global_batch=setup["batch"],
        sequence=setup["sequence"],
        settings=Settings(**of_its_software(setup)),
    )


def among_first(setups: Sequence[dict[str, Any]], rows: int = 3, *, ties: bool = False) -> float:
    """Share of published layouts that stand among the plan's first rows, or are tied with them.

    A study that runs one layout on several numbers of GPUs counts once; what was tried beside the
    published layout does not.
    """
    found: dict[tuple[Any, ...], list[bool]] = {}
    for setup in setups:
        if setup.get("ablation"):
            continue
        degrees = (setup.get("tp", 1), setup.get("pp", 1))
        study = tuple(setup[key] for key in ("source", "model", "sequence", "hardware"))
        rank = rank_of_layout(setup)
        found.setdefault((*study, *degrees), []).append(
            (rank is not None and rank <= rows) or (ties and is_tied(setup))
        )
    return sum(sum(each) / len(each) for each in found.values()) / len(found)


def fit(setups: Sequence[dict[str, Any]]) -> Speed:
    """Least mean |log ratio|, by steps along each number that halve until they are small."""
    found, steps = [0.6, 0.5, 200.0], [0.15, 0.15, 80.0]

    def cost(numbers: Sequence[float]) -> float:
        speed = Speed(*numbers)
        return sum(abs(log(ratio(setup, speed))) for setup in setups) / len(setups)

    least = cost(found)
    while steps[0] > 0.003:
        better = False
        for place in range(3):
            for sign in (1, -1):
                tried = list(found)
                tried[place] += sign * steps[place]
                if min(tried[:2]) > 0.1 and tried[2] >= 0 and cost(tried) < least:
                    found, least, better = tried, cost(tried), True
        if not better:
            steps = [step / 2 for step in steps]
    return Speed(*found, rows=len(setups))


def memory_rows() -> list[dict[str, Any]]:
    """Rows with a measured peak: those of `memory`, and runs that say what the GPU's held."""
    of_runs = [
        {**setup, "measured_gib": setup["device_gib"], "figure": "device"}
        for setup in document()["setups"]
        if "device_gib" in setup
    ]
    return [*document()["memory"], *of_runs]


def memory_bytes(setup: dict[str, Any]) -> float:
    """What the plan says of the row's figure: allocated, reserved (torch), or of the device.

    `stage: last` is measured on the last rank, the others on the rank that needs most.
    """
    found = planned(setup)
    if setup.get("stage") == "last":
        last = found.activation_bytes - stage_activations(case_of(setup))[-1]
        found = replace(found, memory_bytes=found.memory_bytes - last)
    return {
        "allocated": found.allocated_bytes,
        "reserved": found.reserved_bytes,
        "device": found.reserved_bytes + OVERHEAD_BYTES,
    }[setup.get("figure", "reserved")]


def memory_ratio(setup: dict[str, Any]) -> float:
    """Planned over measured bytes of the figure that was measured."""
    return memory_bytes(setup) / (setup["measured_gib"] * 2**30)


def within(setups: Sequence[dict[str, Any]]) -> float:
    """Share of rows whose MFU comes out within 15 % of the published."""
    return sum(0.85 <= ratio(setup) <= 1.15 for setup in setups) / len(setups)


def main() -> None:
    """Print every row, or the fit."""
    setups = document()["setups"]
    if "--fit" in sys.argv:
        for kind, kernels in (("a100", False), ("h100", False), ("h100", True)):
            some = [s for s in setups if kind in s["hardware"] and has_te(s) is kernels]
            print(kind, "transformer_engine" * kernels, fit([s for s in some if s["fit"]]))
        return
    for setup in setups:
        found = planned(setup)
        print(
            f"{setup['model']:12}{setup['gpus']:6} x {setup['hardware']:18}"
            f"{setup['sequence']:6} {'fit ' if setup['fit'] else 'held'} {setup['mfu']:.3f} "
            f"{found.mfu:.3f} {found.mfu / setup['mfu']:.2f} "
            f"{found.memory_bytes / found.capacity_bytes:.2f}"
        )
    last = [setup for setup in setups if setup["source"] in document()["found_last"]]
    last = [setup for setup in last if not setup["fit"]]
    held = [setup for setup in setups if not setup["fit"] and setup not in last]
    for name, some in (("held out", held), ("found last", last), ("all", setups)):
        piped = [setup for setup in some if setup.get("pp", 1) > 1]
        print(
            f"{name}: {within(some):.0%} of {len(some)} within 15 %, "
            f"{within(piped):.0%} of {len(piped)} pipelines"
        )
    rows = memory_rows()
    for setup in rows:
        print(
            f"{setup['model']:12}{setup['gpus']:6} {case_of(setup).layout.strategy:15}"
            f"{setup['sequence']:7} {setup.get('figure', 'reserved'):9} "
            f"{setup['measured_gib']:.2f} GiB {memory_bytes(setup) / 2**30:.2f} "
            f"{memory_ratio(setup):.2f}"
        )
    near = sum(0.9 <= memory_ratio(setup) <= 1.1 for setup in rows)
    print(f"{near} of {len(rows)} measured peaks of memory within 10 %")
    fits = sum(planned(setup).fits for setup in setups)
    print(f"{fits} of {len(setups)} fit")
    layouts = document()["layouts"]
    for name, rows in (("held out", held), ("in FP8", layouts), ("found last", last)):
        piped = [setup for setup in rows if setup.get("pp", 1) > 1]
        print(
            f"published degrees, {name}: {among_first(rows):.0%} within the first three rows "
            f"({among_first(piped):.0%} of pipelines), {among_first(rows, ties=True):.0%} there or "
            f"said to be as fast ({among_first(piped, ties=True):.0%})"
        )


if __name__ == "__main__":
    main()
