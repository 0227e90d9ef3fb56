"""What every file of a job repeats is kept once: memory grows with ranks, not with their square."""

from functools import lru_cache


@lru_cache(256)
def one_copy(ranks: tuple[int, ...]) -> list[int]:
    """The same list for the same ranks; nobody changes it."""
    return list(ranks)
