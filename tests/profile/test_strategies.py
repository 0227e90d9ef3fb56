"""Every strategy trains as one device does, and moves the bytes that theory says.

Losses: plain SGD with a large step, because its updates are proportional to the gradient: one that
is off by a factor (a missing mean over ranks, a doubled tied weight) changes the next loss, which
Adam would hide. Traffic: the last of the steps is recorded, and the bytes of its collectives stand
beside the closed formulas.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

pytest.importorskip("torch")

from advisor.config.workload import Workload
from advisor.errors import AdvisorError
from advisor.ingest import ingest
from advisor.metrics.load import load_run
from advisor.metrics.models.theory import theory
from advisor.metrics.write import write_collectives, write_ranks
from advisor.profile import strategies
from advisor.store import Store
from tests.support.marks import long

GLOBAL_BATCH = 16
TOLERANCE = 2e-5  # float32, sums in another order; losses are about 4
HALF_PRECISION_GRADIENTS = 5e-4  # 8 or 11 bits of mantissa in the gradients alone
LOW_RANK_GRADIENTS = 2e-2  # PowerSGD leaves part of a gradient to later steps
HALF_PRECISION = 2e-2  # bf16 matrix products: 8 bits of mantissa in every one

GPT2 = {"family": "gpt2", "hidden": 64, "vocabulary": 64}
LLAMA = {"family": "llama", "vocabulary": 64}
MOE = {"family": "moe", "vocabulary": 64}

ON_FOUR_RANKS = {
    "ddp": {},
    "zero1": {},
    "ddp-fp16": {},
    "ddp-bf16": {},
    "ddp-powersgd": {},
    "fsdp2": {},
    "fsdp2-zero2": {},
    "fsdp1-full": {},
    "fsdp1-grad": {},
    "hsdp": {},
    "tp": {},
    "tp-sp": {},
    "pp": {},
    "pp-gpipe": {},
    "pp-interleaved+ddp": {},
    "pp+fsdp2": {},
    "dp+tp": {},
    "fsdp2+tp-sp": {},
}
COMBINED = {
    "pp+ddp": {},
    "pp-gpipe+zero1": {},
    "pp-interleaved+fsdp2-zero2": {},
    "pp+tp": {},
}
OPTIONS = {
    "ddp small buckets": {"strategy": "ddp", "bucket_cap_mb": 0.02},
    "powersgd small buckets": {"strategy": "ddp-powersgd", "bucket_cap_mb": 0.02},
    "ddp sync every micro-batch": {"strategy": "ddp", "sync_every_micro_batch": True},
    "ddp options": {
        "strategy": "ddp", "static_graph": True, "sync_every_micro_batch": True,
        "gradient_as_bucket_view": True, "activation_checkpointing": "full",
    },
    "fsdp2 sync every micro-batch": {"strategy": "fsdp2", "sync_every_micro_batch": True},
    "fsdp2 pairs": {"strategy": "fsdp2", "wrap_layers": 2, "prefetch_forward": 1},
    "fsdp2 one unit": {"strategy": "fsdp2", "wrap_layers": 0},
    "fsdp2 checkpointed": {
        "strategy": "fsdp2", "activation_checkpointing": "full", "prefetch_backward": 2,
    },
    "fsdp1 every micro-batch": {"strategy": "fsdp1-full", "sync_every_micro_batch": True},
    "pp uneven": {"strategy": "pp+ddp", "stage_layers": [1, 3]},
    "tp checkpointed": {"strategy": "tp", "activation_checkpointing": "full"},
    "tp-sp checkpointed": {"strategy": "tp-sp+pp", "activation_checkpointing": "full"},
    "fsdp1-grad every micro-batch": {"strategy": "fsdp1-grad", "sync_every_micro_batch": True},
    "fsdp2 one unit in a pipeline": {"strategy": "pp-gpipe+fsdp2", "wrap_layers": 0},
}  # fmt: skip
OF_LLAMA = {
    "llama dp+tp-sp": {"strategy": "dp+tp-sp", "model": LLAMA},
    "llama pp+fsdp2": {"strategy": "pp+fsdp2", "model": LLAMA},
}
OF_EXPERTS = {
    "moe ep": {"strategy": "ep", "model": MOE},
    "moe ep+fsdp2": {"strategy": "ep+fsdp2", "ep": 2, "model": MOE},
}
MORE_OF_EXPERTS = {
    "moe ddp": {"strategy": "ddp", "model": MOE},
    "moe pp": {"strategy": "pp", "model": MOE},
    "moe ep with replicas": {"strategy": "ep", "ep": 2, "model": MOE},
}
IN_BF16 = {
    "ddp bf16": {"strategy": "ddp", "precision": "bf16"},
    "fsdp2 bf16": {"strategy": "fsdp2", "precision": "bf16"},
    "fsdp1 bf16": {"strategy": "fsdp1-full", "precision": "bf16"},
    "tp bf16": {"strategy": "tp", "precision": "bf16"},
    "tp-sp bf16": {"strategy": "tp-sp", "precision": "bf16"},
    "pp bf16": {"strategy": "pp", "precision": "bf16"},
    "hsdp bf16": {"strategy": "hsdp", "precision": "bf16", "reduce_precision": "bf16"},
    "powersgd bf16": {"strategy": "ddp-powersgd", "precision": "bf16"},
}
ON_EIGHT_RANKS = {"pp+ddp+tp": {}, "pp+fsdp2+tp-sp": {}, "hsdp+tp": {}}
TOGETHER: dict[str, tuple[int, dict[str, dict[str, Any]]]] = {
    "strategies": (4, ON_FOUR_RANKS | OF_EXPERTS),
    "options": (4, COMBINED | OPTIONS | OF_LLAMA | MORE_OF_EXPERTS | IN_BF16),
    "eight": (8, ON_EIGHT_RANKS),
}
"""What is trained at once: the number of ranks, and the cases."""
NAMES = [*TOGETHER["strategies"][1], *long(*TOGETHER["options"][1], *ON_EIGHT_RANKS)]


def case(name: str, world_size: int, **settings: Any) -> dict[str, Any]:
    """A workload that trains on the same global batch whatever its strategy."""
    return {
        "name": file_name(name),
        "model": GPT2,
        "world_size": world_size,
        "micro_batch": micro_batch(settings["strategy"], world_size),
        "global_batch": GLOBAL_BATCH,
        "sequence_length": 16,
        "optimizer": "sgd",
        "learning_rate": 0.2,
        # Three in all: the profiler has a step of its own before those that it records.
        "warmup_steps": 1,
        "timed_steps": 0,
        "steps": 1,
        **settings,
    }


def micro_batch(strategy: str, ranks: int) -> int:
    """Several micro-batches for each rank, with tensor parallelism two (for each pipeline stage).

    Each brings hundreds of its calls, and where four ranks share two cores they take the most time.
    """
    if "tp" not in strategy:
        return 2
    degree = 2 if "+" in strategy else ranks
    return GLOBAL_BATCH * degree // (2 * ranks)


def file_name(name: str) -> str:
    """A case's name as a workload's."""
    return name.replace(" ", "_").replace("+", ".")


def train(cases: list[dict[str, Any]], ranks: int, folder: Path) -> dict[str, Any]:
    """Results by case name; the traces of each lie in ``folder/traces/CASE``."""
    folder.mkdir(exist_ok=True)
    inputs, outputs = folder / "cases.json", folder / "losses.json"
    with FileLock(folder / "lock"):  # once, whichever of the workers comes first
        if not outputs.exists():
            inputs.write_text(json.dumps(cases))
            start(inputs, outputs, ranks, folder)
    result: dict[str, Any] = json.loads(outputs.read_text())
    return result


def start(inputs: Path, outputs: Path, ranks: int, folder: Path) -> None:
    command = [
        sys.executable, str(Path(__file__).parent / "run_cases.py"), str(ranks),
        str(inputs), str(outputs), str(folder / "traces"),
    ]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def trained(folder: Path, name: str) -> tuple[dict[str, Any], Path]:
    """A case's losses and its traces; those of its group are trained with it."""
    (label,) = (label for label, (_, group) in TOGETHER.items() if name in group)
    ranks, group = TOGETHER[label]
    cases = [case(each, ranks, **{"strategy": each, **more}) for each, more in group.items()]
    found = train(cases, ranks, folder / label)
    return found[file_name(name)], folder / label / "traces" / file_name(name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One of all workers."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    (shared / "strategies").mkdir(exist_ok=True)
    return shared / "strategies"


@pytest.fixture(scope="module")
def single(folder: Path) -> dict[str, Any]:
    models = {"gpt2": (GPT2, (2, 4, 8)), "llama": (LLAMA, (2, 4)), "moe": (MOE, (2,))}
    cases = [
        case(f"{name}-{size}", 1, strategy="single", model=model, micro_batch=size)
        for name, (model, sizes) in models.items()
        for size in sizes  # what a sample is depends on it
    ]
    cases.append(case("control", 1, strategy="single", learning_rate=0.2 * 2))
    return train(cases, 1, folder / "single")


def tolerance(name: str) -> float:
    if name in IN_BF16:
        return HALF_PRECISION
    if name in ("ddp-powersgd", "powersgd small buckets"):
        return LOW_RANK_GRADIENTS
    return HALF_PRECISION_GRADIENTS if name in ("ddp-fp16", "ddp-bf16") else TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_losses_agree_with_one_device(single: dict[str, Any], folder: Path, name: str) -> None:
    (result, _), family = trained(folder, name), name.split()[0]
    family = family if family in ("llama", "moe") else "gpt2"
    expected = single[f"{family}-{result['micro_batch']}"]["losses"]
    assert len(result["losses"]) == len(expected) == 3
    assert result["losses"] == pytest.approx(expected, abs=tolerance(name))
    assert result["threads_fit"], "each gloo group must own two worker threads"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_traffic_is_what_theory_says_or_the_difference_is_explained(
    folder: Path, name: str
) -> None:
    _, path = trained(folder, name)
    with Store.create() as store:
        ingest([str(path)], store, run=path.name)
        # Not derive: theory asks for steps and calls alone.
        data = load_run(store.con, path.name)
        write_ranks(store.con, data)
        write_collectives(store.con, data)
        found = theory(store.con, path.name)
    assert found is not None
    assert found.ops, "no strategy of several ranks is without communication"
    for item in found.ops:
        allowed = {"equal", "explained"}
        if (name.startswith(("ddp-powersgd", "powersgd")) and item.op == "all_reduce") or (
            "ep" in name and item.op == "all_to_all"
        ):
            allowed |= {"not predicted"}
        assert item.verdict in allowed, f"{item.op}: {item.measured_bytes}, {item.explanation}"
        assert (item.verdict == "equal") == (item.explanation == "")


@pytest.mark.slow
def test_a_wrong_gradient_would_show(single: dict[str, Any]) -> None:
    # A step twice as long is what a missing mean over two ranks does, the least such mistake.
    differences = [
        abs(right - wrong)
        for right, wrong in zip(
            single["gpt2-2"]["losses"], single["control"]["losses"], strict=True
        )
    ]
    assert max(differences) > 100 * TOLERANCE


def test_every_strategy_is_proven() -> None:
    proven = {part for name in [*ON_FOUR_RANKS, *ON_EIGHT_RANKS] for part in name.split("+")}
    proven |= {part for s in OF_EXPERTS.values() for part in s["strategy"].split("+")}
    proven |= {f"deepspeed-zero{stage}" for stage in (1, 2, 3)}  # test_deepspeed.py
    assert set(strategies.names()) - {"single"} <= proven


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"strategy": "tp", "world_size": 3}, ["tp 3", "heads 4"]),
        ({"strategy": "fsdp2+tp", "world_size": 3}, ["tp 2", "world_size 3"]),
        ({"strategy": "tp", "tp": 2, "world_size": 4}, ["world_size 4", "ddp+tp"]),
        ({"strategy": "pp", "world_size": 8, "model": {"layers": 4}}, ["pp 8", "layers 4"]),
        ({"strategy": "pp", "gradient_accumulation": 1}, ["pp 2", "gradient_accumulation 1"]),
        ({"strategy": "pp-interleaved", "gradient_accumulation": 3}, ["pp 2", "accumulation 3"]),
        ({"strategy": "ep"}, ["ep", "model gpt2"]),
        ({"strategy": "ep", "world_size": 3, "model": MOE}, ["ep 3", "experts 4"]),
        ({"strategy": "tp", "model": MOE}, ["tp 2", "moe"]),
        ({"strategy": "hsdp", "world_size": 2}, ["shard 2", "world_size 2"]),
        ({"strategy": "ddp", "shard": 2}, ["shard 2", "hsdp"]),
        ({"strategy": "ddp", "tp": 2}, ["tp 2", "strategy ddp"]),
        ({"strategy": "single"}, ["single", "world_size 2"]),
        ({"strategy": "ddp", "world_size": 1}, ["ddp", "world_size 1", "use strategy single"]),
        ({"strategy": "zero1", "world_size": 1}, ["zero1", "world_size 1"]),
        ({"strategy": "fsdp2", "world_size": 1}, ["fsdp2", "world_size 1"]),
        ({"strategy": "tp", "world_size": 1}, ["tp", "world_size 1"]),
        ({"strategy": "ddp", "find_unused_parameters": True, "static_graph": True},
         ["find_unused_parameters", "static_graph"]),
        ({"strategy": "ddp", "static_graph": True, "gradient_accumulation": 2},
         ["static_graph", "gradient_accumulation 2"]),
        ({"strategy": "fsdp2", "wrap_layers": 0, "prefetch_forward": 1},
         ["prefetch_forward", "wrap_layers 0"]),
        ({"strategy": "fsdp1-full+tp", "world_size": 4}, ["fsdp1-full", "tp 2"]),
        ({"strategy": "tp-sp", "sequence_length": 63}, ["tp 2", "sequence_length 63"]),
        ({"strategy": "ddp", "sequence_length": 9999}, ["sequence_length 9999", "256 positions"]),
        ({"strategy": "ddp", "global_batch": 7}, ["global_batch 7", "micro_batch 4"]),
    ],
)  # fmt: skip
def test_refusals_name_both_settings(settings: dict[str, Any], said: list[str]) -> None:
    with pytest.raises(AdvisorError) as refused:
        strategies.prepare(Workload.model_validate(settings))
    for part in said:
        assert part in str(refused.value)


def test_two_of_a_kind_are_refused() -> None:
    with pytest.raises(AdvisorError, match="fsdp2 and ddp are both data"):
        strategies.resolve("fsdp2+ddp+tp")


def test_unknown_strategy_lists_the_known() -> None:
    with pytest.raises(AdvisorError, match=r"known: .*fsdp2.*tp-sp"):
        strategies.resolve("deepspeed")
