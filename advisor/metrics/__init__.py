"""The analysis core: derived tables computed from what was read; pure functions over arrays.

``derive(store)`` rebuilds every derived table of every run: load.py reads events and matches calls,
write.py and the rooms make the tables. A room imports only those below it (pyproject.toml):

    derive -> write -> links, compare, load -> lateness, models -> clocks, host -> rings, steps
           -> collectives -> timeline

| table | worked out by | from |
|---|---|---|
| activity | timeline/timeline | device events, or outermost operators and backend spans (CPU) |
| step | steps/annotated, optimizer, periods | annotations, optimizer steps, a period, else all |
| run_breakdown, step_breakdown | timeline/breakdown, host/activity | unions of intervals |
| collective | collectives/nccl, gloo, groups, phases | kernels or spans, requests |
| its call_id | collectives/match, align | sequence numbers or alignment |
| its wait, transfer | lateness/waiting | aligned arrivals |
| its fitted_ns; alpha_beta | models/fits, timeline/contention | transfer times |
| rank.clock_* | clocks/offsets, messages | ends of collectives that synchronise, else sends |
| unmatched | collectives/match | |
| lateness | lateness/blame, rows, reasons | own time between releases and arrivals |
| link_excess | links/attribution, staggers, peers; rings/from_log | ends, peers, NCCL's rings |
| link_excess (costs; probe; loss) | links/cost, probes, stalls; models/savings | the calls |
| param_bucket, gradient_sync | collectives/gradients | gradient reductions and backward passes |
| traffic, expert_balance | collectives/summaries | collective |
| redundant | collectives/redundant | collective, host_gap |
| pipeline_stage | models/pipeline | sends and receives |
| host_gap | host/activity | gaps of the device, host spans |
| critical_path | models/critical_path, host/threads | calls, hosts that launched late |
| avoidable_compute | host/avoidable | kernels in the order of their launches, operators |
| overlap_slowdown | host/overlap | kernels beside communication and alone |
"""

from advisor.metrics.derive import derive

__all__ = ["derive"]
