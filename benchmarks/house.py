"""How large the code is, how its rooms hang together, and how long rules' lines are.

    python -m benchmarks.house            print it
    python -m benchmarks.house --json     the same for programs

Code lines are those that hold a token which is neither a comment nor a docstring. Rooms are the
packages of advisor/metrics and what lies beside them there; an arrow is a pair of rooms of which
the first imports the second, a circle a set of rooms that import each other. Constants of clocks
and links are numbers under names of their own there: those that the judgement hangs on, and bounds
of work (``_MOST_...``, ``_FEWEST_...``); with those that no words give a reason for.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import tokenize
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "advisor"
_CONSTANT = re.compile(r"[A-Z_0-9]+ = ")
_BOUND = re.compile(r"_?(MOST|FEWEST|LEAST|LONGEST|SHORTEST)_")
_LONG_LINE = 110  # of a rule: no line of SQL or text is to be longer
_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(text: str) -> int:
    """Lines of Python without blanks, comments and docstrings."""
    doc: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            for one in body:
                # Also the strings under a constant, which document it.
                if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)):
                    continue
                if isinstance(one.value.value, str):
                    doc.update(range(one.lineno, (one.end_lineno or one.lineno) + 1))
    held: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            held.update(range(token.start[0], token.end[0] + 1))
    return len(held - doc)


def module_of(path: Path) -> str:
    """The dotted name of a file below the root."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def room_of(module: str) -> str | None:
    """The room of a module: the package below advisor.metrics, or the module there."""
    parts = module.split(".")
    return parts[2] if parts[:2] == ["advisor", "metrics"] and len(parts) > 2 else None


def arrows(files: dict[str, str]) -> Counter[tuple[str, str]]:
    """Pairs of rooms of metrics, with how many imports of modules are behind each."""
    found: Counter[tuple[str, str]] = Counter()
    for module, text in files.items():
        source = room_of(module)
        for target in set(_imported(text, files)):
            other = room_of(target)
            if source and other and source != other:
                found[source, other] += 1
    return found


def _imported(text: str, files: dict[str, str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield full if full in files else node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


def circles(pairs: Counter[tuple[str, str]]) -> list[list[str]]:
    """The sets of rooms each of which reaches the others of its set."""
    rooms = sorted({room for pair in pairs for room in pair})
    reach = {room: {b for a, b in pairs if a == room} for room in rooms}
    for middle in rooms:
        for room in rooms:
            if middle in reach[room]:
                reach[room] |= reach[middle]
    found = {
        tuple(sorted({room, *(b for b in reach[room] if room in reach[b])}))
        for room in rooms
        if room in reach[room]
    }
    return [list(one) for one in sorted(found)]


def constants(text: str) -> Iterator[tuple[str, bool]]:
    """Numbers that a module holds under names, and whether words stand at each."""
    lines = text.split("\n")
    body = ast.parse(text).body
    for at, node in enumerate(body):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        try:
            value = ast.literal_eval(node.value)
        except ValueError:
            continue
        values = value if isinstance(value, tuple) else (value,)
        if not isinstance(target, ast.Name) or not _are_numbers(values):
            continue
        after = body[at + 1] if at + 1 < len(body) else None
        documented = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        above = node.lineno - 2
        while above >= 0 and _CONSTANT.match(lines[above]):
            above -= 1  # a comment stands for all that follow it
        said = lines[above].startswith("#") or "  # " in lines[node.lineno - 1]
        yield target.id, documented or said


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(
        _are_numbers(value) if isinstance(value, tuple) else isinstance(value, int | float)
        for value in values
    )


def measure() -> dict[str, Any]:
    """Everything that is printed."""
    files = {module_of(path): path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    lines = {module: code_lines(text) for module, text in files.items()}
    packages: Counter[str] = Counter()
    for module, count in lines.items():
        packages[[*module.split("."), "(top)"][1]] += count
    pairs = arrows(files)
    rules = [
        len(line)
        for path in sorted(ROOT.glob("rules/*.yaml"))
        for line in path.read_text().split("\n")
    ]
    held = {
        f"{module}.{name}": has_words
        for module, text in files.items()
        if room_of(module) in ("clocks", "links")
        for name, has_words in constants(text)
    }
    bounds = {name for name in held if _BOUND.match(name.rpartition(".")[2])}
    return {
        "code_lines": sum(lines.values()),
        "by_package": dict(packages.most_common()),
        "files": len(files),
        "longest_files": dict(
            Counter({m: t.count("\n") for m, t in files.items()}).most_common(10)
        ),
        "rooms": dict(Counter(room for room in map(room_of, files) if room)),
        "arrows": {f"{a} -> {b}": n for (a, b), n in sorted(pairs.items())},
        "circles": circles(pairs),
        "constants": len(held.keys() - bounds),
        "bounds_of_work": len(bounds),
        "constants_without_words": sorted(
            name for name, has_words in held.items() if not has_words
        ),
        "rule_lines": len(rules),
        "rule_lines_over": {str(n): sum(x > n for x in rules) for n in (100, _LONG_LINE, 160)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--json", action="store_true")
    found = measure()
    if parser.parse_args().json:
        print(json.dumps(found, indent=1))
        return
    print(f"code lines of advisor/  {found['code_lines']:,} in {found['files']} files")
    for package, count in found["by_package"].items():
        print(f"  {package:14s} {count:6,}")
    print("longest files, lines in all")
    for module, count in found["longest_files"].items():
        print(f"  {count:5d}  {module}")
    rooms = ", ".join(f"{room} {count}" for room, count in sorted(found["rooms"].items()))
    print(f"rooms of metrics, with their modules: {rooms}")
    print(f"arrows between them  {len(found['arrows'])}   circles  {found['circles'] or 'none'}")
    numbers = f"{found['constants']}, bounds of work {found['bounds_of_work']}"
    without = ", ".join(found["constants_without_words"]) or "none"
    print(f"constants of clocks and links  {numbers}; without words: {without}")
    over = ", ".join(f"over {n}: {count}" for n, count in found["rule_lines_over"].items())
    print(f"lines of rules/*.yaml  {found['rule_lines']:,} ({over})")


if __name__ == "__main__":
    main()
