"""What a libnccl.so.2 reads of its environment: for releases of which only a wheel is out.

Names are strings of .rodata that code takes the address of. NCCL_PARAM hands name and default to
one function, to which most names go: those are integers. Held against 2.30.7, whose sources are
out: the same 245 names, the same 216 integers, and 181 of 182 plain defaults (one depends on the
CUDA it is built with).
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from pathlib import Path

SOURCE = "libnccl.so.2"
_UNDEFINED = -(2**31)  # NCCL_CONFIG_UNDEF_INT
# x86-64: lea of an address relative to the code, into any register; then a call, or a tail call.
_LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]")
_FIRST_ARGUMENT = b"\x48\x8d\x3d"
_CALLS = b"\xe8\xe9"
# Four ways to put a number into the second argument: 32 bits, the same with a sign, zero, 64 bits.
_NUMBER = re.compile(rb"\xbe(.{4})|\x48\xc7\xc6(.{4})|(\x31\xf6)|\x48\xbe(.{8})", re.S)
_SETUP = 28  # bytes before the name in which its default is put there
_NAME = re.compile(rb"(NCCL_[A-Z0-9_]+)\0")


def read_names(library: Path) -> dict[str, tuple[bool, set[int | None]]]:
    """Each name: whether it is read as an integer, and its default (None: none of its own).

    Several are numbers of which one is the default: bytes of an address may look like one.
    """
    data = library.read_bytes()
    (strings, size, at), (code, code_size, code_at) = _section(data, ".rodata", ".text")
    text = data[code_at : code_at + code_size]
    uses: dict[str, list[tuple[int | None, int | None]]] = {}
    for lea in _LEA.finditer(text):
        address = code + lea.end() + 4 + _signed(text, lea.end())
        if not strings <= address < strings + size:
            continue
        if name := _NAME.match(data, address - strings + at):
            called = lea[0] == _FIRST_ARGUMENT and text[lea.end() + 4] in _CALLS
            function = lea.end() + 9 + _signed(text, lea.end() + 5) if called else None
            uses.setdefault(name[1].decode(), []).append((function, _default(text, lea.start())))
    called_with = Counter(function for each in uses.values() for function, _ in each if function)
    loader = called_with.most_common(1)[0][0]
    found: dict[str, tuple[bool, set[int | None]]] = {}
    for name, each in uses.items():
        numbers = {number for function, number in each if function == loader} - {None}
        defaults = {None if number == _UNDEFINED else number for number in numbers}
        found[name] = (any(function == loader for function, _ in each), defaults)
    return found


def _default(text: bytes, before: int) -> int | None:
    put = list(_NUMBER.finditer(text, max(before - _SETUP, 0), before))
    if not put:
        return None
    plain, signed, zero, wide = put[-1].groups()
    if zero:
        return 0
    return int.from_bytes(plain or signed or wide, "little", signed=plain is None)


def _signed(text: bytes, at: int) -> int:
    return int.from_bytes(text[at : at + 4], "little", signed=True)


def _section(data: bytes, *names: str) -> list[tuple[int, int, int]]:
    """Address, size and place in the file of sections of a 64-bit ELF."""
    table = struct.unpack_from("<Q", data, 0x28)[0]
    count, of_names = struct.unpack_from("<HH", data, 0x3C)
    heads = [struct.unpack_from("<IIQQQQ", data, table + 64 * number) for number in range(count)]
    texts = heads[of_names][4]
    by_name = {
        data[texts + head[0] : data.index(b"\0", texts + head[0])].decode(): head for head in heads
    }
    return [(by_name[name][3], by_name[name][5], by_name[name][4]) for name in names]
