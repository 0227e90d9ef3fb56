"""Hold NCCL's own texts of warnings against the catalogue: which entry each gets, and which none.

    python -m benchmarks.nccl_source.messages /path/to/nccl.git [--list] [--information]

Every WARN of a release's src/ is taken as NCCL would print it (file and line before it, a word or
a one in place of each value) and named as the reader of logs names a line. Texts that only the
entry of a part of NCCL takes (effect "unlisted") are counted apart. ``--information`` does the same
for INFO, where an entry that ends a job would be a false word about a job that is well. Nothing is
built.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from advisor.model.nccl.messages import messages, named
from benchmarks.nccl_source.variables import release_name, releases, sources, without_comments

_CALLS = {
    "WARN": re.compile(
        r"\b(?:WARN\s*\(\s*|ncclDebugLog\s*\(\s*NCCL_LOG_WARN\b[^\"();]{0,200}?)(?=\")"
    ),
    "INFO": re.compile(r"\bINFO\s*\([^\"();]{1,120}?,\s*(?=\")"),
}
# A macro of numbers' forms, or the words of a macro's argument, between two literals.
_LITERAL = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|#?[A-Za-z_]\w*\s*(?=")|PRI\w{1,8})')
_VALUE = re.compile(r"%[-+ #0]*(?:\*|\d+)?(?:\.(?:\*|\d+))?(?:hh|h|ll|l|z|j|t)?([a-zA-Z])")


@dataclass(frozen=True, slots=True)
class Format:
    """One text of NCCL's, with the file that prints it."""

    path: str
    text: str

    def as_printed(self) -> str:
        """The line of a log behind its level, with values filled in."""
        said = _VALUE.sub(lambda value: "x" if value[1] == "s" else "1", self.text)
        return f"{self.path}:1 {said.strip()}".replace("%%", "%")


def formats(texts: dict[str, str], level: str) -> set[Format]:
    """The texts of ``level`` in sources by their path below src/."""
    out = set()
    for path, source in texts.items():
        clean = without_comments(source)
        for call in _CALLS[level].finditer(clean):
            text, at = "", call.end()
            while piece := _LITERAL.match(clean, at):
                text += piece[1] if piece[1] is not None else "x"
                at = piece.end()
            out.add(Format(path, text.replace("\\n", " ").replace('\\"', '"')))
    return out


def main() -> None:
    """Print a row per release, and with ``--list`` each text once with its releases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("repository", type=Path)
    parser.add_argument("--list", action="store_true", help="each text, its entry and releases")
    parser.add_argument("--information", action="store_true", help="INFO in place of WARN")
    arguments = parser.parse_args()
    level = "INFO" if arguments.information else "WARN"
    effects = {entry.id: entry.effect for entry in messages()}
    seen: dict[Format, list[str]] = {}
    entries: dict[Format, str | None] = {}
    print(f"{'release':<10}{'texts':>6}{'by an entry':>13}{'by a part':>11}{'by none':>9}")
    for tag in releases(arguments.repository):
        kinds: Counter[str] = Counter()
        files = sources(arguments.repository, tag)
        texts = {path.removeprefix("src/"): text for path, text in files.items()}
        for item in formats(texts, level):
            if item not in entries:
                entries[item] = named(item.as_printed(), is_warning=level == "WARN")
            entry = entries[item]
            seen.setdefault(item, []).append(release_name(tag))
            kinds[
                "none" if entry is None else "part" if effects[entry] == "unlisted" else "entry"
            ] += 1
        row = f"{kinds['entry']:>13}{kinds['part']:>11}{kinds['none']:>9}"
        print(f"{release_name(tag):<10}{sum(kinds.values()):>6}{row}")
    print(f"{len(seen)} texts in all")
    if arguments.list:
        for item in sorted(seen, key=lambda one: (entries[one] or "", one.path, one.text)):
            entry = entries[item]
            effect = effects[entry] if entry else ""
            print(
                f"{entry or '-'}\t{effect}\t{seen[item][0]}-{seen[item][-1]}\t{item.as_printed()}"
            )


if __name__ == "__main__":
    main()
