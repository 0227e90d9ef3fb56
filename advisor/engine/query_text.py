"""What is refused of a rule's SQL before the database sees it: what no limit of time would stop.

A query is interrupted between two batches of rows, and never while it is parsed. So its text is
short and shallow (the parser takes the square of the brackets behind FROM, 8 s for 4,000 of them),
and holds no function of which one call takes the product of two texts' lengths.
"""

import re

import duckdb

MOST_CHARACTERS = 65_536
MOST_BRACKETS = 100
"""Inside each other."""

_ENDLESS = re.compile(
    r"\b(?:levenshtein|editdist3|damerau_levenshtein|jaro_similarity|jaro_winkler_similarity"
    r"|lpad|rpad|repeat)\b",
    re.IGNORECASE,
)
"""Functions of two texts that take the product of their lengths, and those that make a text of any
length: nothing stops one such call."""

_LONGEST_PATTERN = 200
"""Of LIKE, ILIKE and GLOB, which take that product too: known before, and as short as a name."""
_MATCHING = re.compile(r"(?:like|ilike|glob)", re.IGNORECASE)
_MAY_MATCH = re.compile(r"like|glob|~~", re.IGNORECASE)
"""Without one of these in it a query matches no pattern: most need not be taken apart."""
_MATCHING_ELSE = re.compile(r"~~|like_escape", re.IGNORECASE)


def refused(sql: str) -> str | None:
    """Why a query is not even parsed; None where it may be."""
    if len(sql) > MOST_CHARACTERS:
        return f"SQL of {len(sql):,} characters, more than {MOST_CHARACTERS:,}"
    if not _is_shallow(sql):
        return f"more than {MOST_BRACKETS} brackets inside each other"
    if endless := _ENDLESS.search(sql):
        return f"{endless[0]} is not allowed: no limit of time would stop it"
    if not _patterns_are_short(sql):
        return (
            f"a pattern of LIKE, ILIKE or GLOB is a text of up to {_LONGEST_PATTERN} "
            "characters: no limit of time would stop another"
        )
    return None


def _is_shallow(sql: str) -> bool:
    """Whether few brackets stand inside each other; those of texts and comments are none."""
    if sql.count("(") <= MOST_BRACKETS:
        return True
    deep = 0
    for kind, word in _words(sql):
        if kind == duckdb.token_type.operator:
            deep += word.startswith("(") - word.startswith(")")
        if deep > MOST_BRACKETS:
            return False
    return True


def _patterns_are_short(sql: str) -> bool:
    """Whether every pattern that texts are matched with stands in the query, and is no long one."""
    if not _MAY_MATCH.search(sql):
        return True
    words = [one for one in _words(sql) if one[0] != duckdb.token_type.comment]
    end = (duckdb.token_type.operator, "")
    for (kind, word), (text, pattern), (_, after) in zip(
        words, [*words[1:], end], [*words[2:], end, end], strict=True
    ):
        if kind == duckdb.token_type.string_const:
            continue
        is_text = text == duckdb.token_type.string_const and len(pattern) <= _LONGEST_PATTERN
        is_all = not after or after[0] in "),;" or after[0].isalpha()
        if _MATCHING_ELSE.search(word) or (_MATCHING.fullmatch(word) and not (is_text and is_all)):
            return False
    return True


def _words(sql: str) -> list[tuple[duckdb.token_type, str]]:
    """The tokens of a query, each with its kind. Their places are counted in bytes."""
    data, tokens = sql.encode(), duckdb.tokenize(sql)
    ends = [*(at for at, _ in tokens[1:]), len(data)]
    return [
        (kind, data[at:end].decode().strip()) for (at, kind), end in zip(tokens, ends, strict=True)
    ]
