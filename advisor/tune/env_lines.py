"""Settings in lines that are no shell: nccl.conf, env files, YAML, Dockerfiles, csh, fish, Python.

Each is told by how the line looks, since one file often holds several (a script in a YAML).
"""

import re
from collections.abc import Iterator, Sequence

NAME = r"(?:NCCL|TORCH|CUDA)_\w+"
# NAME=value and nothing else: no blank, no second setting, nothing that a shell would act on.
_PLAIN = re.compile(r"\s*([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|[^\s\"'`|&<>()]*)(?:\s+#.*|\s*)")
_QUOTED = r"(\"[^\"]*\"|'[^']*'|[^\s#\"'{}\[\],]++)"
_YAML_NAME = re.compile(rf"[\s\-{{]*name:\s*[\"']?({NAME})[\"']?\s*(?:,\s*value:\s*{_QUOTED}.*)?")
_YAML_VALUE = re.compile(rf"\s*value:(?:\s+{_QUOTED})?\s*(?:#.*)?")
_YAML_MAPPING = re.compile(rf"[\s\-]*[\"']?({NAME})[\"']?:\s+{_QUOTED}\s*(?:#.*)?")
_DEFAULT = re.compile(rf"\$\{{({NAME}):?=([^{{}}]*)\}}")
_YAML_NULL = ("null", "Null", "NULL", "~")
_FORMS = (
    re.compile(rf"\s*setenv\s+({NAME})\s+{_QUOTED}.*"),  # csh
    re.compile(rf"\s*ENV\s+({NAME})\s+(\S.*)"),  # Dockerfile
    re.compile(rf"\s*set\s+(?:-\w+\s+|--export\s+|--global\s+)*({NAME})\s+{_QUOTED}.*"),  # fish
    re.compile(rf"\s*os\.environ\[[\"']({NAME})[\"']\]\s*=\s*(\"[^\"]*\"|'[^']*').*"),
    re.compile(rf"\s*os\.environ\.setdefault\([\"']({NAME})[\"'],\s*(\"[^\"]*\"|'[^']*')\).*"),
)


def plain(lines: Sequence[str]) -> bool:
    """Whether all lines are ``NAME=value``, as in nccl.conf: nothing there parts commands."""
    kept = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
    return bool(kept) and all(
        _PLAIN.fullmatch(line) and not re.search(r";\s*\w*=", line) and not line.endswith(";")
        for line in kept
    )


def plain_setting(line: str) -> tuple[str, str] | None:
    """(name, value) of a line of nccl.conf or an env file."""
    found = _PLAIN.fullmatch(line)
    return (found[1], _bare(found[2])) if found and re.fullmatch(NAME, found[1]) else None


def other_setting(line: str, before: str) -> tuple[str, str] | None:
    """(name, value) that a line sets in a form that is no shell; ``before`` is the line above.

    Kubernetes has the value in the line below the name: it counts where the value stands. YAML's
    null sets the empty text, which NCCL reads as not set.
    """
    named = _YAML_NAME.fullmatch(line)
    if named:
        return (named[1], _yaml(named[2])) if named[2] else None
    value, above = _YAML_VALUE.fullmatch(line), _YAML_NAME.fullmatch(before)
    if value and above and not above[2]:
        return above[1], _yaml(value[1])
    if mapping := _YAML_MAPPING.fullmatch(line):
        return mapping[1], _yaml(mapping[2])
    found = next((match for form in _FORMS if (match := form.fullmatch(line))), None)
    return (found[1], _bare(found[2].rstrip())) if found else None


def awaits_value(line: str) -> bool:
    """Whether the line names a variable whose value stands in the next one."""
    named = _YAML_NAME.fullmatch(line)
    return named is not None and not named[2]


def defaults(line: str) -> Iterator[tuple[str, str]]:
    """(name, value) of ``${NAME:=value}``: set where it was not."""
    yield from _DEFAULT.findall(line)


def names(line: str) -> list[str]:
    """The names of NCCL's variables in a line, but for those whose value is only asked for."""
    return re.findall(r"(?<![\w$])(?<!\$\{)NCCL_[A-Z0-9_]+\b", line.partition(" #")[0])


def _yaml(value: str | None) -> str:
    return "" if value is None or value in _YAML_NULL else _bare(value)


def _bare(value: str) -> str:
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
