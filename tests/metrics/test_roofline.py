"""FLOPs from recorded shapes, against formulas of the models and torch's own counter."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import advisor
from advisor.metrics.models.roofline import Arithmetic, arithmetic, device_peak
from advisor.model.operator_flops import (
    NO_FLOATS,
    NO_SHAPES,
    NO_STRIDES,
    ODD_SHAPES,
    Work,
    operator_flops,
)

pytestmark = pytest.mark.slow

GIVEN = Path(__file__).resolve().parents[3] / "shared" / "data"


def count(*paths: Path) -> Arithmetic:
    with advisor.load(*paths) as run:
        (name,) = run.store.con.execute("SELECT run FROM run").fetchone()
        return arithmetic(run.store.con, name)


def flops(name: str, dims: list[Any], *concrete: str, kind: str = "float") -> Work | str:
    types = json.dumps([kind] * len(dims))
    return operator_flops(name, json.dumps(dims), types, json.dumps(list(concrete)))


def test_a_transformer_takes_six_flops_per_weight_and_token(fixtures_dir: Path) -> None:
    """GPT-2 of the fixture: width 256, 4 layers, 1,024 words in the vocabulary, 4 x 64 tokens."""
    width, layers, vocabulary, batch, sequence = 256, 4, 1024, 4, 64
    weights = layers * 12 * width**2 + vocabulary * width
    products = 6 * weights * batch * sequence
    # Scores and values: 2 products forward; backward 4, and the scores once more.
    attention = layers * 2 * 2 * batch * sequence**2 * width
    counted = count(fixtures_dir / "gpt2-tiny-ddp-2")
    assert counted.by_rank == {0: products + 3.5 * attention, 1: products + 3.5 * attention}
    assert counted.flops == products + 3.5 * attention
    assert set(counted.by_dtype) == {"fp32"}
    assert not counted.left_out
    spent = counted.timed_ns["fp32"]
    assert counted.speed("fp32") == pytest.approx(counted.flops / (spent * 1e-9))


@pytest.mark.skipif(not GIVEN.is_dir(), reason="the given traces are not here")
def test_resnet_18_takes_what_its_authors_publish() -> None:
    """1.814 GMAC per image forward; activations of all but the first layer are recomputed."""
    batch = 10
    forward = batch * 2 * 1.8136e9  # convolutions alone, as the layers' table adds up to
    first = batch * 2 * 112 * 112 * 64 * 3 * 7 * 7
    counted = count(GIVEN / "ddp_8xMI300")
    by = counted.by_operator
    assert by["aten::convolution"] == pytest.approx(2 * forward - first, rel=1e-3)
    assert by["aten::convolution_backward"] == pytest.approx(2 * forward - first, rel=1e-3)
    assert by["aten::addmm"] == 2 * batch * 512 * 1000
    assert by["aten::mm"] == 2 * by["aten::addmm"]
    peak = device_peak("AMD Instinct MI300X", counted)
    assert peak is not None
    assert peak.flops == 1307.4e12
    assert 0 < (counted.speed("bf16") or 0) < peak.flops


@pytest.mark.skipif(not GIVEN.is_dir(), reason="the given traces are not here")
def test_dlrm_by_its_layers() -> None:
    """Two perceptrons forward, twice that backward less the input's gradient, and pairs of 27."""
    counted = count(GIVEN / "dlrm_8xV100")
    forward = counted.by_operator["aten::addmm"]
    assert counted.by_operator["aten::mm"] == 2 * forward - 2 * 16 * 13 * 256
    assert counted.by_operator["aten::bmm"] == 3 * 2 * 16 * 27 * 27 * 16
    assert len(set(counted.by_rank.values())) == 1
    assert len(counted.by_rank) == 8
    # Every rank's products have kernels, found through their launches.
    assert counted.timed_flops["fp32"] == pytest.approx(counted.flops)


@pytest.mark.skipif(not GIVEN.is_dir(), reason="the given traces are not here")
def test_without_shapes_nothing_is_counted() -> None:
    counted = count(GIVEN / "ddp_2xA100_metadata")
    assert counted.flops == 0
    assert set(counted.left_out) == {NO_SHAPES}


@pytest.mark.long
def test_torchs_own_counter_agrees(tmp_path: Path) -> None:
    """Linear, convolutions, batched products and attention, forward and backward."""
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    functional = torch.nn.functional
    images = torch.randn(2, 4, 9, 11, requires_grad=True)
    strided = torch.nn.Conv2d(4, 8, (3, 2), stride=(2, 1), padding=1, dilation=(1, 2))
    back = torch.nn.ConvTranspose2d(8, 4, 3, stride=2)
    line = torch.nn.Linear(7, 5)
    query = torch.randn(2, 3, 6, 8, requires_grad=True)
    key = torch.randn(2, 3, 10, 8, requires_grad=True)

    def work() -> None:
        total = back(strided(images)).sum() + line(torch.randn(2, 3, 7)).sum()
        total = total + (query @ key.transpose(-1, -2)).sum()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            total = total + functional.scaled_dot_product_attention(query, key, key).sum()
        total.backward()

    work()
    counter = FlopCounterMode(display=False)
    with counter:
        work()
    with torch.profiler.profile(record_shapes=True) as profile:
        work()
    trace = tmp_path / "rank0.json"
    profile.export_chrome_trace(str(trace))
    counted = count(trace)
    assert not counted.left_out
    assert counted.flops == counter.get_total_flops()


def test_groups_divide_a_convolutions_work() -> None:
    """8 filters over half of 4 channels each; torch's counter forgets groups in the backward."""
    image, weight, outgoing = [2, 4, 9, 11], [8, 2, 3, 3], [2, 8, 9, 11]
    once = 2 * 2 * (8 * 9 * 11) * (4 // 2) * 3 * 3
    more = ("[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "2")
    assert flops("aten::convolution", [image, weight, []], "", "", "", *more) == Work(once, "fp32")
    for wanted, times in (("[True, True, False]", 2), ("[False, True, True]", 1)):
        backward = flops("aten::convolution_backward", [outgoing, image, weight],
                         "", "", "", "[0]", *more, wanted)  # fmt: skip
        assert backward == Work(once * times, "fp32")


def test_only_the_innermost_operator_counts(tmp_path: Path) -> None:
    """A sharded linear: the outer call has the whole tensor's shape, the inner one the rank's."""

    def op(name: str, start: float, dims: list[list[int]], tid: int = 1) -> dict[str, Any]:
        args = {"Input Dims": dims, "Input type": ["c10::BFloat16"] * len(dims)}
        return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": tid, "ts": start,
                "dur": 100 - start % 100, "args": args}  # fmt: skip

    events = [
        op("aten::linear", 100, [[8, 16], [32, 16]]),
        op("aten::mm", 110, [[8, 16], [16, 4]]),
        op("aten::bmm", 210, [[2, 8, 16], [2, 16, 4]]),
        op("aten::mm", 120, [[3, 3], [3, 3]], tid=2),
    ]
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
    assert dict(count(path).by_operator) == {
        "aten::mm": 2 * 8 * 16 * 4 + 2 * 27,
        "aten::bmm": 2 * 2 * 8 * 16 * 4,
    }


def test_a_call_that_cannot_be_counted_says_why() -> None:
    image, weight = [1, 3, 8, 8], [4, 3, 3, 3]
    assert operator_flops("aten::mm", None, None, None) == NO_SHAPES
    assert flops("aten::convolution", [image, weight, [], [], [], [], [], [], []]) == NO_STRIDES
    assert flops("aten::mm", [[2, 2], [2, 2]], kind="int") == NO_FLOATS
    for dims in ([[2, 3], [2, 3]], [[2, 3]], [[2, -3], [3, 2]], [[[2, 3]], [3, 2]], ["x", [1]]):
        assert flops("aten::mm", dims) == ODD_SHAPES, dims
    assert flops("aten::mm", [[2, 3], [3, 4]], kind="c10::Half") == Work(48, "fp16")


def test_the_peak_heeds_the_mix_of_element_types() -> None:
    counted = Arithmetic()
    counted.by_dtype.update({"bf16": 312e12, "fp32": 19.5e12})
    peak = device_peak("NVIDIA A100-SXM4-80GB", counted)
    assert peak is not None
    # A second each at its own peak.
    assert peak.flops == pytest.approx((312e12 + 19.5e12) / 2)
    assert device_peak("CPU", counted) is None
    assert device_peak(None, counted) is None


def test_a_speed_above_the_fp32_peak_shows_tf32() -> None:
    counted = Arithmetic()
    counted.by_dtype["fp32"] = 1.0
    for speed, expected in ((19e12, 19.5e12), (40e12, 156e12)):
        counted.timed_flops["fp32"], counted.timed_ns["fp32"] = speed, 1e9
        peak = device_peak("NVIDIA A100-SXM4-80GB", counted)
        assert peak is not None
        assert peak.by_dtype == {"fp32": expected}
