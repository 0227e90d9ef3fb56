"""The cost model on calls whose latency and bandwidth are set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.messages import WHATIF, say
from advisor.report.replayed import Replayed, gain_kind, gain_words
from advisor.whatif.cost import fit_service
from advisor.whatif.predict import Prediction
from advisor.whatif.program import Call, Program

A_NS, B_NS = 400_000.0, 8.0


def program(sizes: list[int], *, bursts: list[int] | None = None, shared: bool = True) -> Program:
    """Calls of four ranks that cost A + B * bytes each."""
    of = bursts or [-1] * len(sizes)
    calls = {
        number: Call(
            (0, 1, 2, 3), "g", A_NS + B_NS * size, op="all_reduce", bytes=size, burst=of[number]
        )
        for number, size in enumerate(sizes)
    }
    return Program(items={}, calls=calls, start_ns={}, shared=shared)


def test_sizes_far_apart_tell_latency_from_bandwidth() -> None:
    model = fit_service([program([1_000, 100_000, 10_000_000])], "all_reduce", 4)
    assert model is not None
    assert model.a_ns == pytest.approx(A_NS, rel=0.05)
    assert model.b_ns_per_byte == pytest.approx(B_NS, rel=0.05)


def test_one_size_leaves_the_latency_to_the_prior_and_says_how_unsure_it_is() -> None:
    # GIVEN calls of one size WHEN fitted THEN the latency is six hops of 75 us over sockets,
    # the call costs what it cost, and the uncertainty is as large as the prior
    model = fit_service([program([1 << 20] * 12)], "all_reduce", 4)
    assert model is not None
    assert model.a_ns == pytest.approx(450_000, rel=0.01)
    assert model.a_sigma_ns == pytest.approx(450_000, rel=0.01)
    assert model.service_ns(1 << 20) == pytest.approx(A_NS + B_NS * (1 << 20), rel=0.01)
    device = fit_service([program([1 << 20] * 12, shared=False)], "all_reduce", 4)
    assert device is not None
    assert device.a_ns == pytest.approx(30_000, rel=0.01)


def step_of_small_calls(ranks: int, call_ns: float, size: int) -> Program:
    """32 calls over sockets in one burst, as ranks with a backlog send them."""
    calls = {
        number: Call(tuple(range(ranks)), "g", call_ns, op="all_reduce", bytes=size, burst=0)
        for number in range(32)
    }
    return Program(items={}, calls=calls, start_ns={}, shared=True)


def test_a_call_too_slow_for_any_link_is_taken_for_latency() -> None:
    # GIVEN calls of 24 kB over eight ranks that take 5 ms, all in one burst: the latency assumed
    # before any call is seen would leave them a link of 84 Mbit/s
    model = fit_service([step_of_small_calls(8, 5.13e6, 24_576)], "all_reduce", 8)
    # THEN most of it is latency, how much is unsure, and the calls seen cost what they cost
    assert model is not None
    assert not model.identified
    assert 0.7 < model.a_ns / 5.13e6 < 0.95
    assert 0.1 < model.a_sigma_ns / 5.13e6 < 0.5
    assert model.service_ns(24_576) == pytest.approx(5.13e6, rel=0.01)
    # AND two of them as one call save more than a third of their time
    assert model.service_ns(2 * 24_576) < 0.65 * 2 * 5.13e6


def test_every_call_pays_its_latency_so_it_is_no_more_than_the_quickest() -> None:
    # GIVEN calls of 98 kB over eight ranks that take 12 ms beside other work, and two of them 3 ms
    times = [12e6] * 30 + [3e6] * 2
    calls = {
        number: Call(tuple(range(8)), "g", call_ns, op="all_reduce", bytes=98_304, burst=number)
        for number, call_ns in enumerate(times)
    }
    model = fit_service([Program(items={}, calls=calls, start_ns={}, shared=True)], "all_reduce", 8)
    assert model is not None
    assert model.a_ns < 3e6
    assert model.service_ns(98_304) == pytest.approx(12e6, rel=0.01)


def test_what_calls_met_besides_their_bytes_a_larger_call_meets_too() -> None:
    # GIVEN calls of one size, the latency of a sixth of a millisecond each, and noise of its own
    calls = [
        Call((0, 1), "g", call_ns, op="all_reduce", bytes=131_072, burst=number)
        for number, call_ns in enumerate([0.5e6, 9e6, 0.4e6, 6e6, 0.5e6])
    ]
    traced = Program(items={}, calls=dict(enumerate(calls)), start_ns={}, shared=True)
    model = fit_service([traced], "all_reduce", 2)
    assert model is not None
    # THEN two of them as one take their latency less, and not what the median call of both sizes
    # does; a half takes half of its bytes' time
    assert model.as_one_ns([(calls[1], 1), (calls[3], 1)]) == pytest.approx(15e6 - model.a_ns)
    assert model.as_one_ns([(calls[1], 1)]) == pytest.approx(9e6)
    assert model.as_one_ns([(calls[1], 0.5)]) == pytest.approx(4.5e6 + model.a_ns / 2)
    # AND where a wait for a core holds up each call, two as one are held up once, by the mean of
    # both, and halves as often as wholes
    by_call = model._replace(excess_by_call=True)
    half = by_call.service_ns(65_536)
    excess = 7.5e6 - by_call.service_ns(131_072)
    assert by_call.as_one_ns([(calls[1], 1), (calls[3], 1)]) == pytest.approx(
        by_call.service_ns(262_144) + excess
    )
    assert by_call.as_one_ns([(calls[1], 0.5)]) == pytest.approx(
        half + 9e6 - by_call.service_ns(131_072)
    )


def test_calls_of_one_size_may_all_be_waits_so_that_one_for_a_hundred_waits_once() -> None:
    # GIVEN 100 calls of 17 kB that took 0.5 to 6 ms each, as gloo's threads waited for cores
    calls = [
        Call((0, 1), "g", call_ns, op="all_reduce", bytes=16_640, burst=number)
        for number, call_ns in enumerate([0.5e6, 6e6, 3e6, 4e6] * 25)
    ]
    traced = Program(items={}, calls=dict(enumerate(calls)), start_ns={}, shared=True)
    model = fit_service([traced], "all_reduce", 2)
    assert model is not None
    assert not model.identified
    # THEN their bytes as one call may take as long as on the slowest link used for training
    one = model.by_call().as_one_ns([(call, 1) for call in calls])
    assert one == pytest.approx(100 * 16_640 / 1.25e8 * 1e9 + 3.4e6, rel=0.05)
    # AND where sizes tell latency from bytes, these are kept
    known = model._replace(identified=True)
    assert known.by_call() == known._replace(excess_by_call=True)


def test_a_slow_link_is_no_latency() -> None:
    # GIVEN one call of 8 MB over two ranks and 100 Mbit/s: hops of a third of a second are less
    # likely than such a link
    model = fit_service([step_of_small_calls(2, 0.67e9, 8_388_608)], "all_reduce", 2)
    assert model is not None
    assert not model.identified
    assert model.a_ns < 0.05 * 0.67e9


def test_sizes_far_apart_are_told() -> None:
    model = fit_service([program([1_000, 100_000, 10_000_000])], "all_reduce", 4)
    assert model is not None
    assert model.identified


def test_calls_in_flight_together_count_by_their_sum() -> None:
    # GIVEN a burst whose time was shared out wrongly between a large and a small call
    good = program([1_000_000, 2_000_000, 1_500_000], bursts=[0, 0, 1])
    first, second = good.calls[0], good.calls[1]
    wrong = {
        **good.calls,
        0: Call(first.ranks, "g", first.service_ns + 5e6, "all_reduce", first.bytes, burst=0),
        1: Call(second.ranks, "g", second.service_ns - 5e6, "all_reduce", second.bytes, burst=0),
    }
    # WHEN fitted THEN it makes no difference
    expected = fit_service([good], "all_reduce", 4)
    assert expected is not None
    found = fit_service([good.with_items({}, wrong)], "all_reduce", 4)
    assert found is not None
    assert (found.a_ns, found.b_ns_per_byte) == pytest.approx(
        (expected.a_ns, expected.b_ns_per_byte)
    )


@given(
    sizes=st.lists(st.integers(1, 1 << 28), min_size=1, max_size=20),
    latency=st.floats(0, 1e9),
)
def test_another_latency_keeps_the_typical_call(sizes: list[int], latency: float) -> None:
    model = fit_service([program(sizes)], "all_reduce", 4)
    assert model is not None
    assert model.a_ns >= 0
    assert model.b_ns_per_byte >= 0
    other = model.with_latency(latency)
    assert other.a_ns >= 0
    assert other.b_ns_per_byte >= 0
    typical = model.a_ns + model.b_ns_per_byte * model.typical_bytes
    assert other.a_ns + other.b_ns_per_byte * other.typical_bytes == pytest.approx(
        typical, rel=1e-2, abs=model.b_ns_per_byte + 1
    )


def test_nothing_to_fit() -> None:
    assert fit_service([program([])], "all_reduce", 4) is None
    assert fit_service([program([100])], "all_gather", 4) is None


def test_a_step_that_hangs_on_what_the_trace_does_not_tell_is_called_not_known() -> None:
    # GIVEN a prediction whose interval holds the step as it is, because of what the trace does
    # not tell WHEN it is put into words THEN it is not known; else there is no sure change
    found = Prediction(90e6, 20e6, 240e6, 200e6, 200e6, -40e6, 180e6, inconclusive=True)
    assert Replayed("", "", *found).gain == say(WHATIF, "unknown", {})
    unsure = found._replace(inconclusive=False)
    assert Replayed("", "", *unsure).gain == gain_words(-40e6, 110e6, 180e6)
    sure = found._replace(high_ns=160e6, gain_low_ns=40e6)
    assert Replayed("", "", *sure).gain == gain_words(40e6, 110e6, 180e6)


def test_the_words_of_a_gain_follow_its_interval() -> None:
    assert [
        gain_kind(*gain, least_ns=2.0)
        for gain in ((1, 5, 9), (-1, 5, 9), (-9, -5, -1), (-4, 0, 4), (0.5, 1, 2))
    ] == ["saves", "may-save", "costs", "nothing", "nothing"]
    assert gain_words(-9e6, -5e6, -1e6) == "costs 5 ms (1–9 ms)"
    assert "or nothing" in gain_words(-1e6, 5e6, 9e6)
