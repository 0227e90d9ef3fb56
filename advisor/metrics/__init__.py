"""The analysis core: derived tables computed from what was read; pure functions over arrays.

``derive(store)`` rebuilds every derived table of every run. load.py reads the events and matches
the calls, derive.py and write.py fill the tables:

| table | worked out by | from |
|---|---|---|
| activity | timeline.py | device events, or outermost operators and backend spans (CPU) |
| step | steps.py, periods.py | annotations, else the period of the collectives, else all |
| run_breakdown, step_breakdown | breakdown.py, host.py | unions of intervals.py |
| collective | calls_device.py, calls_host.py, groups.py, phases.py | kernels or spans, requests |
| its call_id, wait, transfer | match.py, align.py, waiting.py | sequence numbers or alignment |
| its fitted_ns; alpha_beta | fits.py, contention.py, model/alpha_beta.py | transfer times |
| rank.clock_* | clock.py, clock_messages.py | ends of collectives that synchronise, else sends |
| unmatched | match.py | |
| lateness | blame.py, lateness.py, reasons.py | own time between releases and arrivals |
| link_excess | links.py with ring_*.py, rings.py, peers.py, logged.py | ends, peers, NCCL rings |
| link_excess (costs; probe; loss) | link_cost.py, savings.py; probes.py; stalls.py | the calls |
| param_bucket, gradient_sync | phases.py | gradient reductions and backward passes |
| traffic, redundant, expert_balance | summaries.py | collective |
| pipeline_stage | pipeline.py | sends and receives |
| host_gap | host.py | gaps of the device, host spans |
| critical_path | critical_path.py, host_threads.py | calls, hosts that launched late |
| overlap_slowdown | overlap.py | kernels beside communication and alone |
"""

from __future__ import annotations

from advisor.metrics.derive import derive

__all__ = ["derive"]
