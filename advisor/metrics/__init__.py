"""The analysis core: derived tables computed from what was read; pure functions over arrays.

``derive(store)`` rebuilds every derived table of every run:

| table | filled by | from |
|---|---|---|
| activity | derive.py | timeline.py: device events, or outermost operators and backend spans |
| step | derive.py | steps.py |
| run_breakdown, step_breakdown | derive.py | breakdown.py over intervals.py |
| collective | derive.py | calls_device.py, calls_host.py, groups.py, match.py, waiting.py |
| unmatched | derive.py | match.py |
"""

from __future__ import annotations

from advisor.metrics.derive import derive

__all__ = ["derive"]
