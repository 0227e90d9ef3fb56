"""Values of NCCL_* that mean something else than they say: words for numbers, numbers out of range.

NCCL reads a number with C's strtoll (src/misc/param.cc): the digits at the start count and a word
counts as 0, without a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from advisor.model.nccl.env.issue import EnvIssue
from advisor.model.nccl.env.statements import remark
from advisor.model.nccl.env.table import value_read, variables

# Least and largest value that does something; where a limit lies is in the guide or the source.
_RANGES: dict[str, tuple[int, int]] = {
    "NCCL_COLLNET_ENABLE": (0, 1),
    "NCCL_CROSS_NIC": (0, 2),
    "NCCL_IB_QPS_PER_CONNECTION": (1, 128),
    "NCCL_IB_RETRY_CNT": (0, 7),
    "NCCL_IB_SL": (0, 15),
    "NCCL_IB_TIMEOUT": (1, 31),
    "NCCL_NSOCKS_PERTHREAD": (1, 64),
    "NCCL_NVLS_ENABLE": (0, 2),
    "NCCL_P2P_PXN_LEVEL": (0, 2),
    "NCCL_PAT_ENABLE": (0, 2),
    "NCCL_SOCKET_NTHREADS": (1, 16),
}
_NUMBER = re.compile(r"[-+]?([0-9]+|0[xX][0-9a-fA-F]+)")


def check_ranges(env: Mapping[str, str]) -> Iterator[EnvIssue]:
    """Words where a number is read, and numbers out of their range."""
    known = variables()
    for name, value in env.items():
        if not value or name not in known:
            continue
        if known[name].kind == "integer" and not _NUMBER.fullmatch(value):
            yield remark("no-number", name, value, read=value_read(name, value))
        elif name in _RANGES and re.fullmatch(r"[-+]?[0-9]{1,99}", value):
            low, high = _RANGES[name]
            # -1 and -2 are how NCCL writes "as by default".
            if not low <= int(value) <= high and int(value) not in (-1, -2):
                yield remark("out-of-range", name, value, low=low, high=high)


def debugging_only(found: list[EnvIssue], env: Mapping[str, str]) -> Iterator[EnvIssue]:
    """Variables of the guide's class D of which nothing else was said."""
    said = {issue.variable for issue in found}
    known = variables()
    for name, value in env.items():
        if value and name not in said and name in known and known[name].category == "D":
            if value == "0" and name.endswith(("_DISABLE", "_POINTERS")):
                continue  # switched off: as without it
            yield remark("for-debugging", name, value)
