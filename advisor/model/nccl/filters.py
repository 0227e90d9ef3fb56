"""What NCCL_ALGO and NCCL_PROTO leave enabled, by the grammar of each release.

Up to 2.23 one list for everything, unknown words ignored; from 2.24 per function
(``allreduce:tree,ring;allgather:ring``), unknown words fail the initialisation. A list that
starts with ``^`` means everything else, and "everything else" switches LL128 on even where NCCL
would not dare to (the default rule applies only while NCCL_PROTO says nothing).
"""

from dataclasses import dataclass, field
from itertools import product

from advisor.errors import AdvisorError
from advisor.model.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS, algorithms, legal
from advisor.model.nccl.version import NcclVersion

PER_FUNCTION_SINCE: NcclVersion = (2, 24, 0)
COLLNET = frozenset({"CollNetDirect", "CollNetChain"})


@dataclass(frozen=True)
class Selection:
    """Names enabled for each function, or None where the variable says nothing of it."""

    chosen: dict[str, frozenset[str] | None] = field(
        default_factory=lambda: dict.fromkeys(FUNCTIONS)
    )

    def allows(self, function: str, name: str) -> bool:
        """Whether `name` may be used for `function`."""
        names = self.chosen[function]
        return names is None or name in names

    def names(self, function: str) -> frozenset[str] | None:
        """The enabled names, or None for the default."""
        return self.chosen[function]


def parse_algorithms(
    text: str | None, version: NcclVersion, off: frozenset[str] = COLLNET
) -> Selection:
    """NCCL_ALGO. Raises AdvisorError where NCCL itself would refuse to start.

    `off` is what a machine without CollNet lacks: up to 2.23 a list that leaves nothing else turns
    rings and trees on again. Empty for one with CollNet, which does not.
    """
    known = list(algorithms(version))
    spelling = {name.lower(): name for name in known}
    if version < (2, 14, 0):
        spelling["collnet"] = "CollNetDirect"
    selection = _parse("NCCL_ALGO", text, spelling, version)
    names = selection.names("AllReduce")
    if version >= PER_FUNCTION_SINCE or names is None or not off or names - off - {"PAT"}:
        return selection
    return Selection(dict.fromkeys(FUNCTIONS, names | {"Tree", "Ring"}))


def parse_protocols(text: str | None, version: NcclVersion) -> Selection:
    """NCCL_PROTO. Raises AdvisorError where NCCL itself would refuse to start."""
    return _parse("NCCL_PROTO", text, {name.lower(): name for name in PROTOCOLS}, version)


def left_without(algo: Selection, proto: Selection, version: NcclVersion) -> list[str]:
    """Functions for which the two leave nothing, so that their calls fail (from 2.24 on).

    Earlier releases fall back to rings: none.
    """
    if version < PER_FUNCTION_SINCE:
        return []
    left = {
        function
        for function, a, p in product(FUNCTIONS, algorithms(version), PROTOCOLS)
        if legal(function, a, p, version) and algo.allows(function, a) and proto.allows(function, p)
    }
    return [function for function in FUNCTIONS if function not in left]


def _parse(
    variable: str, text: str | None, spelling: dict[str, str], version: NcclVersion
) -> Selection:
    if text is None:
        return Selection()
    if version < PER_FUNCTION_SINCE:  # set and empty is a list of none
        names = _names(variable, text, spelling, strict=False)
        return Selection(dict.fromkeys(FUNCTIONS, names))
    chosen: dict[str, frozenset[str] | None] = dict.fromkeys(FUNCTIONS)
    functions = {name.lower(): name for name in FUNCTIONS}
    # As strtok splits: empty parts are none, and what follows a second colon is not read.
    for position, entry in enumerate(text.split(";")):
        if not entry:
            continue
        prefix, *rest = [part for part in entry.split(":") if part] or [entry]
        if not rest:
            if position:
                raise AdvisorError(
                    f"{variable}={text}: every entry but the first needs a function before a colon",
                    where=f"entry '{entry}'",
                    hint=f"for example allreduce:{entry}",
                )
            chosen = dict.fromkeys(FUNCTIONS, _names(variable, prefix, spelling, strict=True))
            continue
        if prefix.lower() not in functions:
            raise AdvisorError(
                f"{variable}={text}: '{prefix}' is no function NCCL knows here; it fails with "
                "ncclInvalidUsage",
                hint=f"functions: {', '.join(functions)} (send and recv have no choice)",
            )
        chosen[functions[prefix.lower()]] = _names(variable, rest[0], spelling, strict=True)
    return Selection(chosen)


def _names(variable: str, text: str, spelling: dict[str, str], *, strict: bool) -> frozenset[str]:
    inverted = text.startswith("^")
    found = set()
    for token in text.removeprefix("^").split(","):
        name = spelling.get(token.lower())
        if name is not None:
            found.add(name)
        elif token and strict:
            raise AdvisorError(
                f"{variable}: '{token}' is unknown to this NCCL, which fails with ncclInvalidUsage",
                hint=f"known: {', '.join(spelling.values())}",
            )
    every = set(ALGORITHMS) if variable == "NCCL_ALGO" else set(PROTOCOLS)
    return frozenset(every - found if inverted else found)
