"""PowerSGD's buckets on gloo: one after another, whatever the order in which calls end."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from advisor.profile.strategies import ddp_powersgd


class Bucket:
    """A gradient bucket as far as the hook looks into it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def buffer(self) -> Any:
        return torch.zeros(1)


class Recorder:
    """Stands for torch's hook: notes what was started, ends it when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.started: list[int] = []
        self.futures: dict[int, Any] = {}
        monkeypatch.setattr(ddp_powersgd, "powerSGD_hook", self.hook)

    def hook(self, _state: Any, bucket: Bucket) -> Any:
        self.started.append(bucket.number)
        self.futures[bucket.number] = torch.futures.Future()
        return self.futures[bucket.number]

    def end(self, number: int) -> None:
        self.futures[number].set_result(torch.full((1,), float(number)))


def start(count: int) -> list[Any]:
    state = ddp_powersgd._InTurn(powersgd=object())
    return [ddp_powersgd._one_after_another(state, Bucket(n)) for n in range(count)]


def test_a_bucket_starts_when_the_one_before_it_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    futures = start(3)
    assert recorder.started == [0]
    recorder.end(0)
    assert recorder.started == [0, 1]
    assert [future.done() for future in futures] == [True, False, False]
    recorder.end(1)
    recorder.end(2)
    assert [float(future.wait()) for future in futures] == [0.0, 1.0, 2.0]


def test_what_fails_is_raised_by_every_later_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    futures = start(2)
    recorder.futures[0].set_exception(RuntimeError("connection reset"))
    for future in futures:
        with pytest.raises(RuntimeError, match="connection reset"):
            future.wait()
    assert recorder.started == [0]
