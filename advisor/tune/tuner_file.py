"""A winner's NCCL_ALGO and NCCL_PROTO as rules by message size, with the plugin that applies them.

The variables leave NCCL a set of algorithms and protocols per function, of which it takes the
cheapest by its own figures. A rule holds the same set, so that the plugin takes what NCCL took.
"""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from advisor.config.atomic_files import write_atomic
from advisor.config.sweep import ENVIRONMENT_PREFIX, Value
from advisor.errors import AdvisorError
from advisor.model.nccl.filters import Selection, parse_algorithms, parse_protocols
from advisor.model.nccl.names import FUNCTIONS, PROTOCOLS, algorithms, legal
from advisor.model.nccl.settings import Call
from advisor.model.nccl.version import NcclVersion, format_version
from advisor.tune.plugin.build import FLAGS, LIBRARY_NAME, source_path
from advisor.tune.plugin.rules import (
    ANY_NAME,
    TUNERS_SINCE,
    Rule,
    check_rules,
    format_rules,
    one_of,
)

_VARIABLES = ("NCCL_ALGO", "NCCL_PROTO")


def winning_variables(
    changes: Mapping[str, Value], start: Mapping[str, Value], environment: Mapping[str, str]
) -> dict[str, str]:
    """NCCL_ALGO and NCCL_PROTO as they were in the trials that won; {} when neither was changed.

    A variable that was not swept had the value of the ``environment``.
    """
    names = {name: f"{ENVIRONMENT_PREFIX}{name}" for name in _VARIABLES}
    if not set(names.values()) & set(changes):
        return {}
    won = {**start, **changes}
    values = {
        name: won[setting] if setting in won else environment.get(name)
        for name, setting in names.items()
    }
    return {name: str(value) for name, value in values.items() if value}


def tuner_rules(
    variables: Mapping[str, str], calls: Sequence[Call], version: NcclVersion
) -> list[Rule]:
    """Rules under which NCCL chooses as it does under ``variables``, for the sizes of ``calls``.

    Functions of which the variables say nothing get no rule: NCCL's own choice. Raises
    AdvisorError, with the reason, where no rule can choose the same.
    """
    if not variables:
        return []
    if version < TUNERS_SINCE:
        raise AdvisorError(
            f"NCCL {format_version(version)} reads no rules by size; they start at 2.22"
        )
    algorithm = parse_algorithms(variables.get("NCCL_ALGO"), version)
    protocol = parse_protocols(variables.get("NCCL_PROTO"), version)
    rules = []
    for function in FUNCTIONS:
        sizes = [call.total_bytes for call in calls if call.op == function.lower()]
        if sizes and (algorithm.names(function), protocol.names(function)) != (None, None):
            chosen = _left_by(function, algorithm, protocol, version)
            rules.append(Rule(function, min(sizes), max(sizes), *chosen))
    if problems := check_rules(rules, version):
        raise AdvisorError("\n".join(problems))
    return rules


def _left_by(
    function: str, algorithm: Selection, protocol: Selection, version: NcclVersion
) -> tuple[str, str]:
    """The algorithms and the protocols that the variables leave a function, for a rule."""
    named = protocol.names(function)
    if "LL128" in (named or ()):
        raise AdvisorError(
            f"NCCL_PROTO forces LL128 for {function}, also where NCCL does not trust it; a rule "
            "cannot"
        )
    cells = [
        (a, p)
        for a in algorithms(version)
        for p in PROTOCOLS
        if legal(function, a, p, version)
        and algorithm.allows(function, a)
        and protocol.allows(function, p)
    ]
    if not cells:
        raise AdvisorError(
            f"the variables leave nothing for {function}; NCCL {format_version(version)} falls "
            "back to rings of every protocol, a rule cannot"
        )
    return (
        one_of({a for a, _ in cells}) if algorithm.names(function) is not None else ANY_NAME,
        one_of({p for _, p in cells}) if named is not None else ANY_NAME,
    )


def write_tuner(
    rules: Sequence[Rule], version: NcclVersion, folder: Path, verdict: str
) -> list[Path]:
    """The rules as tuner.csv, the plugin's source beside it, and a script that builds and selects
    it in place of the variables; nothing without rules.
    """
    if not rules:
        return []
    table, source, script = (folder / name for name in ("tuner.csv", "tuner.c", "tuner.sh"))
    write_atomic(table, format_rules(rules, version, comments=[verdict]))
    write_atomic(source, source_path().read_text(encoding="utf-8"))
    here = shlex.quote(str(folder.resolve()))
    write_atomic(
        script,
        "# . tuner.sh: the same choice by message size, in place of the variables of env.sh\n"
        f"${{CC:-cc}} {' '.join(FLAGS)} -o {here}/{LIBRARY_NAME} {here}/tuner.c\n"
        "unset NCCL_ALGO NCCL_PROTO\n"
        f"export NCCL_TUNER_PLUGIN={here}/{LIBRARY_NAME} NCCL_TUNER_CONFIG_FILE={here}/tuner.csv\n",
    )
    return [table, source, script]
