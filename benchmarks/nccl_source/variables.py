"""Write advisor/model/nccl/env/variables.csv from a clone of NVIDIA/nccl: what each release reads.

    python -m benchmarks.nccl_source.variables /path/to/nccl.git [2.32.3=/path/to/libnccl.so.2 ...]

Every tag's src/ is searched for the ways in which NCCL reads its environment: NCCL_PARAM,
DEFINE_NCCL_PARAM (2.30 on), ncclGetEnv and getenv. The class comes from the guide's two sections
(docs/userguide/source/env.rst of the newest tag). Releases whose sources are not out are read from
their library. Meanings are written by hand in the table itself and kept. Nothing is built or run.
"""

from __future__ import annotations

import csv
import io
import re
import subprocess
import sys
import tarfile
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.nccl_source.library import SOURCE, read_names

TABLE = Path(__file__).parents[2] / "advisor/model/nccl/env/variables.csv"
_GUIDE = "docs/userguide/source/env.rst"
_HEADER = """\
# Every variable NCCL reads, by release: written by python -m benchmarks.nccl_source.variables from
# the release tags of NVIDIA/nccl and, newer than those, from libraries (source: libnccl.so.2);
# the meanings are ours and are kept when it is written anew.
# type: integer (C's strtoll), flag (bool, 2.30 on), path (a path type) or text, as read last;
# since, until: first and last release that reads it (empty: before 2.3.5, still);
# class: the guide's S (system configuration), D (debugging), or U (not in the guide);
# defaults: number with the release it came with (empty: none, or no plain number).
"""
_PARAM = re.compile(
    r'(?<!DEFINE_)NCCL_PARAM\s*\(\s*\w+\s*,\s*"(\w+)"\s*,\s*([^;]*?)\)\s*;?\s*$', re.M
)
_DEFINED = re.compile(
    r"DEFINE_NCCL_PARAM\s*\(\s*\w+\s*,\s*([^,]+?)\s*,\s*(NCCL_\w+)\s*,\s*([^,]+?)\s*,"
)
_GETENV = re.compile(r'(?:getenv|ncclGetEnv|ncclGetEnvImpl)\s*\(\s*"(NCCL_\w+)"')
# Names handed to a helper that reads them.
_HELPER = re.compile(
    r'(?:ncclGetUserP2pLevel|getHostHash|ncclGetLevel|ncclPluginEnv|envStr|EnvVar)\b[^;"]*"(NCCL_\w+)"'
)
# ncclGetLevel(&level, "…_DISABLE", "…_LEVEL"): a number, then the name of a path.
_LEVEL = re.compile(
    r'ncclGetLevel\s*\(\s*&\w+\s*,\s*(?:"(NCCL_\w+)"|NULL|nullptr)\s*,\s*"(NCCL_\w+)"'
)
_NAMED = re.compile(
    r'const\s+char\s*\*?[^=;"]*=\s*"(NCCL_[A-Z0-9_]+)"|#define\s+\w*ENV\w*\s+"(NCCL_\w+)"'
)
_CONSTANT = re.compile(r"(?:#define\s+(\w+)\s+|constexpr\s+\w+\s+(\w+)\s*=\s*)\(?(-?[0-9][^;/\n]*)")


@dataclass
class _Read:
    """How one release reads one variable."""

    kind: str
    default: int | None
    source: str


@dataclass
class _History:
    releases: list[str] = field(default_factory=list)
    reads: list[_Read] = field(default_factory=list)


def main(repository: Path, libraries: dict[str, Path]) -> None:
    """Write the table: the tags first, then ``libraries`` by release."""
    tags = releases(repository)
    classes = _classes(_git(repository, "show", f"{tags[-1]}:{_GUIDE}"))
    history: dict[str, _History] = {}
    for tag in tags:
        for name, read in _read(repository, tag).items():
            entry = history.setdefault(name, _History())
            entry.releases.append(tag)
            entry.reads.append(read)
    for release, library in libraries.items():
        tags.append(f"v{release}-1")
        for name, (is_integer, defaults) in read_names(library).items():
            entry = history.setdefault(name, _History())
            entry.releases.append(tags[-1])
            entry.reads.append(_in_library(entry.reads, is_integer, defaults))
    meanings = _meanings()
    with TABLE.open("w", encoding="utf-8", newline="") as file:
        file.write(_HEADER)
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["name", "type", "since", "until", "class", "defaults", "source", "meaning"])
        for name in sorted(history):
            entry = history[name]
            table.writerow(
                [
                    name,
                    entry.reads[-1].kind,
                    "" if entry.releases[0] == tags[0] else release_name(entry.releases[0]),
                    "" if entry.releases[-1] == tags[-1] else release_name(entry.releases[-1]),
                    classes.get(name, "U"),
                    _defaults(entry),
                    entry.reads[-1].source,
                    meanings.get(name, ""),
                ]
            )
    print(
        f"{len(history)} variables over {len(tags)} releases, {release_name(tags[-1])} the newest"
    )


def releases(repository: Path) -> list[str]:
    """The tags of NCCL's releases, oldest first."""
    tags = _git(repository, "tag").split()
    return sorted((tag for tag in tags if re.fullmatch(r"v2\.\d+\.\d+-\d+", tag)), key=_key)


def sources(repository: Path, tag: str) -> dict[str, str]:
    """The C++ and CUDA files of a release, by their paths."""
    command = ["git", "-C", str(repository), "archive", tag, "src"]
    archive = subprocess.run(command, check=True, capture_output=True).stdout
    texts = {}
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            if member.isfile() and member.name.endswith((".cc", ".cu", ".h", ".cpp")):
                data = files.extractfile(member)
                assert data is not None
                texts[member.name] = data.read().decode("utf-8", "replace")
    return texts


def _read(repository: Path, tag: str) -> dict[str, _Read]:
    found: dict[str, _Read] = {}
    texts = {path: without_comments(text) for path, text in sources(repository, tag).items()}
    constants = {}
    for text in texts.values():
        for macro, constant, value in _CONSTANT.findall(text):
            constants[macro or constant] = value.strip().rstrip(")")
    for path, text in texts.items():
        for name, value in _PARAM.findall(text):
            found[f"NCCL_{name}"] = _Read("integer", _number(value, constants), path)
        for kind, name, value in _DEFINED.findall(text):
            flag = kind == "bool"
            default = int(value == "true") if flag else None
            found[name] = _Read("flag" if flag else "text", default, path)
        for number, level in _LEVEL.findall(text):
            found[level] = _Read("path", None, path)
            if number:
                found[number] = _Read("integer", 0, path)
        for pattern in (_GETENV, _HELPER, _NAMED):
            for groups in pattern.findall(text):
                name = groups if isinstance(groups, str) else next(filter(None, groups))
                found.setdefault(name, _Read("text", None, path))
    return found


def _in_library(before: list[_Read], is_integer: bool, defaults: set[int | None]) -> _Read:
    """How a library reads a variable that the releases in ``before`` read, the last one last."""
    default = next(iter(defaults)) if len(defaults) == 1 else None
    if not before:
        return _Read("integer" if is_integer else "text", default, SOURCE)
    last = before[-1]
    # What is no plain number in the sources is of the machine or the build.
    is_told = len(defaults) == 1 and (last.default is not None or last.source == SOURCE)
    return _Read(last.kind, default if is_told else last.default, last.source)


def without_comments(text: str) -> str:
    """A source of C or C++ without what is said beside it."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def _number(text: str, constants: dict[str, str], depth: int = 0) -> int | None:
    text = re.sub(r"\((?:u?int\d*_t|size_t|long long|int)\)|(?<=\d)[uUlL]+", "", text).strip()
    text = re.sub(
        r"[A-Za-z_]\w*",
        lambda name: f"({constants.get(name[0], name[0])})" if depth < 4 else name[0],
        text,
    )
    if re.search(r"[A-Za-z_]", text):
        return _number(text, constants, depth + 1) if depth < 4 else None
    if not re.fullmatch(r"[-+*()<\d\s]+", text) or text.count("(") != text.count(")"):
        return None
    # Digits, brackets and + - * << only: checked above.
    return int(eval(text))


def _defaults(entry: _History) -> str:
    changes = [(entry.releases[0], entry.reads[0].default)]
    changes += [
        (tag, after.default)
        for (before, after), tag in zip(pairwise(entry.reads), entry.releases[1:], strict=True)
        if before.default != after.default
    ]
    if all(value is None for _, value in changes):
        return ""
    return " ".join(
        f"{release_name(tag)}={'' if value is None else value}" for tag, value in changes
    )


def _classes(guide: str) -> dict[str, str]:
    lines, found, section = guide.splitlines(), {}, "S"
    for line, below in pairwise(lines):
        if line.startswith("Debugging") and below.startswith("==="):
            section = "D"
        if re.fullmatch(r"NCCL_\w+(?:\s.*)?", line) and re.fullmatch(r"-{5,}\s*", below):
            found[line.split()[0]] = section
    return found


def _meanings() -> dict[str, str]:
    if not TABLE.exists():
        return {}
    lines = (line for line in TABLE.read_text().splitlines() if not line.startswith("#"))
    return {row["name"]: row["meaning"] for row in csv.DictReader(lines)}


def _key(tag: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", tag)]


def release_name(tag: str) -> str:
    """``v2.29.7-1`` as 2.29.7."""
    return ".".join(tag.removeprefix("v").split("-")[0].split("."))


def _git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    named = (argument.partition("=") for argument in sys.argv[2:])
    main(Path(sys.argv[1]), {release: Path(library) for release, _, library in named})
