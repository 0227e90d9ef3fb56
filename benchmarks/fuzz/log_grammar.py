"""Draws NCCL logs from a grammar: the line forms of the shipped logs, with other values in them.

A log is a run of blocks; a block is a few lines in a row of one shipped log, or any line; a line is
a launcher's prefix, NCCL's prefix and a form whose numbers, addresses and names are drawn anew,
mostly from few values so that lines speak of the same rank, communicator and host.
"""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

_LOGS = Path(__file__).parents[2] / "fixtures" / "nccl-logs"
_SLOT = re.compile(r"0x[0-9a-fA-F]+|\d+\.\d+|\d+|node\w")
_LAUNCHER = re.compile(r"^\[1,\d+\]<stdout>:|^\d+: ")
_PREFIXES = (
    *("", "", "", "[1,{n}]<stdout>:", "{n}: ", "[rank{n}]:", "[default{n}]:", "node{n}: "),
    *("(TrainActor pid={n}, ip=10.0.0.{n}) ", "2025-01-0{n} 10:00:00 ", "\x1b[36m({n})\x1b[0m "),
    *("[2025-01-01T10:00:0{n}.1] ", "\ufeff", "{n}{n}: [{n}] "),
)
_NUMBERS = ("0", "1", "2", "3", "7", "8", "-1", "16", "4096")
_EDGES = (
    *("-2147483649", "4294967296", "9223372036854775808", "9" * 30, "0x", "0xffffffffffffffff1"),
    *("1e400", "nan", "²", "٣", "", " ", "+1", "00000000000", "1.5.2", "-", "\x00", "\ufffd"),
)
_HOSTS = ("nodea", "nodeb", "node-0.cluster", "a" * 300, "[::1]", "")
_ODD_LINE = 0.1
_EDGE = 0.04


@cache
def _forms() -> list[list[str]]:
    """The lines of each shipped log without what the launcher put before them."""
    return [
        [_LAUNCHER.sub("", line) for line in path.read_text(encoding="utf-8").splitlines()]
        for path in sorted(_LOGS.glob("*.log"))
    ]


def log(rng: random.Random) -> str:
    """A log of up to 60 lines."""
    lines: list[str] = []
    for _ in range(rng.randint(1, 8)):
        lines += _block(rng)
    end = rng.choice(("\n", "\n", "\n", "\r\n", "\r"))
    return end.join(lines) + rng.choice(("", end))


def _block(rng: random.Random) -> list[str]:
    forms = rng.choice(_forms())
    start = rng.randrange(len(forms))
    prefix = rng.choice(_PREFIXES).format(n=rng.randrange(3))
    values: dict[str, str] = {}
    lines = []
    for form in forms[start : start + rng.randint(1, 8)]:
        if rng.random() < _ODD_LINE:
            form = rng.choice(rng.choice(_forms()))
        line = prefix + _SLOT.sub(lambda match: _value(match[0], values, rng), form)
        lines += [line] * rng.choice((1, 1, 1, 1, 1, 2, 0))
    if rng.random() < _ODD_LINE:
        rng.shuffle(lines)
    return lines


def _value(slot: str, values: dict[str, str], rng: random.Random) -> str:
    """Mostly what the slot held, or what the same text became before in the block."""
    if rng.random() < _EDGE:
        return rng.choice(_EDGES)
    if rng.random() < 0.5:
        return slot
    if slot not in values:
        if slot.startswith("node"):
            values[slot] = rng.choice(_HOSTS)
        elif slot.startswith("0x"):
            values[slot] = f"0x55aa0000000{rng.randrange(4)}"
        else:
            values[slot] = rng.choice(_NUMBERS)
    return values[slot]
