"""The tuner's rules: what a row is, its checks against what NCCL has, and the file's text.

Format: ``colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps
[,regBuff]]``, that of NVIDIA's example plugin; first match wins. Algorithm and protocol may also be
several names joined by ``|``, or ``any``: of these the call takes what is cheapest by NCCL's own
figures, as it would with the same names in NCCL_ALGO and NCCL_PROTO (NVIDIA's plugin reads one
name only). Sizes are total bytes: for allgather and reducescatter ranks x count, while the log
line ``AllGather: N Bytes -> ...`` prints the part of one rank.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap

from advisor.errors import AdvisorError
from advisor.model.nccl.names import legal
from advisor.model.nccl.version import NcclVersion, format_version

ANY = -1
ANY_NAME = "any"
NO_LIMIT = 2**64 - 1

ALGORITHM_NAMES = {
    "tree": "Tree", "ring": "Ring", "collnet_direct": "CollNetDirect",
    "collnet_chain": "CollNetChain", "nvls": "NVLS", "nvls_tree": "NVLSTree", "pat": "PAT",
}  # fmt: skip
PROTOCOL_NAMES = {"ll": "LL", "ll128": "LL128", "simple": "Simple"}
# Tuners choose by a cost table, which the plugin needs, from here on.
TUNERS_SINCE: NcclVersion = (2, 22, 0)
ANY_RELEASE: NcclVersion = (99, 0, 0)
# Rings of these two are there on every machine.
_ALWAYS = {("Ring", "LL"), ("Ring", "Simple")}
_FEWEST_FIELDS = 8
FIELDS = "colltype,minbytes,maxbytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"


@dataclass(frozen=True)
class Rule:
    """One row, names as NCCL writes them ('AllReduce', 'NVLSTree', 'Simple'); -1 is any.

    `algorithm` and `protocol` may be several ('LL|Simple', see :func:`one_of`) or 'any', which
    leaves them to NCCL; `channels` -1 leaves the number to NCCL.
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

    @property
    def cells(self) -> frozenset[tuple[str, str]]:
        """The (algorithm, protocol) that it names and that some release has."""
        return frozenset(
            (algorithm, protocol)
            for algorithm in _listed(self.algorithm, ALGORITHM_NAMES)
            for protocol in _listed(self.protocol, PROTOCOL_NAMES)
            if legal(self.function, algorithm, protocol, ANY_RELEASE)
        )

    def covers(self, other: "Rule") -> bool:
        """Whether every call that `other` matches matches this rule too."""
        return (
            self.function == other.function
            and self.min_bytes <= other.min_bytes
            and other.max_bytes <= self.max_bytes
            and all(
                getattr(self, name) in (ANY, getattr(other, name))
                for name in ("nodes", "ranks", "pipe_ops", "registered")
            )
        )


def check_rules(rules: Sequence[Rule], version: NcclVersion) -> list[str]:
    """What is wrong with the rules, one sentence each; empty when they are sound.

    Besides what the plugin refuses: combinations this release does not have, or that NCCL does
    not use on so many nodes and ranks, rows that an earlier one hides, and NVLS for AllGather or
    ReduceScatter, which has returned permuted data (NVIDIA/nccl issue 1906).
    """
    problems = []
    for number, rule in enumerate(rules, 1):
        row = f"rule {number} ({rule.function} {rule.algorithm}/{rule.protocol})"
        if rule.min_bytes < 0 or rule.max_bytes > NO_LIMIT or rule.min_bytes > rule.max_bytes:
            problems.append(f"{row}: {rule.min_bytes} to {rule.max_bytes} bytes is no range")
        if not is_legal(rule, version):
            problems.append(f"{row}: NCCL {format_version(version)} has no such combination")
        if "NVLS" in rule.algorithm.split("|") and rule.function in ("AllGather", "ReduceScatter"):
            problems.append(f"{row}: NVLS can return permuted data here (NVIDIA/nccl issue 1906)")
        if rule.channels != ANY and not 1 <= rule.channels <= 64:
            problems.append(f"{row}: {rule.channels} channels; NCCL has 1 to 64")
        if ANY not in (rule.nodes, rule.ranks) and rule.ranks < rule.nodes:
            problems.append(f"{row}: fewer ranks than nodes")
        elif why := _never_asked(rule, version):
            problems.append(f"{row}: can never apply, {why}")
        for earlier_number, earlier in enumerate(rules[: number - 1], 1):
            applies = earlier.cells >= rule.cells or earlier.cells & _ALWAYS
            if earlier.covers(rule) and applies:
                problems.append(f"{row}: never reached, rule {earlier_number} covers it")
                break
    return problems


def _never_asked(rule: Rule, version: NcclVersion) -> str:
    """Why NCCL uses none of the rule's algorithms on its nodes and ranks; '' where it may."""
    if rule.ranks == 1:
        return "a communicator of one rank moves nothing"
    used = {a for a, p in rule.cells if legal(rule.function, a, p, version)}
    reasons = [_off(algorithm, rule.nodes, rule.ranks) for algorithm in sorted(used)]
    return reasons[0] if reasons and all(reasons) else ""


def _off(algorithm: str, nodes: int, ranks: int) -> str:
    """Why an algorithm is off on so many nodes and ranks (-1: any), whatever the machine."""
    if algorithm == "NVLSTree" and nodes == 1:
        return "NVLSTree needs several nodes"
    if ANY in (nodes, ranks):
        return ""
    if algorithm == "PAT" and nodes != ranks:
        return "PAT needs one rank per node"
    if algorithm == "CollNetDirect" and ranks > 8 * nodes:
        return "CollNetDirect covers at most 8 ranks per node"
    return ""


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
        "# reducescatter: ranks x count); channels -1 = NCCL's own number; of several names (| or",
        "# any) the cheapest by NCCL's own figures. For advisor's plugin: NVIDIA's example reads",
        "# one name, crashes on 2.27.5 to 2.29.7 and runs unmatched calls on one channel.",
        f"# {FIELDS}",
        *(_row(rule) for rule in rules),
    ]
    return "\n".join(lines) + "\n"


def _row(rule: Rule) -> str:
    written = {
        "function": rule.function.lower(),
        "algorithm": _written(rule.algorithm, ALGORITHM_NAMES),
        "protocol": _written(rule.protocol, PROTOCOL_NAMES),
    }
    fields = [*(vars(rule) | written).values()]
    while len(fields) > _FEWEST_FIELDS and fields[-1] == ANY:
        fields.pop()
    return ",".join(map(str, fields))


def one_of(names: Collection[str]) -> str:
    """Several algorithms or protocols for a :class:`Rule`: 'any' where all are given.

    Raises ValueError on an unknown name.
    """
    known = [*ALGORITHM_NAMES.values()]
    known = known if set(names) <= set(known) else [*PROTOCOL_NAMES.values()]
    if not names or not set(names) <= set(known):
        raise ValueError(f"neither algorithms nor protocols: {', '.join(names)}")
    chosen = [name for name in known if name in names]
    return ANY_NAME if chosen == known else "|".join(chosen)


def _listed(names: str, known: Mapping[str, str]) -> list[str]:
    return list(known.values()) if names == ANY_NAME else names.split("|")


def _written(names: str, known: Mapping[str, str]) -> str:
    keys = {name: key for key, name in known.items()}
    return names if names == ANY_NAME else "|".join(keys[name] for name in names.split("|"))


def is_legal(rule: Rule, version: NcclVersion) -> bool:
    """Whether each name has a combination in the release; of 'any' it is enough that one has."""
    cells = {cell for cell in rule.cells if legal(rule.function, *cell, version)}
    sides = ((rule.algorithm, {a for a, _ in cells}), (rule.protocol, {p for _, p in cells}))
    return bool(cells) and all(
        names == ANY_NAME or set(names.split("|")) == used for names, used in sides
    )
