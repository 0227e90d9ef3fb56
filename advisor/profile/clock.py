"""Durations between step boundaries, on whichever device computes."""

import time
from typing import Any

import torch


class Clock:
    """Durations between step boundaries: CUDA events on a GPU, the monotonic clock on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"
        self._marks: list[Any] = []

    def mark(self) -> None:
        """A boundary between two steps."""
        if self._on_gpu:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self._marks.append(event)
        else:
            self._marks.append(time.perf_counter_ns())

    def durations_ns(self) -> list[int]:
        """Time between successive marks."""
        pairs = zip(self._marks, self._marks[1:], strict=False)
        if self._on_gpu:
            torch.cuda.synchronize()
            return [round(a.elapsed_time(b) * 1e6) for a, b in pairs]
        return [b - a for a, b in pairs]
