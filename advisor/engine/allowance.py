"""What all rules from elsewhere may take together, however many they are."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from advisor.engine.memory_limit import MemoryLimit, address_space_bytes
from advisor.engine.time_limit import TimeLimit
from advisor.vocabulary.bounded_templates import limited

TOGETHER_S = 60.0
"""Processor time of all rules that are not shipped."""
RULE_S = 20.0
"""Processor time of one query of any rule, and of all texts of one."""
_MOST_GROWTH_BYTES = 2 << 30
"""Of the process while such a rule is worked on."""


class Allowance:
    """Processor time and memory that such rules share: ``with allowance.taken(queries): ...``."""

    def __init__(self, cpu_s: float = TOGETHER_S, memory_bytes: int = _MOST_GROWTH_BYTES) -> None:
        self.cpu_s = self.left_s = cpu_s
        self._memory = MemoryLimit(memory_bytes)

    @contextmanager
    def taken(self, queries: TimeLimit) -> Iterator[None]:
        """What runs within is limited to what is left, as its ``queries`` are, and taken off it."""
        began_s, had_bytes = time.process_time(), address_space_bytes()
        queries.until_s = began_s + self.left_s
        try:
            with self._memory, limited(min(RULE_S, self.left_s)):
                yield
        finally:
            queries.until_s = math.inf
            self.left_s -= time.process_time() - began_s
            # What was set aside for one is there for the next.
            kept = max(0, address_space_bytes() - had_bytes)
            self._memory.most_bytes = max(0, self._memory.most_bytes - kept)
