"""How numbers, times, sizes and ranks are written everywhere: two digits, whole from 10 on.

Times are ms below 10 s (µs below 0.1 ms), sizes decimal, and the unit stands beside the number.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

_SUREST = 0.99
_ROUNDED = 0.05  # by so much two digits may differ from what they stand for
_SHORTEST_CUT = 12  # characters of a name that was cut in its middle
LONGEST_LIST = 60  # characters; beyond that, numbers of ranks say nothing


def significant(value: float, digits: int = 3) -> str:
    """A number with ``digits`` significant figures: 0.0123, 1.23, 1,230; '–' where it is none."""
    if not math.isfinite(value):
        return "–"
    if 0 < abs(value) < 1e-6:
        # A probability, say: nobody counts its zeros.
        return f"{value:.{digits - 1}e}".replace("e-0", "e-")
    number = float(f"{value:.{digits}g}") + 0.0  # no -0
    if abs(number) >= 10 ** (digits - 1):
        return f"{number:,.0f}"
    text = f"{number:.{digits}g}"
    return f"{number:.12f}".rstrip("0") if "e" in text else text


def short(value: float) -> str:
    """A number in two digits, whole from 10 on: 0.17, 8.2, 95, 1,085."""
    return f"{value:,.0f}" if 10 <= abs(value) < math.inf else significant(value, 2)


def about(ns: float) -> str:
    """A duration in µs under 0.1 ms, in ms under 10 s, else in s: two digits, or whole ms
    where it has more: '8 ms', '95 ms', '273 ms'.
    """
    factor, unit = _unit(ns)
    return f"{short(ns / factor)}{unit}"


def differs(one: float, other: float) -> bool:
    """Whether two numbers differ in their first two digits by more than rounding: 88 and 76."""
    return abs(one - other) > _ROUNDED * max(abs(one), abs(other))


def span(low_ns: float, high_ns: float, most_ns: float = math.inf) -> str:
    """An interval of two-digit ends in the unit of its high one: '46–220 ms'.

    Both ends are rounded outwards, so that what lies inside also does so as it is written; the
    high one no further than ``most_ns`` as that is written: of a 233 ms step nobody saves 240.
    """
    factor, unit = _unit(high_ns)
    high = _end(high_ns / factor, math.ceil)
    if high_ns <= most_ns < factor * _number(high):
        high = short(most_ns / factor)
    return f"{_end(low_ns / factor, math.floor)}–{high}{unit}"


def _end(value: float, rounded: Callable[[float], int]) -> str:
    if not value:
        return "0"
    scale = 10.0 ** (1 - math.floor(math.log10(abs(value))))
    return significant(rounded(round(value * scale, 6)) / scale, 2)


def _number(written: str) -> float:
    return float(written.replace(",", ""))


def between(low: float, high: float) -> str:
    """A range of numbers, '48–310', or the one number where both are written alike."""
    first, last = short(low), short(high)
    return first if first == last else f"{first}–{last}"


def is_wide(low_ns: float | None, high_ns: float | None) -> bool:
    """Whether one number would promise too much: the ends differ by more than a factor of two."""
    return low_ns is not None and high_ns is not None and high_ns > 2 * low_ns > 0


def estimate(
    ns: float, low_ns: float | None, high_ns: float | None, most_ns: float = math.inf
) -> str:
    """'76 ms (30–130 ms)', or '76 ms' where the interval is not known or narrower than a tenth."""
    said = ends(ns, low_ns, high_ns, most_ns).removeprefix("; ")
    return f"{about(ns)} ({said})" if said else about(ns)


def ends(ns: float, low_ns: float | None, high_ns: float | None, most_ns: float = math.inf) -> str:
    """The same interval behind a share, '; 30–130 ms'; '' where :func:`estimate` has none."""
    if low_ns is None or high_ns is None or not low_ns <= ns <= high_ns:
        return ""
    return "" if high_ns - low_ns <= 0.1 * ns else f"; {span(low_ns, high_ns, most_ns)}"


def fall(ns: float, low_ns: float | None, high_ns: float | None, most_ns: float = math.inf) -> str:
    """What a step must be shorter by once it is mended, of the interval that every view says:
    '46–220 ms', 'up to 5 ms' where it reaches down to nothing, 'about 76 ms' where it is not known
    or narrower than a tenth."""
    if low_ns is not None and high_ns is not None and low_ns <= 0 < high_ns:
        return f"up to {about(max(ns, high_ns))}"
    return ends(ns, low_ns, high_ns, most_ns).removeprefix("; ") or f"about {about(ns)}"


def unit_words(whole_trace: bool) -> dict[str, str]:
    """What texts say of a step: 'in all' is meant where the whole trace is taken as one."""
    if whole_trace:
        return {"unit": "trace", "per_step": "in all"}
    return {"unit": "step", "per_step": "per step"}


def of_step(step_ns: float, whole_trace: bool = False, is_mean: bool = False) -> str:
    """'every 273 ms step', or 'the 273 ms trace' where all of it was taken as one step.

    ``is_mean``: of what happens in some steps only, 'the mean step of 273 ms'.
    """
    if whole_trace:
        return f"the {about(step_ns)} trace"
    return f"the mean step of {about(step_ns)}" if is_mean else f"every {about(step_ns)} step"


def _unit(ns: float) -> tuple[float, str]:
    if abs(ns) >= 10e9:
        return 1e9, " s"
    return (1e6, " ms") if abs(ns) >= 1e5 or ns == 0 else (1e3, " µs")


def fitted(text: str, most: int) -> str:
    """``text`` in ``most`` characters: the longest words (names) lose their middle first."""
    words = text.split(" ")
    while len(" ".join(words)) > most:
        longest = max(range(len(words)), key=lambda index: len(words[index]))
        word = words[longest]
        if len(word) <= _SHORTEST_CUT:
            return f"{' '.join(words)[: most - 1]}…"
        keep = max(_SHORTEST_CUT, len(word) - (len(" ".join(words)) - most) - 1)
        words[longest] = f"{word[: (keep - 1) // 2]}…{word[-(keep - 1 - (keep - 1) // 2) :]}"
    return " ".join(words)


def size(value: float) -> str:
    """Bytes as decimal kB, MB, GB: traffic and message sizes (settings in MiB say MiB)."""
    for limit, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= limit:
            return f"{short(value / limit)} {unit}"
    return f"{short(value)} B"


def ranks_text(ranks: Iterable[int]) -> str:
    """Ranks in short: [0, 1, 2, 5] becomes '0-2, 5'."""
    parts: list[str] = []
    ordered = sorted(set(ranks))
    start = previous = None
    for rank in [*ordered, None]:
        if previous is not None and rank is not None and rank == previous + 1:
            previous = rank
            continue
        if start is not None and previous is not None:
            if previous == start:
                parts.append(f"{start}")
            else:
                parts.append(f"{start}{'-' if previous > start + 1 else ', '}{previous}")
        start = previous = rank
    return ", ".join(parts)


def cut(text: str, width: int) -> str:
    """``text``, where longer than ``width`` characters cut behind a word, with an ellipsis."""
    return text if len(text) <= width else text[:width].rsplit(" ", 1)[0] + "…"


def named_ranks(ranks: Iterable[int]) -> str:
    """The same with the word before it: 'rank 2', 'ranks 6, 7'."""
    known = sorted(set(ranks))
    return f"rank{'' if len(known) == 1 else 's'} {ranks_text(known)}"


def some_ranks(ranks: Iterable[int]) -> str:
    """As :func:`named_ranks`, or how many where that would be a long list."""
    known = sorted(set(ranks))
    text = named_ranks(known)
    return text if len(text) <= LONGEST_LIST else f"{len(known)} ranks"


def some_hosts(hosts: Sequence[str]) -> str:
    """The first four, and how many there are beside them."""
    more = len(hosts) - 4
    return ", ".join(hosts[:4]) + (f" and {more} more" if more > 0 else "")


def op_text(op: str) -> str:
    """A collective at the beginning of a sentence, also one that a table does not name."""
    return "An unnamed operation" if op == "unknown" else op


def counts_text(counts: Mapping[str, int]) -> str:
    """Reasons with how often each: 'cut (3), refused (1)'."""
    return ", ".join(f"{reason} ({n:,})" for reason, n in counts.items() if n) or (
        "reason not recorded"
    )


def group_text(size: int, read: Iterable[int]) -> str:
    """A group by its size in the job, and how many were read where others are missing."""
    known = len(set(read))
    missing = f", {known} of them read" if 0 < known < size else ""
    return f"{size} rank{'' if size == 1 else 's'}{missing}"


def plural(number: int, noun: str, several: str = "") -> str:
    """'1 rank', '8 ranks'."""
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def percent(share: float) -> str:
    """A share as percent: 0.183 becomes '18 %', 0.0183 '1.8 %', 0.00072 'under 0.1 %'.

    What is not whole does not read so: 0.9972 becomes '99.7 %', 0.9996 'over 99.9 %'.
    """
    if 0 < share < 0.001:
        return "under 0.1 %"
    if 0.995 <= share < 1:
        return f"{100 * share:.1f} %" if share < 0.9995 else "over 99.9 %"
    return f"{significant(100 * share, 2)} %"


def certainty(probability: float) -> str:
    """How sure a finding is, '97 %': never all of it, and never nothing."""
    return percent(min(max(probability, 1 - _SUREST), _SUREST))


def lower_first(sentence: str) -> str:
    """``sentence`` as it stands inside another one; names such as 'DDP' and 'all_reduce' stay."""
    if sentence[1:2].isupper():
        return sentence
    return f"{sentence[:1].lower()}{sentence[1:]}"
