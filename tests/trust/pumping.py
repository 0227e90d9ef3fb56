"""Texts that make a polynomial pattern slow, made from the pattern itself.

A pattern takes more than linear time when what it repeats can be matched in several ways, or from
several starts. So every unbounded repeat of a pattern is pumped: an example of what stands before
it, then many copies of what it repeats, then a character that fits nowhere.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

LENGTH = 15_000
_UNBOUNDED = 64
_LONG = os.environ.get("ADVISOR_TEST_EXAMPLES") == "long"
_EXAMPLES = 4 if _LONG else 2
"""Of what a repeat repeats."""
_DRAWN = 16 if _LONG else 4
"""Texts of drawn letters, and as many of two letters, beside those made from the pattern."""
_ENDS = ("\x00", "!", "\n\x00")
_COMMON = " \t0a.-:/_,=\"'[](){}|#\\<>"


def pumped(pattern: re.Pattern[Any]) -> Iterator[str]:
    """Texts of about :data:`LENGTH` characters, some for each repeat of the pattern."""
    source = pattern.pattern
    text = source.decode("latin-1") if isinstance(source, bytes) else source
    tree = parser.parse(
        text, pattern.flags & ~re.UNICODE if isinstance(source, bytes) else pattern.flags
    )
    rng = random.Random(0)
    seen: set[str] = set()
    for prefix, unit in _repeats(tree, "", rng):
        # What stands before a repeat may be repeated by it: each is a start that reads to the end.
        for start, more in {(prefix, unit), ("", unit), ("", prefix + unit)}:
            for end in _ENDS:
                one = start + (more * (LENGTH // len(more))) + end
                if one not in seen:
                    seen.add(one)
                    yield one
    letters = sorted({*_COMMON, *(c for c in text if c.isprintable())})
    units = [*_COMMON, *("".join(rng.choices(letters, k=rng.randint(2, 6))) for _ in range(_DRAWN))]
    for unit in units:
        yield unit * (LENGTH // len(unit)) + "\x00"
    for _ in range(_DRAWN):
        one, other = rng.choices(letters, k=2)
        yield one * (LENGTH // 2) + other * (LENGTH // 2) + "\x00"


def _repeats(tree: Any, prefix: str, rng: random.Random) -> Iterator[tuple[str, str]]:
    """What stands before each unbounded repeat, with an example of what it repeats."""
    for op, value in tree:
        if op in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            _, most, inner = value
            if most >= _UNBOUNDED:
                for _ in range(_EXAMPLES):
                    unit = _example(inner, rng)
                    if unit:
                        yield prefix, unit
            yield from _repeats(inner, prefix, rng)
        elif op is codes.SUBPATTERN:
            yield from _repeats(value[3], prefix, rng)
        elif op is codes.BRANCH:
            for branch in value[1]:
                yield from _repeats(branch, prefix, rng)
        elif op in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _repeats(value[1], prefix, rng)
        elif op is codes.ATOMIC_GROUP:
            yield from _repeats(value, prefix, rng)
        prefix += _example([(op, value)], rng)


def _example(tree: Any, rng: random.Random) -> str:
    """A text that the parsed pattern matches, or nearly."""
    parts = []
    for op, value in tree:
        if op is codes.LITERAL:
            parts.append(chr(value))
        elif op is codes.NOT_LITERAL:
            parts.append("a" if value != ord("a") else "b")
        elif op is codes.ANY:
            parts.append(rng.choice("a 0:"))
        elif op is codes.IN:
            parts.append(_member(value, rng))
        elif op in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            least, most, inner = value
            parts.append(_example(inner, rng) * min(max(least, 1), most))
        elif op is codes.SUBPATTERN:
            parts.append(_example(value[3], rng))
        elif op is codes.ATOMIC_GROUP:
            parts.append(_example(value, rng))
        elif op is codes.BRANCH:
            parts.append(_example(rng.choice(value[1]), rng))
    return "".join(parts)


def _member(items: Any, rng: random.Random) -> str:
    negated = bool(items) and items[0][0] is codes.NEGATE
    candidates = [c for c in (*_COMMON, *"bB1zZ\n") if _in(c, items) != negated]
    if candidates:
        return rng.choice(candidates)
    for op, value in items:
        if op is codes.LITERAL:
            return chr(value)
        if op is codes.RANGE:
            return chr(value[0])
    return "a"


def _in(char: str, items: Any) -> bool:
    code = ord(char)
    classes = {
        codes.CATEGORY_DIGIT: char.isdigit(),
        codes.CATEGORY_NOT_DIGIT: not char.isdigit(),
        codes.CATEGORY_SPACE: char.isspace(),
        codes.CATEGORY_NOT_SPACE: not char.isspace(),
        codes.CATEGORY_WORD: char.isalnum() or char == "_",
        codes.CATEGORY_NOT_WORD: not (char.isalnum() or char == "_"),
    }
    for op, value in items:
        if op is codes.LITERAL and code == value:
            return True
        if op is codes.RANGE and value[0] <= code <= value[1]:
            return True
        if op is codes.CATEGORY and classes.get(value, False):
            return True
    return False
