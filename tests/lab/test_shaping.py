"""What the links' buckets save up while they are idle, against the rate that they are to have."""

from __future__ import annotations

import pytest

from benchmarks.lab import shaping
from benchmarks.lab.config import RunConfig
from benchmarks.lab.families import families

RATES = (100.0, 250.0, 500.0, 1000.0, 2000.0, 10_000.0)


def option(options: list[str], name: str) -> str:
    return options[options.index(name) + 1]


def saved_s(options: list[str], mbit: float, wire_bytes: int) -> float:
    """How much earlier a transfer ends after a pause than its rate says, timers being exact."""
    rate = mbit * 1e6 / 8
    ends = [(wire_bytes - int(option(options, "burst"))) / rate]
    if "peakrate" in options:
        peak = float(option(options, "peakrate").removesuffix("mbit")) * 1e6 / 8
        ends.append((wire_bytes - int(option(options, "mtu"))) / peak)
    return wire_bytes / rate - max(0.0, *ends)


def test_at_500_mbit_a_plain_bucket_saves_a_millisecond_and_a_steady_one_a_quarter():
    for size in (100_000, 300_000):
        assert saved_s(shaping.bucket(500), 500, size) == pytest.approx(0.00128, abs=1e-5)
        assert 0.0002 < saved_s(shaping.steady_bucket(500), 500, size) < 0.00055


@pytest.mark.parametrize("mbit", RATES)
def test_a_steady_link_saves_half_a_millisecond_at_most_however_long_it_sends(mbit):
    frame_s = shaping.FRAME_BYTES * 8 / mbit / 1e6
    for size in (1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 26):
        saved = saved_s(shaping.steady_bucket(mbit), mbit, size)
        assert saved < max(shaping.PACKET_S, 2 * frame_s) * 1.05 + shaping.RESERVE_S + frame_s


@pytest.mark.parametrize("mbit", RATES)
def test_no_packet_of_a_steady_link_is_longer_than_its_buckets(mbit):
    packet = shaping.steady_packet(mbit)
    frames = -(-packet // shaping.PAYLOAD_BYTES)
    on_wire = packet + frames * (shaping.FRAME_BYTES - shaping.PAYLOAD_BYTES)
    options = shaping.steady_bucket(mbit)
    assert on_wire <= int(option(options, "mtu"))
    assert int(option(options, "mtu")) <= int(option(options, "burst"))
    assert packet <= shaping.LARGEST_OFFLOAD


def test_a_steady_peak_leaves_room_to_catch_up():
    options = shaping.steady_bucket(800)
    assert option(options, "rate") == "800mbit"
    assert option(options, "peakrate") == "840mbit"


def test_a_job_says_whether_its_links_are_steady():
    assert not RunConfig().link_of(0).steady
    assert RunConfig(steady_links=True).link_of(0).steady


def test_the_families_links_are_steady():
    assert all(c.steady_links for family in families() for c in family.configs.values())
