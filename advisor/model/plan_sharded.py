"""What sharding leaves exposed of a step: gathers and scatters, unit by unit beside compute."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ShardedStep:
    """One step of ``micro_batches`` over ``units`` that are gathered and scattered each alone.

    ``gather_s`` and ``scatter_s`` are one unit's, ``forward_s`` and ``backward_s`` one
    micro-batch's compute in each pass.
    """

    units: int
    micro_batches: int
    gather_s: float
    scatter_s: float
    forward_s: float
    backward_s: float

    def exposed_s(self, gathers: int = 2) -> float:
        """Gathers and scatters that no compute hides, s; ``gathers`` per unit and micro-batch.

        The first gather of a pass and the last scatter have nothing beside them.
        """
        again = (gathers - 1) * self.gather_s + self.scatter_s
        ahead = max(self.units * self.gather_s - self.forward_s, self.gather_s)
        behind = max(self.units * again - self.backward_s, again)
        return self.micro_batches * (ahead + behind)

    def exposed_with_replicas_s(self, reduce_s: float) -> float:
        """The same under HSDP, where ``reduce_s`` (all units) runs between replicas at the end, s.

        It runs on other links than the gathers, beside the last backward pass, unit by unit behind
        the scatters. The compute of that pass hides both at once, and where its gathers and
        scatters outlast the compute, the reduction hides behind them too.
        """
        again = self.gather_s + self.scatter_s
        last = max(self.units * again - self.backward_s, again)
        both = max(last + reduce_s / self.units, reduce_s - self.backward_s)
        return self.exposed_s() - last + both
