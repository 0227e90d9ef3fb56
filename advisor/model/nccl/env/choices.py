"""NCCL_ALGO and NCCL_PROTO: what they break, force and forbid."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from advisor.errors import AdvisorError
from advisor.model.nccl.env.issue import EnvIssue
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


def check_choices(env: Mapping[str, str], version: NcclVersion | None) -> Iterator[EnvIssue]:
    """NCCL_ALGO and NCCL_PROTO: what they break, force and forbid."""
    if "NCCL_ALGO" not in env and "NCCL_PROTO" not in env:
        return
    release = version or NEWEST
    since = _TREE_SINCE if release >= PER_FUNCTION_SINCE else ""
    selections = {}
    for name, parse in (("NCCL_ALGO", parse_algorithms), ("NCCL_PROTO", parse_protocols)):
        try:
            selections[name] = parse(env.get(name), release)
        except AdvisorError as error:
            yield EnvIssue(
                name,
                env[name],
                "error",
                "NCCL refuses this value and the job does not start",
                error.message,
                error.hint,
                since=since,
            )
        yield from _unread_entries(name, env.get(name, ""), release)
        yield from unknown_words(name, env.get(name, ""), release)
    if len(selections) < 2:
        return
    algo, proto = selections["NCCL_ALGO"], selections["NCCL_PROTO"]
    dead = left_without(algo, proto, release)
    if dead:
        name = "NCCL_ALGO" if "NCCL_ALGO" in env else "NCCL_PROTO"
        yield EnvIssue(
            name,
            env[name],
            "error",
            f"{dead[0]} fails: nothing is left for it"
            if len(dead) == 1
            else f"{', '.join(dead)} fail: nothing is left for them",
            "From 2.24 the list applies to every collective and there is no ring to fall back "
            "on: calls end in ncclInvalidUsage.",
            "Name the collective, e.g. allreduce:tree, or exclude with ^.",
            since=_TREE_SINCE,
        )
    if "NCCL_ALGO" in env and _names_any(env["NCCL_ALGO"], release):
        yield from _forced_algorithms(env["NCCL_ALGO"], algo.chosen)
        yield from _without_ring(env["NCCL_ALGO"], algo, release)
    if "NCCL_PROTO" in env and _names_any(env["NCCL_PROTO"], release):
        yield from _forced_protocols(env["NCCL_PROTO"], proto.chosen)


def _unread_entries(name: str, value: str, release: NcclVersion) -> Iterator[EnvIssue]:
    """Entries per collective for a release that reads one plain list."""
    unread = _per_function(value)
    if release < PER_FUNCTION_SINCE and unread:
        yield EnvIssue(
            name,
            value,
            "warning",
            f"no effect as written: entries per collective start at {_TREE_SINCE}",
            f"NCCL {format_version(release)} reads one list for all collectives and ignores words "
            f"it does not know without a message: '{', '.join(unread)}' chooses nothing of what it "
            "names (a list without a known word leaves at most NCCL's fallback).",
            f"Remove it, or update NCCL to {_TREE_SINCE} or later.",
            until=_TREE_SINCE,
        )


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
        yield EnvIssue(
            "NCCL_ALGO",
            value,
            "error",
            f"NVLS is named for {' and '.join(risky)}",
            "It has returned data in the wrong rank order when CUDA_VISIBLE_DEVICES is not in PCI "
            "order (NVIDIA/nccl issue 1906).",
            "Leave NVLS out for them: allgather:^nvls;reducescatter:^nvls.",
            since="2.19",
        )
    yield EnvIssue(
        "NCCL_ALGO",
        value,
        "warning",
        "the choice of algorithm is fixed",
        "One value serves all sizes and outlives the machine and release it was found on.",
        "Keep it as an experiment with its date and release; rules by size go into a tuner file.",
        effect="fixes",
    )


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
        wrong = (
            "NVLS has returned data in the wrong rank order when CUDA_VISIBLE_DEVICES is not in "
            "PCI order (NVIDIA/nccl issue 1906). "
        ) * ("NVLS" in left)
        few = "none of these" if len(left) > 1 else "it not"
        yield EnvIssue(
            "NCCL_ALGO",
            value,
            "error" if wrong else "warning",
            f"{function} has no ring: {', '.join(left)} left",
            f"{wrong}Where the machine has {few}, no algorithm is available and the call fails.",
            f"Leave it a ring: {function.lower()}:ring, or remove it.",
            since=_TREE_SINCE,
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
        yield EnvIssue(
            "NCCL_PROTO",
            value,
            "warning",
            "LL128 is forced",
            f"{how} even where NCCL does not trust it. Contested: NVIDIA warns of corrupted "
            "data without support; Google's recipe for A3 Mega (H100) sets it.",
            "Keep it only if the vendor of this machine names it. To leave a protocol out, name "
            "those that may be used: NCCL_PROTO=LL,Simple.",
            source="NCCL user guide, NCCL_PROTO; Google Cloud, A3 Mega GPUDirect-TCPXO recipe",
        )
    yield EnvIssue(
        "NCCL_PROTO",
        value,
        "warning",
        "the choice of protocol is fixed",
        "The guide discourages it except to disable a protocol suspected of a bug; one value for "
        "all sizes costs small or large messages.",
        "Remove it.",
        effect="fixes",
    )
