"""Traffic and roofline of our own recordings, against figures computed by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import advisor
from advisor.report import render
from advisor.report.sections.size import build
from advisor.store.store import Store
from tests.report.support import MS, RUN, make_report, make_store

WORKLOAD = {
    "micro_batch": 4,
    "sequence_length": 64,
    "gradient_accumulation": 2,
    "precision": "fp32",
    "world_size": 4,
    "sync_every_micro_batch": False,
    "reduce_precision": None,
    "activation_checkpointing": "none",
    "optimizer": "adamw",
    "wrap_layers": 1,
}
HELD = {
    "held_parameters": {"shared": 10_000_000, "experts": 0, "outside_layers": 0},
    "layers_held": 12,
    "degrees": {"pipeline": 1, "tensor": 1, "data": 4, "expert": 1, "shard": 1},
    "transformer": None,
}


def send(store: Store, op: str, size: int) -> None:
    """Let each rank make one call of that size in every step, and no other."""
    store.con.execute("DELETE FROM collective WHERE op = ?", [op])
    store.con.execute(
        "INSERT INTO collective (run, rank, call_id, op, group_size, bytes, start_ns, end_ns, step)"
        " SELECT run, rank, 1000 + step, ?, 4, ?, start_ns, start_ns + 1, step FROM step",
        [op, size],
    )


@pytest.fixture
def store() -> Iterator[Store]:
    """Four ranks of DDP with 40 MB of fp32 gradients: 10 M parameters, 512 tokens per rank."""
    with make_store() as made:
        said = {**HELD, "buckets": [{"bytes": 15_000_000}, {"bytes": 25_000_000}]}
        made.con.execute(
            "UPDATE run SET strategy = 'ddp', compute = 'real', workload = ?",
            [json.dumps(WORKLOAD)],
        )
        made.con.execute(
            "UPDATE rank SET metadata = ?, peak_memory_bytes = 200000000 + rank * 1000000",
            [json.dumps({"advisor": said})],
        )
        made.con.execute(
            "INSERT INTO traffic (run, op, wire_bytes_per_step, transfer_ns_per_step)"
            " VALUES (?, 'all_reduce', 60000000, ?)",
            [RUN, 20 * MS],
        )
        send(made, "all_reduce", 40_000_000)
        yield made


def test_other_peoples_traces_have_no_theory_to_compare_with() -> None:
    with make_store() as store:
        assert build(store, RUN, None) is None


def test_figures_by_hand(store: Store) -> None:
    page = render(make_report(), store, "html").replace("\N{NO-BREAK SPACE}", " ")
    # 2(n-1)/n of 40 MB over 4 ranks is 60 MB.
    assert "Each rank sends 60 MB per step, as theory says" in page
    # Adam in fp32: 4 + 4 + 8 bytes per parameter.
    assert "take 160 MB on the fullest rank by estimate" in page
    assert "Rank 3 peaks highest: 203 MB" in page


def test_more_traffic_than_theory_is_said(store: Store) -> None:
    send(store, "all_reduce", 80_000_000)
    page = render(make_report(), store, "html").replace("\N{NO-BREAK SPACE}", " ")
    assert "2 times what theory says" in page
    assert "+60 MB are not explained" in page


def test_the_broadcast_of_zero1_is_explained(store: Store) -> None:
    # torch's ZeroRedundancyOptimizer keeps DDP's all-reduce and sends the parameters around.
    store.con.execute("UPDATE run SET strategy = 'zero1'")
    send(store, "broadcast", 40_000_000)
    page = render(make_report(), store, "html").replace("\N{NO-BREAK SPACE}", " ")
    assert "Each rank sends 100 MB per step, which theory and what torch does" in page
    assert "+40 MB: torch keeps DDP&#39;s all-reduce, and owners broadcast" in page


def test_a_run_without_a_roofline_says_what_to_record(store: Store) -> None:
    wanted = "notes the model&#39;s size and the tokens per step"
    assert wanted not in render(make_report(), store, "html")
    store.con.execute("UPDATE run SET compute = 'emulated'")
    assert wanted in render(make_report(), store, "html")


@pytest.fixture
def foreign(fixtures_dir: Path) -> Iterator[advisor.Run]:
    """A recording that is not known to be ours, so its work is counted from shapes."""
    with advisor.load(fixtures_dir / "gpt2-tiny-ddp-2") as run:
        run.store.con.execute("UPDATE run SET strategy = NULL, workload = NULL")
        yield run


def _text(run: advisor.Run) -> str:
    return render(run.report, run.store, "html").replace("\N{NO-BREAK SPACE}", " ")


@pytest.mark.slow
def test_foreign_work_is_counted_and_stands_against_the_devices_peak(foreign: advisor.Run) -> None:
    page = _text(foreign)
    # 6 x 3,407,872 weights x 256 tokens, and attention (tests/metrics/test_roofline.py).
    assert "5.5 GFLOP per rank and step" in page
    assert "of the device&#39;s peak" not in page
    foreign.store.con.execute("UPDATE rank SET device_name = 'NVIDIA A100-SXM4-80GB'")
    page = _text(foreign)
    assert "of the device&#39;s peak" in page
    assert "NVIDIA A100 data sheet" in page
    foreign.store.con.execute("UPDATE rank SET device_name = 'NVIDIA Z9'")
    assert "peak of &#39;NVIDIA Z9&#39; for fp32" in _text(foreign)


@pytest.mark.slow
def test_no_shapes_no_roofline_but_how_to_record_them(foreign: advisor.Run) -> None:
    foreign.store.con.execute("UPDATE comm_event SET input_dims = NULL")
    page = _text(foreign)
    assert 'id="arithmetic"' not in page
    assert "record_shapes=True" in page


@pytest.mark.slow
def test_bandwidth_with_a_rank_missing_is_not_drawn(foreign: advisor.Run) -> None:
    foreign.store.con.execute("UPDATE collective SET t_is = 'upper bound'")
    page = _text(foreign)
    assert "sent / transfer time" not in page
    assert "were compute at its peak" not in page
