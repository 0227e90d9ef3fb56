"""Values of NCCL_* that mean something else than they say: words for numbers, numbers out of range.

NCCL reads a number with C's strtoll (src/misc/param.cc): the digits at the start count and a word
counts as 0, without a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from advisor.model.nccl.env.issue import EnvIssue
from advisor.model.nccl.env.statements import remark, statements
from advisor.model.nccl.env.table import value_read, variables

_NUMBER = re.compile(r"[-+]?([0-9]+|0[xX][0-9a-fA-F]+)")


def check_ranges(env: Mapping[str, str]) -> Iterator[EnvIssue]:
    """Words where a number is read, and numbers out of their range."""
    known, ranges = variables(), statements().ranges
    for name, value in env.items():
        if not value or name not in known:
            continue
        if known[name].kind == "integer" and not _NUMBER.fullmatch(value):
            yield remark("no-number", name, value, read=value_read(name, value))
        elif name in ranges and re.fullmatch(r"[-+]?[0-9]{1,99}", value):
            low, high = ranges[name]
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
