"""Settings that limit one another, and numbers NCCL replaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from advisor.model.nccl.env.issue import EnvIssue
from advisor.model.nccl.version import NcclVersion


def check_limits(env: Mapping[str, str], version: NcclVersion | None) -> Iterator[EnvIssue]:
    """Settings that contradict or limit one another."""
    number = {
        name: int(value) for name, value in env.items() if re.fullmatch(r"[0-9]{1,99}", value)
    }
    least, most = number.get("NCCL_MIN_CTAS"), number.get("NCCL_MAX_CTAS")
    if least is not None and most is not None and least > most:
        yield EnvIssue(
            "NCCL_MIN_CTAS",
            str(least),
            "warning",
            "the minimum exceeds the maximum",
            f"NCCL takes the maximum for both: {most}.",
            "Correct one of them.",
            since="2.17",
            source="src/init.cc",
        )
    limit = 64 if version is None or version >= (2, 25, 0) else 32
    for name in ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"):
        if number.get(name, 0) > limit:
            yield EnvIssue(
                name,
                env[name],
                "warning",
                f"NCCL has at most {limit} channels",
                "The limit is 32 before 2.25 and 64 since.",
                f"Use at most {limit}.",
            )
    if "NCCL_MAX_CTAS" in number and "NCCL_MAX_NCHANNELS" in number:
        yield EnvIssue(
            "NCCL_MAX_NCHANNELS",
            env["NCCL_MAX_NCHANNELS"],
            "warning",
            "two limits on channels",
            "The lower of NCCL_MAX_CTAS and NCCL_MAX_NCHANNELS wins.",
            "Keep NCCL_MAX_CTAS.",
            since="2.17",
        )
    sockets = number.get("NCCL_SOCKET_NTHREADS", 1) * number.get("NCCL_NSOCKS_PERTHREAD", 1)
    if sockets > 64:
        yield EnvIssue(
            "NCCL_NSOCKS_PERTHREAD",
            env.get("NCCL_NSOCKS_PERTHREAD", ""),
            "warning",
            f"{sockets} sockets per connection",
            "NCCL opens at most 64: it lowers NCCL_NSOCKS_PERTHREAD until the product fits.",
            "Lower one of them; 4 x 4 is the guide's advice for 100 Gb/s.",
            source="src/transport/net_socket.cc",
        )
    if "NCCL_TUNER_CONFIG_FILE" in env and "NCCL_TUNER_PLUGIN" not in env:
        yield EnvIssue(
            "NCCL_TUNER_CONFIG_FILE",
            env["NCCL_TUNER_CONFIG_FILE"],
            "warning",
            "a tuner file without a tuner",
            "Only a tuner plugin reads it; NCCL itself does not.",
            "Set NCCL_TUNER_PLUGIN (advisor tuner-plugin build).",
        )
    if "NCCL_TUNER_CONFIG_FILE" in env and version is not None and version < (2, 22, 0):
        yield EnvIssue(
            "NCCL_TUNER_CONFIG_FILE",
            env["NCCL_TUNER_CONFIG_FILE"],
            "warning",
            "no tuner plugin of this release reads it",
            "Plugins with a file need interface v3, which NCCL has from 2.22 on.",
            "Remove it, or update NCCL.",
            until="2.22",
        )
    yield from _replaced(number)


def _replaced(number: Mapping[str, int]) -> Iterator[EnvIssue]:
    """Numbers for which NCCL takes another (getNthreads of src/graph/tuning.cc)."""
    for name, least, most in (("NCCL_NTHREADS", 64, 512), ("NCCL_LL128_NTHREADS", 160, 640)):
        threads = number.get(name)
        if threads is None or threads == 0 or (threads % 32 == 0 and least <= threads <= most):
            continue
        taken = least if threads % 32 == 0 and threads < least else most
        yield EnvIssue(
            name,
            str(threads),
            "warning",
            f"NCCL takes {taken} threads instead",
            f"It accepts multiples of 32 from {least} to {most}.",
            "Remove it.",
            source="src/graph/tuning.cc",
        )
    size = number.get("NCCL_BUFFSIZE", 1)
    if size.bit_count() != 1:
        yield EnvIssue(
            "NCCL_BUFFSIZE",
            str(size),
            "info",
            "not a power of two",
            "The guide recommends powers of two; chunks then divide it evenly.",
            "Use for example 4194304 (the default) or 8388608.",
        )
