"""Documents in which one element, or two, stand thousands of times: what grows faster than a file.

An element is repeated in its place: equal, as one object that is shared (a pickle refers to it), or
with some of its values counted up, so that each is a group, a member or a table of its own.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

MOST_BYTES = 5_000_000
_NUMBER = re.compile(r"\d+")
_FEW = 4


def repeated(
    document: Any, rng: random.Random, most_bytes: int = MOST_BYTES, *, is_shared: bool = False
) -> Any:
    """The document with one or two of its elements repeated, in about so many bytes as text.

    ``is_shared``: what is repeated without a change may be one object, written as a reference.
    """
    budget = int(most_bytes ** rng.choice((0.7, 0.85, 1.0, 1.0)))
    times = rng.choice((1, 1, 2))
    for _ in range(times):
        places = list(_places(document, _FEW * 1000))
        if places:
            holder, key = rng.choice(places)
            _repeat(holder, key, rng, budget // times, is_shared=is_shared)
    return document


def repeated_words(words: list[str], rng: random.Random, most_bytes: int = MOST_BYTES) -> list[str]:
    """A text's words with a line, some lines or some words repeated, in about so many bytes."""
    budget = int(most_bytes ** rng.choice((0.7, 0.85, 1.0, 1.0)))
    times = rng.choice((1, 1, 2))
    for _ in range(times):
        ends = [at + 1 for at, word in enumerate(words[:5_000]) if "\n" in word]
        start = rng.choice([0, *ends]) if rng.random() < 0.7 else rng.randrange(len(words))
        later = [at for at in ends if at > start] or [len(words)]
        end = rng.choice((rng.choice(later), later[0], start + 1, start + rng.randint(1, 9)))
        part = words[start:end]
        count = max(1, budget // times // max(1, sum(map(len, part)) + 4))
        numbers = [at for at, word in enumerate(part) if word.isdecimal()]
        counted = set(rng.sample(numbers, k=rng.randint(0, len(numbers))))
        words[start:end] = [
            str(number) if at in counted else word
            for number in range(count)
            for at, word in enumerate(part)
        ]
    return words


def _repeat(holder: Any, key: Any, rng: random.Random, budget: int, *, is_shared: bool) -> None:
    item = holder[key]
    leaves = _leaves(item)
    chosen = set(rng.sample(range(leaves), k=rng.randint(0, min(leaves, 50))))
    is_shared = is_shared and rng.random() < 0.5
    each = 8 if is_shared else len(str(item)) + 4
    count = min(max(1, budget // each), 200_000)
    copies = [
        item if is_shared else _counted(item, number, chosen, iter(range(leaves)))
        for number in range(count)
    ]
    if isinstance(holder, list):
        holder[key : key + 1] = copies
    elif rng.random() < 0.3:
        holder[key] = copies
    else:
        is_number = isinstance(key, int) or str(key).isdecimal()
        names = (number if isinstance(key, int) else str(number) if is_number else f"{key}{number}"
                 for number in range(count))  # fmt: skip
        holder.update(zip(names, copies, strict=False))


def _leaves(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(_leaves, value.values()))
    return sum(map(_leaves, value)) if isinstance(value, list | tuple) else 1


def _counted(value: Any, number: int, chosen: set[int], leaf: Iterator[int]) -> Any:
    """A copy whose chosen leaves are of this number."""
    if isinstance(value, dict):
        return {key: _counted(inner, number, chosen, leaf) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_counted(inner, number, chosen, leaf) for inner in value)
    if next(leaf) not in chosen or isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        found, times = _NUMBER.subn(str(number), value)
        return found if times else f"{value}{number}"
    return value + number if isinstance(value, int | float) else value


def _places(value: Any, most: int) -> Iterator[tuple[Any, Any]]:
    """Places that hold an element, of a large list those at its beginning."""
    items: Any = ()
    if isinstance(value, dict):
        items = list(value.items())[:most]
    elif isinstance(value, list):
        items = enumerate(value[:most])
    for key, inner in items:
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner, max(1, most // _FEW))
