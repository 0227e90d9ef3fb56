"""What a replay of the present settings' trace says of other settings, before any is tried."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.config.own import OwnAxis
from advisor.config.sweep import Configuration
from advisor.tune.points import key_of
from advisor.tune.predictions import from_trace

_CAPS = OwnAxis(setting="bucket_cap_mb", values=[5, 100])
_HOOKS = OwnAxis(setting="comm_hook", values=["none", "fp16"])
_START: Configuration = {"bucket_cap_mb": 25, "comm_hook": "none"}


@pytest.mark.slow
def test_hooks_that_halve_gradients_are_predicted_with_every_bucket_cap(fixtures_dir: Path) -> None:
    predicted = from_trace(fixtures_dir / "gpt2-tiny-ddp-2", [_CAPS, _HOOKS], _START)
    assert predicted.settings == {"bucket_cap_mb", "comm_hook"}
    assert predicted.of(_START) == pytest.approx(1.0)
    for cap in (25, 5, 100):
        whole = predicted.of({"bucket_cap_mb": cap, "comm_hook": "none"})
        half = predicted.of({"bucket_cap_mb": cap, "comm_hook": "fp16"})
        assert whole is not None and half is not None
        assert half < whole


@pytest.mark.slow
@pytest.mark.parametrize("present", ["fp16", None])
def test_hooks_are_not_predicted_from_a_job_that_has_one_or_is_not_known(
    fixtures_dir: Path, present: str | None
) -> None:
    start = {**_START, "comm_hook": present}
    predicted = from_trace(fixtures_dir / "gpt2-tiny-ddp-2", [_CAPS, _HOOKS], start)
    assert predicted.settings == {"bucket_cap_mb"}
    assert key_of({"bucket_cap_mb": 5}) in predicted.ratios
