"""Values of ``advisor whatif --set``: what is refused, and that it says why in the right unit."""

from __future__ import annotations

import pytest

from advisor.errors import AdvisorError
from advisor.whatif.program import Program
from advisor.whatif.settings import predicted


@pytest.mark.parametrize(
    ("change", "message", "hint"),
    [
        ("link.bandwidth=x0", "a link needs some bandwidth", "x0.5 is half of now"),
        ("link.bandwidth=0Gb", "a link needs some bandwidth", "x0.5 is half of now"),
        ("link.bandwidth=0.0Mb", "a link needs some bandwidth", "or 10Gb, 400Mb"),
        ("link.bandwidth=x2Gb", "'x2Gb' is no bandwidth", "x2, 10Gb or 400Mb"),
        ("link.bandwidth=x2/s", "'x2/s' is no bandwidth", "x2, 10Gb or 400Mb"),
        ("link.bandwidth=2", "'2' is no bandwidth", "x2, 10Gb or 400Mb"),
        ("link.bandwidth=fast", "'fast' is no bandwidth", "x2, 10Gb or 400Mb"),
        ("prefetch_forward=1.5", "'1.5' is no whole number", "units gathered ahead"),
        ("prefetch_backward=-1", "'-1' is no whole number", "units gathered ahead"),
        ("wrap_layers=1.5", "'1.5' is no whole number", "neighbouring units"),
        ("wrap_layers=two", "'two' is no whole number", "neighbouring units"),
        ("wrap_layers=0", "wrap_layers joins 1 unit or more", "neighbouring units"),
        ("wrap_layers=\u00b2", "is no whole number", "neighbouring units"),
        ("reshard_after_forward=on", "'on' cannot be predicted", "reshard_after_forward=False"),
        ("bucket_cap_mb=0", "0 is out of range", "MiB"),
        ("bucket_cap_mb=big", "'big' is no number", None),
        ("late_rank=\u00b2", "is no rank", "late_rank=2"),
    ],
)
def test_a_wrong_value_is_refused_in_its_own_unit(
    change: str, message: str, hint: str | None
) -> None:
    with pytest.raises(AdvisorError) as caught:
        predicted([], change, lambda _: 0.0)
    assert message in caught.value.message
    if hint is not None:
        assert hint in (caught.value.hint or "")
    if not change.startswith("bucket_cap_mb"):
        assert "MiB" not in (caught.value.hint or "")


@pytest.mark.parametrize(
    "change",
    ["prefetch_forward=0", "prefetch_backward=0", "prefetch_backward=2", "wrap_layers=1"],
)
def test_whole_numbers_are_replayed(change: str) -> None:
    # Without a step there is nothing to replay: the value itself is not what is refused.
    with pytest.raises(AdvisorError, match="does not show the calls"):
        predicted([], change, lambda _: 0.0)


def test_going_without_prefetch_on_gpus_is_refused_with_the_reason() -> None:
    steps = [Program({}, {}, {}, timeline="device")]
    with pytest.raises(AdvisorError, match="does not show when the host would come") as caught:
        predicted(steps, "prefetch_forward=0", lambda _: 0.0)
    assert "measures 0" in caught.value.hint
