"""The tuner's rule file: parsed and written strictly, checked against what NCCL has.

Format: ``colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps
[,regBuff]]``, that of NVIDIA's example plugin; first match wins. Sizes are total bytes: for
allgather and reducescatter ranks x count, while the log line ``AllGather: N Bytes -> ...``
prints the part of one rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isqrt
from textwrap import wrap

from advisor.errors import AdvisorError
from advisor.model.nccl.names import FUNCTIONS, legal
from advisor.model.nccl.version import NcclVersion, format_version

ANY = -1
NO_LIMIT = 2**64 - 1

# Limits of tuner.c.
_LONGEST_LINE = 511
_MOST_RULES = 4096

_ALGORITHMS = {
    "tree": "Tree",
    "ring": "Ring",
    "collnet_direct": "CollNetDirect",
    "collnet_chain": "CollNetChain",
    "nvls": "NVLS",
    "nvls_tree": "NVLSTree",
    "pat": "PAT",
}
_PROTOCOLS = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}
_FUNCTIONS = {name.lower(): name for name in FUNCTIONS}
_FIELDS = "colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"


@dataclass(frozen=True)
class Rule:
    """One row, names as NCCL writes them ('AllReduce', 'NVLSTree', 'Simple'); -1 is any.

    `channels` -1 leaves the number to NCCL.
    """

    function: str
    min_bytes: int
    max_bytes: int
    algorithm: str
    protocol: str
    channels: int = ANY
    nodes: int = ANY
    ranks: int = ANY
    pipe_ops: int = ANY
    registered: int = ANY

    def covers(self, other: Rule) -> bool:
        """Whether every call that `other` matches matches this rule too."""
        return (
            self.function == other.function
            and self.min_bytes <= other.min_bytes
            and other.max_bytes <= self.max_bytes
            and all(
                mine in (ANY, theirs)
                for mine, theirs in [
                    (self.nodes, other.nodes),
                    (self.ranks, other.ranks),
                    (self.pipe_ops, other.pipe_ops),
                    (self.registered, other.registered),
                ]
            )
        )


@dataclass(frozen=True)
class Winner:
    """What won at one measured size of one function."""

    function: str
    total_bytes: int
    algorithm: str
    protocol: str
    channels: int = ANY


def check_rules(rules: Sequence[Rule], version: NcclVersion) -> list[str]:
    """What is wrong with the rules, one sentence each; empty when they are sound.

    Besides what the plugin refuses: combinations this release does not have, rows that an
    earlier one hides, and NVLS for AllGather or ReduceScatter, which has returned permuted data
    (NVIDIA/nccl issue 1906).
    """
    problems = []
    for number, rule in enumerate(rules, 1):
        row = f"rule {number} ({rule.function} {rule.algorithm}/{rule.protocol})"
        if rule.min_bytes < 0 or rule.max_bytes > NO_LIMIT or rule.min_bytes > rule.max_bytes:
            problems.append(f"{row}: {rule.min_bytes} to {rule.max_bytes} bytes is no range")
        if not legal(rule.function, rule.algorithm, rule.protocol, version):
            problems.append(f"{row}: NCCL {format_version(version)} has no such combination")
        if rule.algorithm == "NVLS" and rule.function in ("AllGather", "ReduceScatter"):
            problems.append(f"{row}: NVLS can return permuted data here (NVIDIA/nccl issue 1906)")
        if rule.channels != ANY and not 1 <= rule.channels <= 64:
            problems.append(f"{row}: {rule.channels} channels; NCCL has 1 to 64")
        if ANY not in (rule.nodes, rule.ranks) and rule.ranks < rule.nodes:
            problems.append(f"{row}: fewer ranks than nodes")
        for earlier_number, earlier in enumerate(rules[: number - 1], 1):
            same_cell = (earlier.algorithm, earlier.protocol) == (rule.algorithm, rule.protocol)
            if earlier.covers(rule) and (same_cell or earlier.algorithm == "Ring"):
                problems.append(f"{row}: never reached, rule {earlier_number} covers it")
                break
    return problems


def format_rules(
    rules: Sequence[Rule], version: NcclVersion, *, comments: Iterable[str] = ()
) -> str:
    """The file's text. Raises AdvisorError, listing every problem of `check_rules`."""
    problems = check_rules(rules, version)
    if problems:
        raise AdvisorError("\n".join(problems), hint="the tuner file was not written")
    lines = [
        *(f"# {line}" for text in comments for line in wrap(text.replace("\0", " "), 100)),
        f"# NCCL {format_version(version)}; first match wins; sizes are total bytes (allgather and",
        "# reducescatter: ranks x count); channels -1 = NCCL's own number. For advisor's plugin:",
        "# NVIDIA's example crashes on 2.27.5 to 2.29.7 and runs unmatched calls on one channel.",
        f"# {_FIELDS}",
        *(_row(rule) for rule in rules),
    ]
    return "\n".join(lines) + "\n"


def _row(rule: Rule) -> str:
    algorithm = {name: key for key, name in _ALGORITHMS.items()}[rule.algorithm]
    fields: list[object] = [
        rule.function.lower(),
        rule.min_bytes,
        rule.max_bytes,
        algorithm,
        rule.protocol.lower(),
        rule.channels,
        rule.nodes,
        rule.ranks,
    ]
    if rule.pipe_ops != ANY or rule.registered != ANY:
        fields.append(rule.pipe_ops)
    if rule.registered != ANY:
        fields.append(rule.registered)
    return ",".join(str(field) for field in fields)


def parse_rules(text: str, *, where: str = "rules") -> list[Rule]:
    """Read a rule file as the plugin does. Raises AdvisorError with every mistake's line."""
    rules, mistakes = [], []
    for number, line in enumerate(text.split("\n"), 1):
        content = line.removesuffix("\r").strip(" \t")
        if len(line.encode()) > _LONGEST_LINE or "\0" in line:
            mistakes.append(
                f"{where}:{number}: the line is longer than {_LONGEST_LINE} bytes or holds a NUL"
                " byte"
            )
            continue
        if not content or content.startswith("#"):
            continue
        try:
            rules.append(_parse_row([field.strip(" \t") for field in content.split(",")]))
        except ValueError as error:
            mistakes.append(f"{where}:{number}: {error}")
            continue
        if len(rules) > _MOST_RULES:
            mistakes.append(f"{where}:{number}: more than {_MOST_RULES} rules")
            break
    if mistakes:
        raise AdvisorError("\n".join(mistakes), hint=f"fields: {_FIELDS}")
    return rules


def _parse_row(fields: list[str]) -> Rule:
    if not 8 <= len(fields) <= 10:
        raise ValueError(f"expected 8 to 10 comma-separated fields, found {len(fields)}")
    if fields[0] == "colltype":
        raise ValueError("a header row is not part of the format; write it as a comment")
    rule = Rule(
        function=_name(_FUNCTIONS, fields[0], "collective"),
        min_bytes=_size(fields[1], "minbytes"),
        max_bytes=_size(fields[2], "maxbytes"),
        algorithm=_name(_ALGORITHMS, fields[3], "algorithm"),
        protocol=_name(_PROTOCOLS, fields[4], "protocol"),
        channels=_number(fields[5], "channels", 1, 64),
        nodes=_number(fields[6], "nNodes", 1, 2**31 - 1),
        ranks=_number(fields[7], "nRanks", 1, 2**31 - 1),
        pipe_ops=_number(fields[8], "numPipeOps", 1, 2**31 - 1) if len(fields) > 8 else ANY,
        registered=_number(fields[9], "regBuff", 0, 1) if len(fields) > 9 else ANY,
    )
    if rule.min_bytes > rule.max_bytes:
        raise ValueError("minbytes exceeds maxbytes")
    if not legal(rule.function, rule.algorithm, rule.protocol, (99, 0, 0)):
        raise ValueError(f"NCCL has no {fields[3]} with {fields[4]} for {fields[0]}")
    if ANY not in (rule.nodes, rule.ranks) and rule.ranks < rule.nodes:
        raise ValueError("nRanks is below nNodes")
    return rule


def _name(names: dict[str, str], text: str, what: str) -> str:
    if text not in names:
        raise ValueError(f"unknown {what} '{text}'; known: {', '.join(names)}")
    return names[text]


def _size(text: str, what: str) -> int:
    if not re.fullmatch(r"[0-9]{1,20}", text) or int(text) > NO_LIMIT:
        raise ValueError(f"{what} is no size: '{text}'")
    return int(text)


def _number(text: str, what: str, least: int, most: int) -> int:
    if text == "-1":
        return ANY
    if not re.fullmatch(r"[0-9]{1,12}", text) or not least <= int(text) <= most:
        raise ValueError(f"{what} must be -1 or {least} to {most}, not '{text}'")
    return int(text)


def ranges(winners: Sequence[Winner], *, nodes: int = ANY, ranks: int = ANY) -> list[Rule]:
    """Rules that apply each winner around the size it won at, for measured sizes only.

    Neighbours that agree are joined; between two that do not the border is their geometric mean.
    Below the smallest and above the largest measured size no rule is made: nothing was measured.
    """
    rules: list[Rule] = []
    for function in FUNCTIONS:
        own = sorted((w for w in winners if w.function == function), key=lambda w: w.total_bytes)
        if len({winner.total_bytes for winner in own}) != len(own):
            raise ValueError(f"two winners of {function} at the same size")
        borders = [isqrt(a.total_bytes * b.total_bytes) for a, b in pairwise(own)]
        for position, winner in enumerate(own):
            low = winner.total_bytes if position == 0 else borders[position - 1] + 1
            high = winner.total_bytes if position == len(own) - 1 else borders[position]
            choice = (winner.algorithm, winner.protocol, winner.channels)
            last = rules[-1] if rules and rules[-1].function == function else None
            if last and (last.algorithm, last.protocol, last.channels) == choice:
                rules[-1] = Rule(function, last.min_bytes, high, *choice, nodes, ranks)
            else:
                rules.append(Rule(function, low, high, *choice, nodes, ranks))
    return rules
