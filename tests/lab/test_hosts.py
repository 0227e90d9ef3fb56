"""Namespaces and their removal, also when the lab is killed. Needs root and iproute2."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.lab import hosts, shaping
from benchmarks.lab.hosts import LinkShape, Network

ROOT = Path(__file__).resolve().parents[2]
KILLED_LAB = """
import sys, time
from benchmarks.lab.hosts import LinkShape, Network
with Network(2) as network:
    network.shape(1, LinkShape(100, 100))
    print(network.prefix, flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def _needs_namespaces():
    if reason := hosts.unavailable():
        pytest.skip(reason)


def things_of(prefix: str) -> list[str]:
    namespaces = hosts.NETNS_DIR.iterdir() if hosts.NETNS_DIR.is_dir() else ()
    names = [*hosts._interfaces(), *(entry.name for entry in namespaces)]
    return [name for name in names if name.startswith(prefix)]


def start_lab() -> tuple[subprocess.Popen[str], str]:
    lab = subprocess.Popen(
        [sys.executable, "-c", KILLED_LAB], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    prefix = lab.stdout.readline().strip()
    assert things_of(prefix)
    return lab, prefix


def test_hosts_exist_inside_and_are_gone_after():
    with Network(3) as network:
        assert len([n for n in things_of(network.prefix) if "-h" in n]) == 3
        shown = subprocess.run(
            ["ip", "netns", "exec", network.namespace(2), "ip", "-4", "addr", "show", "eth0"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert Network.address(2) in shown.stdout
    assert things_of(network.prefix) == []


def test_both_directions_are_shaped_and_unshaped():
    with Network(1) as network:
        inside = ["ip", "netns", "exec", network.namespace(0)]

        def rates() -> list[str]:
            return [
                subprocess.run(
                    [*where, "tc", "qdisc", "show", "dev", device],
                    capture_output=True, text=True, check=True,
                ).stdout
                for where, device in ((inside, "eth0"), ([], f"{network.prefix}p0"))
            ]  # fmt: skip

        network.shape(0, LinkShape(send_mbit=500, receive_mbit=200))
        send, receive = rates()
        assert "tbf" in send
        assert "500Mbit" in send
        assert "200Mbit" in receive
        network.shape(0, LinkShape())
        assert not any("tbf" in text for text in rates())


def test_a_steady_link_has_small_packets_and_a_peak_until_it_is_a_plain_one_again():
    with Network(1) as network:
        inside = ["ip", "netns", "exec", network.namespace(0)]

        def shown(*command: str) -> str:
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            return done.stdout

        def packet() -> int:
            text = shown("ip", "-n", network.namespace(0), "-d", "link", "show", "eth0")
            return int(text.split("gso_max_size ")[1].split()[0])

        whole = packet()
        network.shape(0, LinkShape(500, 500, steady=True))
        assert packet() == shaping.steady_packet(500)
        for where, device in ((inside, "eth0"), ([], f"{network.prefix}p0")):
            text = shown(*where, "tc", "qdisc", "show", "dev", device)
            assert "rate 500Mbit" in text
            assert "peakrate 525Mbit" in text
        network.shape(0, LinkShape(500, 500))
        assert packet() == whole
        assert "peakrate" not in shown(*inside, "tc", "qdisc", "show", "dev", "eth0")


def test_a_relay_comes_and_goes():
    if not Path("/dev/net/tun").exists():
        pytest.skip("needs /dev/net/tun")
    with Network(2) as network:
        network.shape(1, LinkShape(delay_ms=1.0))
        assert len([n for n in things_of(network.prefix) if "t1" in n]) == 3
        network.shape(1, LinkShape())
        assert [n for n in things_of(network.prefix) if "t1" in n] == []
    assert things_of(network.prefix) == []


def test_a_terminated_lab_removes_its_hosts():
    lab, prefix = start_lab()
    lab.terminate()
    assert lab.wait(timeout=120) == 128 + signal.SIGTERM
    assert things_of(prefix) == []


def test_clean_removes_what_a_killed_lab_left_and_nothing_of_a_living_one():
    lab, prefix = start_lab()
    with Network(1) as alive:
        os.kill(lab.pid, signal.SIGKILL)
        lab.wait(timeout=120)
        assert things_of(prefix)
        hosts.clean()
        assert things_of(prefix) == []
        assert things_of(alive.prefix)
