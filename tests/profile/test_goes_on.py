"""A job that is only recorded goes on, whatever the recording runs into, and says what it said."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the [profile] extra")
pytest.importorskip("nvtx", reason="needs the [profile] extra")

from advisor.errors import AdvisorError  # noqa: E402
from advisor.profile.hook import construction  # noqa: E402
from advisor.profile.hook.order import HIDDEN, Order  # noqa: E402
from advisor.profile.hook.steps import Steps  # noqa: E402
from advisor.profile.recording import Recording  # noqa: E402

_FAILURES = [OSError(28, "no space"), MemoryError(), RuntimeError("std::bad_alloc")]


@pytest.mark.parametrize("failure", _FAILURES, ids=repr)
def test_a_trace_that_cannot_be_written_is_left_out(
    failure: Exception, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Fails:
        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_text("half of it")
            raise failure

    place = tmp_path / "rank0.json.gz"
    Recording(place, steps=1, device="cpu", metadata=dict)._export(Fails())
    assert list(tmp_path.iterdir()) == []
    assert "the job goes on" in capsys.readouterr().err


def test_a_job_that_is_interrupted_leaves_no_half_of_a_trace(tmp_path: Path) -> None:
    class Interrupted:
        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_text("half of it")
            raise KeyboardInterrupt

    place = tmp_path / "rank0.json.gz"
    with pytest.raises(KeyboardInterrupt):
        Recording(place, steps=1, device="cpu", metadata=dict)._export(Interrupted())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failure", [*_FAILURES, AdvisorError("taken")], ids=repr)
@pytest.mark.parametrize("ends", [False, True])
def test_a_step_of_the_job_is_taken_all_the_same(
    failure: Exception, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a recording that fails THEN a trial ends by it, another's job does not."""
    (tmp_path / HIDDEN).mkdir()
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    steps = Steps(Order(str(tmp_path), traced=1, ends=ends))
    calls: list[int] = []

    def fails() -> Any:
        calls.append(1)
        raise failure

    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)
    monkeypatch.setattr(steps, "_step", fails)
    steps.watch()
    try:
        for _ in range(2):
            parameter.sum().backward()
            if ends:
                with pytest.raises(type(failure)):
                    optimizer.step()
            else:
                optimizer.step()
    finally:
        steps.over = True
    assert len(calls) == (2 if ends else 1)


def test_a_warning_of_how_a_wrapper_is_called_names_the_scripts_line() -> None:
    # GIVEN a wrapper that warns of an argument, and of something in its own file
    module = ModuleType("fsdp")
    code = compile(
        "import warnings\nclass ShardingStrategy: FULL_SHARD = 1\n"
        "class FullyShardedDataParallel:\n"
        "    def __init__(self):\n"
        "        warnings.warn('old argument', FutureWarning, stacklevel=2)\n"
        "        warnings.warn('own')\n",
        "fsdp.py", "exec",
    )  # fmt: skip
    exec(code, vars(module))
    construction.change_fsdp1(module)
    # WHEN a script builds it
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        exec(compile("\n\nwrap()", "train.py", "exec"), {"wrap": module.FullyShardedDataParallel})
    # THEN both name what they would name without the hook
    assert [(one.filename, one.lineno) for one in said] == [("train.py", 3), ("fsdp.py", 6)]
