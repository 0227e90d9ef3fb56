"""Process groups as users know them: what they are for and their ranks, not torch's numbers."""

from typing import Any

from advisor.engine.facts import Facts
from advisor.engine.sandbox import Sandbox
from advisor.vocabulary.groups import group_words

_KNOWN = """
SELECT description, ranks, size, (SELECT count(*) FROM process_group o
  WHERE o.ranks = g.ranks AND o.description IS NOT DISTINCT FROM g.description) > 1
  AS is_one_of_several
FROM process_group g WHERE process_group = $name
"""


def group_name(sandbox: Sandbox, facts: Facts, name: str | None) -> str:
    """A process group in words, with its number where another one has the same ranks."""
    if name is None:
        return ""
    found = sandbox.records(_KNOWN, {"name": name})
    known: dict[str, Any] = dict(found[0]) if found else {}
    if not known.get("ranks") and not known.get("size"):
        # Not recorded: one call that all ranks of the job join shows it.
        (joined,) = sandbox.records(
            "SELECT max(matched_ranks) AS ranks FROM collective WHERE process_group = $name",
            {"name": name},
        )
        known["size"] = joined["ranks"] if joined["ranks"] == facts.world_size else None
    return group_words(name, world_size=facts.world_size, **known)
