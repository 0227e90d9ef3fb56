"""NCCL_ALGO and NCCL_PROTO: what they break, force and forbid."""

import re
from collections.abc import Iterator, Mapping

from advisor.errors import AdvisorError
from advisor.model.nccl.env.issue import EnvIssue
from advisor.model.nccl.env.statements import remark
from advisor.model.nccl.env.table import NEWEST
from advisor.model.nccl.env.words import unknown_words
from advisor.model.nccl.filters import (
    PER_FUNCTION_SINCE,
    Selection,
    left_without,
    parse_algorithms,
    parse_protocols,
)
from advisor.model.nccl.names import FUNCTIONS, algorithms, legal
from advisor.model.nccl.version import NcclVersion, format_version

_TREE_SINCE = "2.24"
# What a list of none leaves up to 2.23: bandwidths of src/graph/tuning.cc that are not set to zero.
_LEFT = {
    "NCCL_ALGO": {"left": "rings and trees", "lost": "NVLS (NVLink SHARP) is off."},
    "NCCL_PROTO": {
        "left": "rings in every protocol, and nothing up to 2.18",
        "lost": "LL128 is on even where it can corrupt data.",
    },
}


def check_choices(
    env: Mapping[str, str], version: NcclVersion | None, functions: frozenset[str] = frozenset()
) -> Iterator[EnvIssue]:
    """NCCL_ALGO and NCCL_PROTO: what they break, force and forbid.

    ``functions``: the collectives that the job runs; empty: any.
    """
    if "NCCL_ALGO" not in env and "NCCL_PROTO" not in env:
        return
    release = version or NEWEST
    since = _TREE_SINCE if release >= PER_FUNCTION_SINCE else ""
    selections = {}
    for name, parse in (("NCCL_ALGO", parse_algorithms), ("NCCL_PROTO", parse_protocols)):
        try:
            selections[name] = parse(env.get(name), release)
        except AdvisorError as error:
            said = {"why": error.message, "action": error.hint, "since": since}
            yield remark("refused", name, env[name], **said)
        yield from _unread_entries(name, env.get(name, ""), release)
        if env.get(name) == "" and release < PER_FUNCTION_SINCE:
            yield remark("empty-list", name, "", **_LEFT[name])
        yield from unknown_words(name, env.get(name, ""), release)
    if len(selections) < 2:
        return
    algo, proto = selections["NCCL_ALGO"], selections["NCCL_PROTO"]
    dead = [f for f in left_without(algo, proto, release) if not functions or f in functions]
    if dead:
        name = "NCCL_ALGO" if "NCCL_ALGO" in env else "NCCL_PROTO"
        verb, them = ("fails", "it") if len(dead) == 1 else ("fail", "them")
        title = f"{', '.join(dead)} {verb}: nothing is left for {them}"
        yield remark("nothing-left", name, env[name], dead=title)
    if "NCCL_ALGO" in env and _names_any(env["NCCL_ALGO"], release):
        yield from _forced_algorithms(env["NCCL_ALGO"], algo.chosen)
        yield from _without_ring(env["NCCL_ALGO"], algo, release)
    if "NCCL_PROTO" in env and _names_any(env["NCCL_PROTO"], release):
        yield from _forced_protocols(env["NCCL_PROTO"], proto.chosen)


def _unread_entries(name: str, value: str, release: NcclVersion) -> Iterator[EnvIssue]:
    """Entries per collective for a release that reads one plain list."""
    unread = _per_function(value)
    if release < PER_FUNCTION_SINCE and unread:
        words = ", ".join(unread)
        yield remark("entries-unread", name, value, release=format_version(release), words=words)


def _names_any(value: str, release: NcclVersion) -> bool:
    """Whether the release reads any word of the value."""
    if not value.strip(";"):
        return False  # as if it were not set
    words = value.removeprefix("^").split(",")
    return release >= PER_FUNCTION_SINCE or len(_per_function(value)) < len(words)


def _per_function(value: str) -> list[str]:
    return [word for word in value.removeprefix("^").split(",") if set(word) & set(":;")]


def _forced_algorithms(
    value: str, chosen: Mapping[str, frozenset[str] | None]
) -> Iterator[EnvIssue]:
    risky = [
        function
        for function in ("AllGather", "ReduceScatter")
        if "NVLS" in (chosen[function] or ()) and "nvls" in value.lower()
    ]
    if risky and not re.search(r"\^[^;^]*nvls", value.lower()):
        yield remark("nvls-named", "NCCL_ALGO", value, functions=" and ".join(risky))
    yield remark("algorithm-fixed", "NCCL_ALGO", value)


def _without_ring(value: str, algo: Selection, release: NcclVersion) -> Iterator[EnvIssue]:
    """Gathers and scatters of which only algorithms are left that few machines have."""
    for function in ("AllGather", "ReduceScatter"):
        left = [
            name
            for name in algorithms(release)
            if algo.allows(function, name) and legal(function, name, "Simple", release)
        ]
        # Nothing left, NVLS named in so many words, and rings are told elsewhere.
        named = "nvls" in value.lower() and "NVLS" in left
        if release < PER_FUNCTION_SINCE or not left or "Ring" in left or named:
            continue
        yield remark(
            "no-ring-nvls" if "NVLS" in left else "no-ring",
            "NCCL_ALGO",
            value,
            function=function,
            left=", ".join(left),
            few="none of these" if len(left) > 1 else "it not",
            ring=f"{function.lower()}:ring",
        )


def _forced_protocols(
    value: str, chosen: Mapping[str, frozenset[str] | None]
) -> Iterator[EnvIssue]:
    forced = [function for function in FUNCTIONS if "LL128" in (chosen[function] or ())]
    if forced:
        how = (
            "An exclusion list rewrites the whole set, and that switches LL128 on"
            if "^" in value
            else "Naming LL128 switches it on"
        )
        yield remark("ll128-forced", "NCCL_PROTO", value, how=how)
    yield remark("protocol-fixed", "NCCL_PROTO", value)
