"""Compute that a setting or another kernel spares, and work that looks like it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.real2.test_generated import GEMM, Trace, _loaded, _steps

SOFTMAX = "void (anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>"
LAYER = [("aten::native_layer_norm", "layer_norm_kernel", 20), ("aten::mm", GEMM, 300),
         ("aten::_flash_attention_forward", "flash_fwd_kernel", 100), ("aten::mm", GEMM, 200),
         ("aten::gelu", "GeluCUDAKernelImpl", 30)]  # fmt: skip
GRADIENTS = [("aten::gelu_backward", "GeluBackwardCUDAKernelImpl", 40), ("aten::mm", GEMM, 200),
             ("aten::mm", GEMM, 200), ("aten::_flash_attention_backward", "flash_bwd_kernel", 200),
             ("aten::native_layer_norm_backward", "layer_norm_grad", 30)]  # fmt: skip
EAGER = [("aten::bmm", GEMM, 100), ("aten::mul", "MulFunctor", 80), ("aten::_softmax", SOFTMAX, 80),
         ("aten::bmm", GEMM, 100)]  # fmt: skip


class _Model(Trace):
    """Operators that launch a kernel each, one after another."""

    now = 0.0
    ahead = 0.0  # so much earlier the host launches

    def run(self, operators: list[tuple[str, str, float]], node: str | None = None) -> None:
        """The operators, on autograd's thread and inside one of its ``node``."""
        begin, first = self.now, len(self.events)
        for name, kernel, length in operators:
            asked = self.now - self.ahead
            self.host(name, asked, 8, **{"External id": len(self.events)})
            link = self.events[-1]["args"]["External id"]
            self.kernel(kernel, self.now + 10, length, asked + 2)
            self.events[-1]["args"]["External id"] = link
            self.now += length + 10
        if node is not None:
            name = f"autograd::engine::evaluate_function: {node}"
            self.host(name, begin, self.now - begin)
            for event in self.events[first:]:
                event["tid"] = 200 if event["tid"] == 100 else event["tid"]


def _rows(folder: Path, step: Any) -> list[dict[str, Any]]:
    trace = _Model()
    for begin in _steps(trace, 4, 60_000):
        trace.now = begin + 10
        step(trace)
    with _loaded(folder, trace) as run:
        found = run.sql("SELECT kind, kernels, ns, rest_ns FROM avoidable_compute ORDER BY kind")
        rows: list[dict[str, Any]] = found.to_dict("records")
        return rows


@pytest.mark.parametrize("again", [True, False])
def test_forward_kernels_inside_the_backward_pass_are_recomputed(
    tmp_path: Path, again: bool
) -> None:
    """A layer takes 650 µs; its gradients have products of the same name."""

    def step(trace: _Model) -> None:
        for _ in range(3):
            trace.run(LAYER)
        for _ in range(3):
            trace.run((LAYER if again else []) + GRADIENTS, "GeluBackward0")

    (*found,) = _rows(tmp_path, step)
    expected = {"kind": "recomputed", "kernels": 15, "ns": 3 * 650_000}
    assert [{k: row[k] for k in expected} for row in found] == ([expected] if again else [])


def test_kernels_between_the_products_of_attention_are_its_scores(tmp_path: Path) -> None:
    """Two kernels of 80 µs between two products, four times."""
    (found,) = _rows(tmp_path, lambda trace: [trace.run(EAGER) for _ in range(4)])
    assert found == {"kind": "scores", "kernels": 8, "ns": 640_000, "rest_ns": 800_000}


@pytest.mark.parametrize(
    "operators",
    [
        [*LAYER, ("aten::_log_softmax", SOFTMAX, 80), *LAYER],  # the loss
        [
            ("aten::mm", GEMM, 50),
            ("aten::_softmax", SOFTMAX, 5),
            ("aten::mm", GEMM, 50),
        ],  # a router
    ],
)
def test_other_softmaxes_are_no_attention(
    tmp_path: Path, operators: list[tuple[str, str, float]]
) -> None:
    assert _rows(tmp_path, lambda trace: [trace.run(operators) for _ in range(4)]) == []


@pytest.mark.parametrize(
    ("names", "count"),
    [
        (("aten::mul_", "aten::add_"), 300),
        (("aten::linalg_vector_norm",), 150),  # of each gradient
        (("aten::native_layer_norm",), 0),
        (("aten::mul", "aten::add"), 0),  # of a model's forward pass
        (("aten::mul_", "aten::mm"), 0),  # with work between them
    ],
)
def test_loops_over_many_parameters(tmp_path: Path, names: tuple[str, ...], count: int) -> None:
    """Each kernel takes 2 µs, and 10 µs later the next one starts."""
    loop = [(name, name, 2.0) for _ in range(150) for name in names]
    found = _rows(tmp_path, lambda trace: trace.run(loop))
    assert [row["kernels"] for row in found] == ([count] if count else [])
    if count:
        assert found[0]["ns"] == pytest.approx(count * 2_000 + count * 10_000, rel=0.02)


ADAMW = [("mul_", 200.0), ("lerp_", 300.0), ("mul_", 200.0), ("addcmul_", 300.0), ("sqrt", 200.0),
         ("div_", 200.0), ("add_", 200.0), ("addcdiv_", 400.0)]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "passes", "fused"),
    [
        ("AdamW", ADAMW, 700.0),
        ("SGD", [("mul_", 184.8), ("add_", 254.0), ("add_", 254.0)], 462.0),  # ResNet-50 on A100
        ("SGD", [("add_", 300.0)], None),  # without momentum it is one pass already
        ("Shampoo", ADAMW, None),  # whose states are not known
    ],
)
def test_passes_of_an_optimizer_over_lists(
    tmp_path: Path, name: str, passes: list[tuple[str, float]], fused: float | None
) -> None:
    """100 µs for each tensor that is read or written: of AdamW's 20 a fused kernel takes 7."""
    kernel = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<float>"

    def step(trace: _Model) -> None:
        begin = trace.now - 1
        trace.run([(f"aten::_foreach_{operator}", kernel, length) for operator, length in passes])
        trace.host(f"Optimizer.step#{name}.step", begin, trace.now - begin, "user_annotation")
        trace.run([("aten::_foreach_mul_", kernel, 500.0)])  # another one's, behind the step

    found = _rows(tmp_path, step)
    assert [row["kind"] for row in found] == ([] if fused is None else ["passes"])
    if fused is not None:
        spared = sum(length for _, length in passes) - fused
        assert found[0]["kernels"] == len(passes)
        assert (found[0]["ns"], found[0]["rest_ns"]) == pytest.approx(
            (1000 * spared, 1000 * fused), abs=1000
        )


@pytest.mark.parametrize("ahead", [0.0, 100.0])
def test_pointwise_kernels_in_a_row_of_a_busy_device(tmp_path: Path, ahead: float) -> None:
    """Four of 2 µs that the next one follows 10 µs later; nothing where each waits for its host."""
    kernel = "void at::native::vectorized_elementwise_kernel<4, MulFunctor<float> >"

    def step(trace: _Model) -> None:
        trace.now, trace.ahead = trace.now + 200, ahead
        trace.run([("aten::mm", GEMM, 300.0), *[("aten::mul", kernel, 2.0)] * 5])
        trace.run([("aten::mm", GEMM, 300.0), ("aten::mul", kernel, 2.0)])

    (*found,) = _rows(tmp_path, step)
    expected = {"kind": "pointwise", "kernels": 4, "ns": 4 * 12_000, "rest_ns": 4 * 2_000}
    assert found == ([expected] if ahead else [])


def test_copies_between_the_layouts_of_convolutions(tmp_path: Path) -> None:
    """Around a convolution cuDNN copies there and back"""
    there = ("aten::cudnn_convolution", "void cudnn::ops::nchwToNhwcKernel<float, float>", 40.0)
    product = ("aten::cudnn_convolution", "sm80_xmma_fprop_implicit_gemm_tf32f32", 300.0)
    back = ("aten::cudnn_convolution", "void cudnn::ops::nhwcToNchwKernel<float, float>", 10.0)

    def step(trace: _Model) -> None:
        for _ in range(3):
            trace.run([there, there, product, back, ("aten::relu", "relu_kernel", 20.0)])

    (row,) = _rows(tmp_path, step)
    assert (row["kind"], row["kernels"], row["ns"]) == ("layouts", 9, 270_000)


def test_what_fills_long_steps_alone_is_named(tmp_path: Path) -> None:
    """Two of six steps take 30 ms for an evaluation of 19; forward passes are in all of them."""
    trace, at = Trace(), 1000.0
    for number in range(6):
        length = 30_000 if number in (2, 4) else 10_000
        trace.host(f"ProfilerStep#{number}", at, length - 1, "user_annotation")
        trace.host("forward", at + 10, length / 3, "user_annotation")
        if length > 10_000:
            trace.host("evaluate", at + 10_000, 19_000, "user_annotation")
        trace.kernel(GEMM, at + 20, length - 100, at + 12)
        at += length
    with _loaded(tmp_path, trace) as run:
        found = run.sql("SELECT step, only_there FROM step WHERE only_there IS NOT NULL ORDER BY 1")
        assert found.to_dict("records") == [
            {"step": 2, "only_there": "evaluate"},
            {"step": 4, "only_there": "evaluate"},
        ]


@pytest.mark.parametrize("stepped", [True, False])
def test_a_loop_inside_an_optimizers_step_is_the_optimizers(tmp_path: Path, stepped: bool) -> None:
    """GIVEN 240 small kernels in place, of a parameter after another THEN they are named by the
    optimizer where its step holds them, and by their operator where nothing does."""

    def step(trace: _Model) -> None:
        begin = trace.now
        trace.run([("aten::mul_", "MulFunctor", 3), ("aten::add_", "AddFunctor", 3)] * 120)
        if stepped:
            trace.host("Optimizer.step#AdamW.step", begin - 5, trace.now - begin + 5)

    trace = _Model()
    for begin in _steps(trace, 4, 60_000):
        trace.now = begin + 10
        step(trace)
    with _loaded(tmp_path, trace) as run:
        found = run.sql("SELECT operator FROM avoidable_compute WHERE kind = 'updates'")
    assert found["operator"].tolist() == (
        ["Optimizer.step#AdamW.step"] if stepped else ["aten::add_"]
    )
