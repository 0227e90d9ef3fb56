"""Lint of NCCL_* settings: leftovers of debugging, values that break, unknown and dead names.

What a setting does depends on the release, so every statement carries the releases it holds for;
without a release all of them are reported. The guide's class tells whether a variable may stay
in scripts (S) or is for debugging only (D).
"""

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from fnmatch import fnmatchcase

from advisor.model.nccl.env.choices import check_choices
from advisor.model.nccl.env.issue import EnvIssue
from advisor.model.nccl.env.statements import remark, statements
from advisor.model.nccl.env.table import NEWEST, value_read, variables
from advisor.model.nccl.env.words import check_words
from advisor.model.nccl.version import NcclVersion, format_version, parse_version

__all__ = ["EnvIssue", "check_env"]

_ORDER = {"error": 0, "warning": 1, "info": 2}


def check_env(
    env: Mapping[str, str],
    nccl_version: NcclVersion | str | None = None,
    *,
    nodes: int | None = None,
    lines: Mapping[str, int] | None = None,
    functions: frozenset[str] = frozenset(),
) -> list[EnvIssue]:
    """Everything worth saying about the settings, worst first.

    Only NCCL_* and a few torch and CUDA variables are looked at. Values with an unexpanded `$`
    are checked by name only. `nodes` is how many the job has, if known; `lines` gives the line
    each variable was set in, `functions` the collectives that the job runs, if they are known.
    Raises AdvisorError on a version that is none.
    """
    version = parse_version(nccl_version) if isinstance(nccl_version, str) else nccl_version
    found: list[EnvIssue] = []
    for name, value in env.items():
        if name.upper().startswith("NCCL_"):
            found += _names(name, value, version)
        if "$" not in value:
            found += _costs(name, value.strip(), version, nodes)
            found += _redundant(name, value.strip(), version)
    plain = {name: value.strip() for name, value in env.items() if "$" not in value}
    found += check_choices(plain, version, functions)
    found += _check_limits(plain, version)
    found += check_words(plain, version)
    found += _check_ranges(plain)
    found += _debugging_only(found, plain)
    known = variables()
    complete = [
        issue._replace(
            category=issue.category
            or (known[issue.variable].category if issue.variable in known else ""),
            line=lines.get(issue.variable) if lines else None,
        )
        for issue in found
    ]
    return sorted(complete, key=lambda issue: (_ORDER[issue.severity], issue.variable))


def _names(name: str, value: str, version: NcclVersion | None) -> Iterator[EnvIssue]:
    known_names, known = statements(), variables()
    renamed = known_names.renamed.get(name)
    if renamed is not None:
        since = parse_version(renamed.since) if renamed.since else None
        if version is None or since is None or version >= since:
            said = {"to": renamed.to, "by": renamed.source, "since": renamed.since}
            issue = remark("replaced", name, value, **said)
            still = name in known and (version is None or known[name].exists_in(version))
            serves = still and known[name].until is None
            yield issue._replace(severity="info") if serves else issue
            return
    if any(fnmatchcase(name, pattern) for pattern in known_names.foreign) or renamed is not None:
        return
    if name not in known:
        parts = name.upper().split("_")  # a word too many is likelier than another variable
        fewer = ["_".join(parts[:at] + parts[at + 1 :]) for at in range(1, len(parts))]
        close = [one for one in fewer if one in known]
        once = {old: new.to for old, new in known_names.renamed.items()} | dict.fromkeys(known)
        close = close or get_close_matches(name.upper(), once, n=1, cutoff=0.8)
        meant = once.get(close[0]) or close[0] if close else None
        action = f"Did you mean {meant}?" if meant else "Remove it, or check its spelling."
        said = {"newest": format_version(NEWEST), "action": action}
        if version is None or version <= NEWEST:
            issue = remark("unknown-name", name, value, **said)
            # Nothing is near it: more likely a script's own than misspelt.
            yield issue if meant else issue._replace(severity="info")
        else:
            release = format_version(version)
            yield remark("name-of-newer-release", name, value, release=release, **said)
        return
    first, last = known[name].since, known[name].until
    if version is not None and first is not None and version < first:
        said = {"release": format_version(version), "since_release": format_version(first)}
        yield remark("too-early", name, value, **said)
    if last is not None and (version is None or version > last):
        yield remark("too-late", name, value, last=format_version(last))


def _costs(
    name: str, value: str, version: NcclVersion | None, nodes: int | None
) -> Iterator[EnvIssue]:
    for cost in statements().costs:
        if cost.variable != name:
            continue
        if not re.fullmatch(cost.when, value_read(name, value), re.IGNORECASE):
            continue
        if cost.several_nodes and nodes == 1:
            continue
        if version is not None and (
            (cost.since and version < parse_version(cost.since))
            or (cost.until and version >= parse_version(cost.until))
        ):
            continue
        yield cost.of(name, value)


def _redundant(name: str, value: str, version: NcclVersion | None) -> Iterator[EnvIssue]:
    variable = variables().get(name)
    if version is None or variable is None or variable.default(version) is None:
        return
    if value_read(name, value) == str(variable.default(version)):
        yield remark("default", name, value, release=format_version(version))


# NCCL reads a number with C's strtoll (src/misc/param.cc): the digits at the start count and a
# word counts as 0, without a message.
_NUMBER = re.compile(r"[-+]?([0-9]+|0[xX][0-9a-fA-F]+)")


def _check_ranges(env: Mapping[str, str]) -> Iterator[EnvIssue]:
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


def _debugging_only(found: list[EnvIssue], env: Mapping[str, str]) -> Iterator[EnvIssue]:
    """Variables of the guide's class D of which nothing else was said."""
    said = {issue.variable for issue in found}
    known = variables()
    for name, value in env.items():
        if value and name not in said and name in known and known[name].category == "D":
            if value == "0" and name.endswith(("_DISABLE", "_POINTERS")):
                continue  # switched off: as without it
            yield remark("for-debugging", name, value)


def _check_limits(env: Mapping[str, str], version: NcclVersion | None) -> Iterator[EnvIssue]:
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
