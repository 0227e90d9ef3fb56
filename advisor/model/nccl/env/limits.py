"""Settings that limit one another, and numbers NCCL replaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from advisor.model.nccl.env.issue import EnvIssue
from advisor.model.nccl.env.statements import remark
from advisor.model.nccl.version import NcclVersion


def check_limits(env: Mapping[str, str], version: NcclVersion | None) -> Iterator[EnvIssue]:
    """Settings that contradict or limit one another."""
    number = {
        name: int(value) for name, value in env.items() if re.fullmatch(r"[0-9]{1,99}", value)
    }
    least, most = number.get("NCCL_MIN_CTAS"), number.get("NCCL_MAX_CTAS")
    if least is not None and most is not None and least > most:
        yield remark("least-over-most", "NCCL_MIN_CTAS", str(least), most=most)
    limit = 64 if version is None or version >= (2, 25, 0) else 32
    for name in ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"):
        if number.get(name, 0) > limit:
            yield remark("most-channels", name, env[name], limit=limit)
    if "NCCL_MAX_CTAS" in number and "NCCL_MAX_NCHANNELS" in number:
        yield remark("two-limits", "NCCL_MAX_NCHANNELS", env["NCCL_MAX_NCHANNELS"])
    sockets = number.get("NCCL_SOCKET_NTHREADS", 1) * number.get("NCCL_NSOCKS_PERTHREAD", 1)
    if sockets > 64:
        name = "NCCL_NSOCKS_PERTHREAD"
        yield remark("most-sockets", name, env.get(name, ""), sockets=sockets)
    name = "NCCL_TUNER_CONFIG_FILE"
    if name in env and "NCCL_TUNER_PLUGIN" not in env:
        yield remark("no-tuner", name, env[name])
    if name in env and version is not None and version < (2, 22, 0):
        yield remark("old-tuner", name, env[name])
    yield from _replaced(number)


def _replaced(number: Mapping[str, int]) -> Iterator[EnvIssue]:
    """Numbers for which NCCL takes another (getNthreads of src/graph/tuning.cc)."""
    for name, least, most in (("NCCL_NTHREADS", 64, 512), ("NCCL_LL128_NTHREADS", 160, 640)):
        threads = number.get(name)
        if threads is None or threads == 0 or (threads % 32 == 0 and least <= threads <= most):
            continue
        taken = least if threads % 32 == 0 and threads < least else most
        yield remark("other-threads", name, str(threads), taken=taken, least=least, most=most)
    size = number.get("NCCL_BUFFSIZE", 1)
    if size.bit_count() != 1:
        yield remark("odd-buffer", "NCCL_BUFFSIZE", str(size))
