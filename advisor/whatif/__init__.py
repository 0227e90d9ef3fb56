"""What a change would give: the dependency graph of a step, its replay, and changes to it."""

from advisor.whatif.annotate import annotate

__all__ = ["annotate"]
