"""NCCL's axes where they cannot be measured: the calls of the traced baseline in NCCL's own model.

The model is the one NCCL chooses by, so that no setting can beat its default here; what the table
shows is what a setting would lose or break on the named machine. Always labelled ``modelled``.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.config.hardware import machine
from advisor.config.sweep import ENVIRONMENT_PREFIX, Axis
from advisor.model.nccl.calibration import Calibration
from advisor.model.nccl.constants import constants_for
from advisor.model.nccl.filters import left_without, parse_algorithms, parse_protocols
from advisor.model.nccl.names import FUNCTIONS
from advisor.model.nccl.settings import Call, SettingCost, forces_ll128, rank_settings
from advisor.model.nccl.version import NcclVersion, parse_version
from advisor.model.topology import Topology
from advisor.model.topology_machine import topology_of

_OPS = {
    op: op.replace("_", "")
    for op in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
}


# Channels, threads and buffers are settled after the choice: src/graph/tuning.cc reads the channels
# and bandwidths of the topology search, src/graph/connect.cc applies limits to its result.
_NO_TERM = (
    "not modelled, NCCL's cost model has no term for it (its bandwidths are those of the channels "
    "that the topology search found, whatever limits are set)"
)


def calls_of(con: Any, run: str) -> list[Call]:
    """The collectives of one step of the traced run that NCCL's model covers, from rank 0 up."""
    rows = con.execute(
        "SELECT op, bytes, count(*) / (SELECT count(*) FROM step WHERE run = ? AND used AND "
        "rank = (SELECT min(rank) FROM rank WHERE run = ?)) FROM collective JOIN step "
        "USING (run, rank, step) WHERE run = ? AND used AND bytes > 0 AND "
        "rank = (SELECT min(rank) FROM rank WHERE run = ?) GROUP BY op, bytes ORDER BY op, bytes",
        [run, run, run, run],
    ).fetchall()
    return [
        Call(_OPS[op], int(size), max(1, round(count))) for op, size, count in rows if op in _OPS
    ]


def release_of(con: Any, run: str) -> NcclVersion | None:
    """The NCCL that the traced run used; None where its traces do not say."""
    (found,) = con.execute("SELECT max(nccl_version) FROM rank WHERE run = ?", [run]).fetchone()
    return parse_version(found) if found else None


@dataclass(frozen=True)
class NcclModel:
    """What NCCL's cost model is asked about: ``nodes`` machines of a kind and a release of NCCL.

    ``settings`` are the (variable, value) of the space, () for every safe one; ``left_out`` says
    of each value of the space that is not ranked why not.
    """

    machine_name: str
    nodes: int
    version: NcclVersion
    topology: Topology
    settings: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    calibration: Calibration | None = None

    @classmethod
    def of(
        cls,
        name: str,
        nodes: int,
        version: NcclVersion,
        axes: Iterable[Axis],
        calibration: Calibration | None = None,
    ) -> "NcclModel":
        """Everything checked, so that no mistake shows after the trials only. Raises AdvisorError:
        unknown machine, one without graphs, a release whose model is not known, a value that it
        refuses.
        """
        topology = topology_of(machine(name), nodes)
        constants_for(version, topology.library)
        if calibration is not None:
            calibration.check(topology.name, nodes)
        settings, left_out = [], []
        ignored = list(axes)
        without = [
            axis.variable
            for axis in ignored
            if axis.variable.startswith("NCCL_") and not axis.is_modelled
        ]
        if without:
            left_out.append(f"{', '.join(without)}: {_NO_TERM}")
        for axis in ignored:
            for value in axis.values if axis.is_modelled else ():
                if value is None:
                    continue
                if forces_ll128(axis.variable, str(value), version):
                    left_out.append(
                        f"{axis.variable}={value}: not ranked, forcing LL128 can corrupt data"
                    )
                elif at_start := _start_fails(axis.variable, str(value), version):
                    left_out.append(f"{axis.variable}={value}: {at_start}")
                else:
                    settings.append((axis.variable, str(value)))
        return cls(name, nodes, version, topology, tuple(settings), tuple(left_out), calibration)

    def rank(self, calls: Sequence[Call]) -> list[SettingCost]:
        """The settings by modelled cost of ``calls``; [] where the model covers none of them."""
        if not calls:
            return []
        return rank_settings(self.topology, self.version, calls, self.settings, self.calibration)


def _start_fails(variable: str, value: str, version: NcclVersion) -> str:
    """Why a job does not even start under a setting that leaves nothing for Broadcast; else ''.

    Such calls are not in a step: DDP sends its parameters around when it is made, others gather.
    """
    algo = parse_algorithms(value if variable == "NCCL_ALGO" else None, version)
    proto = parse_protocols(value if variable == "NCCL_PROTO" else None, version)
    dead = left_without(algo, proto, version)
    if "Broadcast" not in dead:
        return ""
    text = f"refused, {', '.join(dead)} {'fail' if len(dead) > 1 else 'fails'} with it from 2.24 on"
    text += ", and DDP broadcasts when it is made"
    plain = not set(value) & set(":^")
    kept = [function.lower() for function in FUNCTIONS if function not in dead]
    return text + (f"; name the collective: {kept[0]}:{value.lower()}" if plain and kept else "")


def trial_rows(name: str, first: int, settings: Sequence[SettingCost]) -> list[dict[str, Any]]:
    """Rows for the store's table ``trial``, origin ``modelled``: communication time per step."""
    rows = []
    for number, setting in enumerate(settings, first):
        configuration = {f"{ENVIRONMENT_PREFIX}{setting.variable}": setting.value}
        time_us = setting.time_us
        rows.append(
            {
                "run": name,
                "trial": number,
                "settings": json.dumps(configuration if setting.variable else {}),
                "is_baseline": not setting.variable,
                "outcome": "crash" if time_us is None else "ok",
                "origin": "modelled",
                "step_ns_median": None if time_us is None else round(time_us * 1e3),
            }
        )
    return rows
