"""A section of the page: the question it answers, its answer in a line, and its figures."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from advisor.report.figures import Figure


def slug(text: str) -> str:
    """``text`` as part of an HTML id."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text).strip("-") or "x"


@dataclass(frozen=True)
class Section:
    """``nav`` is its name in the links; ``line`` what its folded figures come to.

    An ``is_open`` section is not folded. ``lists`` are headed lists of (text, subordinate texts).
    ``run`` is whose it is, where there are several.
    """

    id: str
    nav: str
    title: str
    figures: Sequence[Figure] = ()
    line: str = ""
    is_open: bool = False
    lists: Sequence[tuple[str, Sequence[tuple[str, Sequence[str]]]]] = field(default_factory=tuple)
    run: str = ""


def of_run(name: str, title: str, run: str, several: bool) -> tuple[str, str, str]:
    """(id suffix, id, title) of a section of one run, which has its name where there are others."""
    suffix = f"-{slug(run)}" if several else ""
    return suffix, f"{name}{suffix}", f"{title} ({run})" if several else title
