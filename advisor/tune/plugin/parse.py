"""The tuner's rule file read as strictly as the plugin reads it; what a row is: ``rules.py``."""

import re

from advisor.errors import AdvisorError
from advisor.model.nccl.names import FUNCTIONS
from advisor.tune.plugin.rules import (
    ALGORITHM_NAMES,
    ANY,
    ANY_NAME,
    ANY_RELEASE,
    FIELDS,
    NO_LIMIT,
    PROTOCOL_NAMES,
    Rule,
    is_legal,
    one_of,
)

# Limits of tuner.c.
_LONGEST_LINE = 511
_MOST_RULES = 4096

_FUNCTIONS = {name.lower(): name for name in FUNCTIONS}


def parse_rules(text: str, *, where: str = "rules") -> list[Rule]:
    """Read a rule file as the plugin does. Raises AdvisorError with every mistake's line.

    ``text`` keeps its line ends as they are in the file: a lone CR is a byte like others.
    """
    rules, mistakes = [], []
    for number, line in enumerate(text.split("\n"), 1):
        content = line.removesuffix("\r").strip(" \t")
        if len(line.encode(errors="surrogateescape")) > _LONGEST_LINE or "\0" in line:
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
        text = "\n".join(mistakes).encode(errors="surrogateescape").decode(errors="replace")
        raise AdvisorError(text, hint=f"fields: {FIELDS}")
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
        algorithm=_names(ALGORITHM_NAMES, fields[3], "algorithm"),
        protocol=_names(PROTOCOL_NAMES, fields[4], "protocol"),
        channels=_number(fields[5], "channels", 1, 64),
        nodes=_number(fields[6], "nNodes", 1, 2**31 - 1),
        ranks=_number(fields[7], "nRanks", 1, 2**31 - 1),
        pipe_ops=_number(fields[8], "numPipeOps", 1, 2**31 - 1) if len(fields) > 8 else ANY,
        registered=_number(fields[9], "regBuff", 0, 1) if len(fields) > 9 else ANY,
    )
    if rule.min_bytes > rule.max_bytes:
        raise ValueError("minbytes exceeds maxbytes")
    if not is_legal(rule, ANY_RELEASE):
        raise ValueError(f"NCCL has no {fields[3]} with {fields[4]} for {fields[0]}")
    if ANY not in (rule.nodes, rule.ranks) and rule.ranks < rule.nodes:
        raise ValueError("nRanks is below nNodes")
    return rule


def _name(names: dict[str, str], text: str, what: str) -> str:
    if text not in names:
        raise ValueError(f"unknown {what} '{text}'; known: {', '.join(names)}")
    return names[text]


def _names(known: dict[str, str], text: str, what: str) -> str:
    if text == ANY_NAME:
        return ANY_NAME
    try:
        return one_of([_name(known, name, what) for name in text.split("|")])
    except ValueError as error:
        raise ValueError(f"{error}; several are joined by |, any is all of them") from error


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
