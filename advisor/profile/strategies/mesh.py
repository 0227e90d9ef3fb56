"""Which ranks work together: the degrees of a strategy, checked, and one device mesh for them.

Ranks are laid out with tensor parallelism innermost (its collectives are the most frequent, so
they stay on neighbouring ranks), then sharding or experts, then replicas, pipeline outermost.
"""

from collections.abc import Sequence
from typing import Any

from torch.distributed.device_mesh import init_device_mesh

from advisor.config.workload import Workload
from advisor.profile.strategies.base import Degrees, Strategy

PIPELINE, REPLICATE, SHARD, TENSOR = "pp", "replicate", "shard", "tp"
DATA, BOTH = "dp", "replicate+shard"

_SETTING = {"pipeline": "pp", "tensor": "tp", "expert": "ep"}
_COMBINED_DEGREE = 2


def degrees(workload: Workload, parts: Sequence[Strategy]) -> tuple[Degrees, list[str]]:
    """The degrees of a strategy, and what is wrong with them (each problem names both settings).

    A kind of parallelism that stands alone spans the whole world; joined to others it spans 2 ranks
    unless the workload says otherwise. What is left is data parallelism.
    """
    kinds = [part.kind for part in parts]
    names = "+".join(part.name for part in parts)
    world = workload.world_size
    problems = []
    chosen: dict[str, int] = {}
    for kind, setting in _SETTING.items():
        asked = getattr(workload, setting)
        if kind in kinds:
            chosen[kind] = asked or (world if len(kinds) == 1 else _COMBINED_DEGREE)
        elif asked is not None and asked > 1:
            problems.append(f"{setting} {asked} and strategy {names}: no {kind} parallelism in it")
    replica = chosen.get("pipeline", 1) * chosen.get("tensor", 1)
    if world % replica:
        return Degrees(), [
            *problems,
            f"{_said(chosen)} and world_size {world}: not a divisor of it",
        ]
    data = world // replica
    expert = chosen.get("expert", 1)
    if data % expert:
        problems.append(f"ep {expert} and world_size {world}: {data} data-parallel ranks")
    if data > 1 and not {"data", "expert"} & set(kinds):
        problems.append(
            f"strategy {names} ({_said(chosen)}) and world_size {world}: {data} replicas need "
            f"data parallelism, e.g. strategy ddp+{names}"
        )
    shard, problem = _shard(workload, parts, data)
    problems += problem
    return Degrees(
        chosen.get("pipeline", 1), chosen.get("tensor", 1), data, expert, shard
    ), problems


def build(degrees: Degrees, device: str) -> dict[str, Any]:
    """The device meshes by name: pp, tp, and dp for all data-parallel ranks.

    Where those are divided (HSDP, expert parallelism with replicas) also ``replicate``, ``shard``
    and ``replicate+shard``. Only dimensions larger than one exist; a single rank has none.
    """
    inner = max(degrees.expert, degrees.shard)
    outer = degrees.data // inner
    is_divided = inner > 1 and outer > 1
    data = {REPLICATE: outer, SHARD: inner} if is_divided else {DATA: degrees.data}
    sizes = {PIPELINE: degrees.pipeline, **data, TENSOR: degrees.tensor}
    present = {name: size for name, size in sizes.items() if size > 1}
    if not present:
        return {}
    whole = init_device_mesh(device, tuple(present.values()), mesh_dim_names=tuple(present))
    meshes = {name: whole[name] for name in present}
    if is_divided:
        meshes[BOTH] = whole[REPLICATE, SHARD]
        meshes[DATA] = meshes[BOTH]._flatten(DATA)
    return meshes


def data_rank(degrees: Degrees, rank: int) -> int:
    """Position of a rank among those that train on different data (see the layout above)."""
    return rank // degrees.tensor % degrees.data


def _shard(workload: Workload, parts: Sequence[Strategy], data: int) -> tuple[int, list[str]]:
    shards = any(part.name == "hsdp" for part in parts)
    asked = workload.shard
    if not shards:
        if asked is None:
            return 1, []
        return 1, [f"shard {asked} and strategy {workload.strategy}: only hsdp takes it"]
    shard = asked or _COMBINED_DEGREE
    if data % shard or shard in {data, 1}:
        return 1, [
            f"shard {shard} and world_size {workload.world_size}: hsdp needs at least 2 replicas "
            f"of at least 2 shards among its {data} data-parallel ranks"
        ]
    return shard, []


def _said(chosen: dict[str, int]) -> str:
    return ", ".join(f"{_SETTING[kind]} {size}" for kind, size in chosen.items()) or "no degrees"
