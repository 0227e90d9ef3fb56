"""Every sentence of verdicts and notes, by its code: rendered last, read in one sitting.

Texts are Jinja with the filters of :mod:`advisor.vocabulary.words`. Rules word their own findings
(``rules/*.yaml``); docs/style.md says how to write, and a test reads both.
"""

from __future__ import annotations

from typing import Any

from advisor.vocabulary.words import render_lines

MOST_TITLE = 140
"""Characters of a verdict, of whatever command."""

NOTES = {
    "benchmark-hardware": (
        "{{ tables }} benchmark table{{ 's' if tables != 1 }} of unknown "
        "{{ 'NICs' if gpus_known and across else 'links' if gpus_known else 'hardware' }}: "
        "--hardware MACHINE (advisor plan --help lists them) holds "
        "{{ 'them' if tables != 1 else 'it' }} against a data sheet"
    ),
    "kernels-not-known": (
        "{{ share | pct }} of the devices' time in kernels is understood; the longest others: "
        "{% for one in kernels %}{{ one.name[:60] }} ({{ one.ns | ms }}){{ ', ' if not loop.last }}"
        "{% endfor %}. They count as compute and may communicate"
    ),
    "no-device-events": (
        "no device events were recorded on {{ ranks | named_ranks }}: {{ recorded | counts }} were"
    ),
    "impossible-bandwidth": (
        "{{ calls }} {{ op }} calls would have run at up to {{ said_gbps | num }} GB/s where the "
        "device's links carry {{ limit_gbps | num }} GB/s: a size or a group is recorded wrongly, "
        "and their bandwidths are left out"
    ),
    "edge-gap": (
        "the device of rank {{ rank }} waits {{ gap_ns | ms }} {{ 'before its work begins' "
        "if edge == 'leading' else 'after its work' }}"
        "{% if kind == 'graph-capture' %} (a CUDA graph is captured){% elif kind == 'loading' %}"
        " (memory and modules are set up)"
        "{% elif kind == 'synchronisation' %} (the host waits for the device){% endif %}"
        "{% if not counted %}: not counted{% endif %}"
    ),
    "inference": (
        "this is inference{% if engine %} ({{ engine }}){% endif %}: what is said of training does "
        "not apply"
    ),
    "file-not-read": "file {{ path }} was not read: {{ reason }}",
    "file-lost-records": (
        "file {{ path }} lost records: {{ lost | counts }}{% if words %}; {{ words }}{% endif %}"
    ),
    "file-partly-read": "file {{ path }}: {{ words }}",
    "file-of-other-format": "{{ path }}: {{ words }}",
    "file": "{{ path }}: {{ words }}",
    "warm-up": "step {{ steps | ranks }} took over 1.5 times the median and counts as warm-up",
    "odd-step": (
        "step {{ step }} took {{ '%.0f' | format(times) }} times the median and is left out of all "
        "figures per step"
    ),
    "ranks-missing": (
        "{{ ranks_read }} of {{ world_size }} ranks were given, {{ missing | named_ranks }} not: "
        "what the others did is not known"
    ),
    "ranks-cut": "the recording of rank {{ ranks | ranks }} is cut or damaged",
    "events-lost": "rank {{ rank }} lost events: {{ lost | counts }}",
    "groups-not-recorded": (
        "several process groups communicate, and the recordings do not say whose a call is: such "
        "calls are not compared across ranks"
    ),
    "probe": "{{ words }}",
    "clock-fit": (
        "clocks were aligned by when ranks leave their calls: that fit is good to "
        "{{ residual_ns | ms }}, which does not prove the clocks right"
    ),
    "steps-whole-trace": (
        "no step annotations: the whole trace is taken as one step; figures are per trace, those "
        "called per step too"
    ),
    "steps-by-period": (
        "no step annotations: a repeating pattern was taken as the step: {% if step_ns %}"
        "{{ steps }} of {{ step_ns | ms }}{% else %}none complete{% endif %}, may be a micro-batch"
    ),
    "steps-by-optimizer": (
        "no step annotations: from one optimizer step to the next was taken as the step: "
        "{% if step_ns %}{{ steps }} of {{ step_ns | ms }}{% else %}none complete{% endif %}"
    ),
    "outside-steps": (
        "{{ outside_ns | ms }} of communication on rank {{ rank }} ({{ share | pct }} of it"
        "{% if stray_calls %}, {{ stray_calls }} of {{ calls }} calls{% endif %}) belong to no "
        "step and are not counted: launched outside all steps, or before the recording"
    ),
    "link-may-hide": (
        "a slow link may hide behind the hosts' clocks, which differ by {{ differ_ns | about }}: "
        "{{ exposed_ns | about }} per step is exposed transfer between hosts; advisor probe tells"
    ),
    "ranks-not-read": (
        "{{ missing | some_ranks }} {{ 'was' if missing | length == 1 else 'were' }} not read "
        "({{ ranks_read }} of {{ world_size }} {{ 'was' if ranks_read == 1 else 'were' }}): "
        "waiting for {{ 'it' if missing | length == 1 else 'them' }} counts as communication"
    ),
}
"""What is said of the inputs and of the steps, by ``Note.code``."""


_LOST = (
    "{% if idles_more %}The device idles {{ idle | pct }} of the {{ unit }}, {{ exposed | pct }} "
    "is exposed communication{% else %}{{ exposed | pct }} of the {{ unit }} is exposed "
    "communication{% endif %}"
)

VERDICTS = {
    # 1 sure
    "sure": "{{ cause }}: {{ gain_ns | about }} of {{ step_ns | of_step(whole_trace, is_mean) }}"
    " ({{ share | pct }}{% if is_wide %}; {{ gain_low_ns | span(gain_high_ns) }}{% endif %}).",
    "no-gain": "{{ cause }}.",
    # 2 probable
    "probable": "Probably {{ cause | lower_first }}: {{ gain_ns | about }} of "
    "{{ step_ns | of_step(whole_trace, is_mean) }} ({{ share | pct }}"
    "{% if gain_low_ns and gain_high_ns %}; {{ gain_low_ns | span(gain_high_ns) }}{% endif %}).",
    # 3 real, of unknown cost
    "unknown-cost": "{{ cause }}; by how much is uncertain "
    "({{ gain_low_ns | span(gain_high_ns) }} of {{ step_ns | of_step(whole_trace, is_mean) }})."
    "{% if of_link and not probed %} `advisor probe` measures it.{% endif %}",
    # 4 healthy
    "healthy": "Healthy. {% if world_size == 1 %}Nothing{% else %}{{ exposed | pct }} of the "
    "{{ unit }} is exposed communication; nothing{% endif %} found that pays.",
    # 5 lossy without a cause
    "jitter": "Ranks hold each other up for {{ gain_ns | about }} of "
    "{{ step_ns | of_step(whole_trace, is_mean) }} ({{ share | pct }}"
    "{% if is_wide %}; {{ gain_low_ns | span(gain_high_ns) }}{% endif %}), no single culprit.",
    "exposed-communication": "{{ cause }}: {{ gain_ns | about }} of "
    "{{ step_ns | of_step(whole_trace, is_mean) }} ({{ share | pct }}"
    "{% if is_wide %}; {{ gain_low_ns | span(gain_high_ns) }}{% endif %}) could be hidden.",
    "exposed": "{{ exposed | pct }} of the {{ unit }} is exposed communication; its cause "
    "is unknown.",
    "idle": "The device idles {{ idle | pct }} of the {{ unit }}{% if world_size != 1 %}; "
    "communication is not why ({{ exposed | pct }} exposed)"
    "{% elif leading_ns %}, {{ leading_ns | about }} of that before its first kernel{% endif %}.",
    # 6 cannot tell
    "captured": "A CUDA graph is captured: the device idles {{ idle | pct }} of the {{ unit }}, "
    "and that says nothing of its replays.",
    "ranks-missing": f"{_LOST}. Only "
    "{{ ranks_read }}{% if world_size %} of {{ world_size }}{% endif %} "
    "rank{{ 's' if (world_size or ranks_read) != 1 }} {{ 'was' if ranks_read == 1 else 'were' }} "
    "recorded; record all to {{ 'see why' if idles_more else "
    "'tell a late rank from a slow network' }}.",
    "ranks-cut": f"{_LOST}. The recording of "
    "{{ cut | some_ranks }} is cut; record all to {{ 'see why' if idles_more else "
    "'tell a late rank from a slow network' }}.",
    "ranks-alone": f"{_LOST}, but only "
    "{{ ranks_read }}{% if world_size %} of {{ world_size }}{% endif %} "
    "rank{{ 's' if (world_size or ranks_read) != 1 }} {{ 'was' if ranks_read == 1 else 'were' }} "
    "recorded: {{ alone | some_ranks }} may be the late one.",
    "groups-missing": f"{_LOST}. Process groups were not recorded, so ranks cannot be compared.",
    "one-step": f"{_LOST}. One step was recorded; five show what is lost every time.",
    "clocks": "A slow link may hide behind the clocks: {{ exposed_ns | about }} of "
    "{{ step_ns | of_step(whole_trace) }} is exposed transfer between hosts.",
    "nothing-recorded": "Neither compute nor communication was recorded"
    "{% if empty %} on {{ empty | some_ranks }}{% endif %}.",
    "never-met": "The recording of {{ strangers | some_ranks }} is of another run: "
    "no figure that compares ranks holds.",
    "no-device": "No device events were recorded: nothing can be said of what the devices do.",
    "no-communication": "No communication kernels found"
    "{% if world_size %} in a {{ world_size }}-rank job{% endif %}"
    "{% if idle >= 0.01 %}; the device idles {{ idle | pct }} of the step{% if leading_ns %}, "
    "{{ leading_ns | about }} of that before its first kernel{% endif %}{% endif %}.",
    "unrecognised": "Only {{ share | pct }} of the device's busy time is recognised"
    "{% if longest %}. Longest unrecognised: {{ longest }}, {{ longest_ns | about }}{% endif %}.",
    "probe-denies": "{{ cause }}.",
    "no-complete-step": "No complete step was recorded.",
    "benchmark": "{{ 'An unnamed operation' if op == 'unknown' else op }} reaches "
    "{{ best_gbps | num }}"
    "{% if limit_gbps %} of {{ limit_gbps | num }}{% endif %} GB/s bus bandwidth"
    "{% if limit_gbps %} ({{ (best_gbps / limit_gbps) | pct }}){% endif %}"
    "{% if ranks %} on {{ ranks }} ranks{% endif %}. What a training step loses needs a trace.",
    "no-work": "None of the {{ events | whole }} events of {{ ranks }} "
    "rank{{ 's' if ranks != 1 }} is an operator, a kernel or a collective.",
    "no-trace": "Logs and dumps show "
    "{% if findings %}{{ findings }} thing{{ 's' if findings != 1 }} to check, nothing urgent"
    "{% else %}nothing to change{% endif %}; no trace was given.",
}
"""Titles of verdicts by shape or reason: at most 140 characters."""

WHYS = {
    "step": "{{ 'The trace' if whole_trace else 'A step' }} takes {{ step_ns | about }}: "
    "{{ compute | pct }} compute"
    "{% if not says_exposed %}, {{ exposed | pct }} exposed communication{% endif %}"
    "{% if not says_idle %}, {{ idle | pct }} idle{% endif %}"
    "{% if not whole_trace %} ({{ steps }} step{{ 's' if steps != 1 }}){% endif %}.",
    "idle": "{% if idling_ns > 0.1 * idle * step_ns and idling_kind in doing %}"
    "For {{ idling_ns | about }} of it the host {{ doing[idling_kind] }}"
    "{% if idling_name %} ({{ idling_name }}){% endif %}."
    "{% elif noise_ns %}Differences under {{ noise_ns | about }} are noise.{% endif %}",
    "captured": "What is launched during a capture runs in later replays.",
    "noise": "{% if noise_ns %}Differences under {{ noise_ns | about }} are noise.{% endif %}",
    "clocks": "The hosts' clocks differ by {{ differ_ns | about }}, estimated from the same "
    "moments that would show a slow link.",
    "never-met": "Whatever the clocks differ by, calls end on one rank before they begin on "
    "another. A clock that jumped while recording looks alike.",
    "no-device": "Recorded were {{ recorded | counts }}.",
    "no-communication": "{% if lacks_kernels %}The export lacks kernels or their names.{% endif %}"
    "{% if leading_ns %}One step was recorded: five show whether each begins like that.{% endif %}",
    "unrecognised": "A collective that is not recognised counts as compute.",
    "ranks-alone": "A late rank waits for nobody, so its own recording looks healthy.",
    "probe-denies": "Recording and probe were made at different times, or over different paths."
    "{% if probe_names %} The probe finds slow: {{ probe_names }}.{% endif %}",
    "no-trace": "{% for text in losses %}{{ text }}. {% endfor %}",
    "no-complete-step": "{% for text in losses %}{{ text }}. {% endfor %}",
    "benchmark": "Best at {{ best_bytes | size }}"
    "{% if half_bytes %}, half of it from {{ half_bytes | size }} on{% endif %}; the smallest call "
    "takes {{ smallest_ns | about }}."
    "{% if limit_gbps %} The data sheet of {{ device }} gives {{ limit_gbps | num }} GB/s for its "
    "{{ limit_by }}.{% endif %}",
    "no-work": "PyTorch's profiler and Nsight Systems write such events; a Python profiler does "
    "not.",
}
"""Why, by reason; ``step`` comes first wherever a step was recorded."""

DOING = {
    "garbage-collection": "collects garbage",
    "data-loading": "loads data",
    "unused-parameter-scan": "looks for unused parameters",
    "allocator": "allocates or frees memory",
    "synchronisation": "catches up after a synchronisation",
    "blocking-copy": "catches up after a blocking copy",
    "barrier": "catches up after a barrier",
    "graph-capture": "captures a graph",
    "loading": "loads what it uses for the first time",
}
"""What a host does while a device idles, by kind of gap; where that is known."""

STEPS = {
    "device": "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
    "record": "Record {% if steps %}{{ steps }} steps or more{% else %}all ranks{% endif %}, and "
    "diagnose that.\ntorchrun --nproc-per-node N -m advisor.record"
    "{% if steps > 5 %} --steps {{ steps }}{% endif %} train.py  # N = devices per host\n"
    "advisor diagnose advisor-traces/",
    "profile-again": "advisor profile --steps {{ steps }} with the same workload",
    "nvtx-steps": 'with torch.cuda.nvtx.range(f"ProfilerStep#{i}"): step()  # at least '
    "{{ steps }} steps",
    "nsys": "nsys profile --trace=cuda,nvtx -o report.%q{RANK} python train.py  # inside torchrun",
    "nsys-export": "nsys export --type sqlite --include-blobs=true REPORT.nsys-rep",
    "probe": "Measure the links between the hosts:\nadvisor probe --nnodes N  # N = hosts\n"
    "advisor diagnose TRACES probe.json  # TRACES = what was read here",
    "third-host": "Measure the links, with a third host of the same kind to compare:\n"
    "advisor probe --nnodes 3\nadvisor diagnose TRACES probe.json  # TRACES = what was read here",
    "clocks": "Look at the clocks: an offset far below that leaves the link.\nchronyc tracking",
    "one-run": "advisor diagnose FOLDER, with the recordings of one run alone",
    "host": "What makes a device wait for its host:\nadvisor explain {{ rule }}",
    "replay": "Record after the warm-up, while requests are served.",
    "after-start": "Record after the warm-up: first calls load kernels and make the context.",
    "with-traces": "Diagnose it beside the recording of a training job.\n"
    "advisor diagnose BENCHMARK TRACES  # BENCHMARK = these files, TRACES = that recording",
    "sweep": "Try settings in the job, which COMMAND starts:\nadvisor tune --sweep -- COMMAND",
    "proof": "Prove it: {{ verify | lower_first }}",
    "try": "Worth a try, up to {{ gain_ns | about }} per step. {{ fix }}",
}
"""Commands and edits under NEXT, each on its line."""


SUMMARY = {
    "beside": "transfer, or waiting beside it",
    "step": "{% if steps %}Where a {{ step_ns | about }} step{% if others %} of the other "
    "{{ 'rank' if others == 1 else '%d ranks' | format(others) }}{% elif not all_ranks %} of "
    "{{ ranks | some_ranks }}{% endif %} goes (mean of {{ steps }} step{{ 's' if steps != 1 }}"
    "{% if all_ranks and ranks | length > 1 %} and {{ ranks | length }} ranks{% endif %})"
    "{% else %}Where the {{ step_ns | about }} trace goes{% endif %}",
    "confidence": "{{ probability | certainty }} sure; {{ how }}",
    "checks": "{{ findings }} finding{{ 's' if findings != 1 }} · {{ passed }} "
    "check{{ 's' if passed != 1 }} passed"
    "{% if lacking %} · {{ lacking }} need{{ 's' if lacking == 1 }} more data{{ why_not }}"
    "{% endif %}{% if failed %} · {{ failed }} failed{% endif %}",
}
"""Lines that several views share."""


GAINS = {
    "saves": "saves {{ middle_ns | about }}{% if high_ns > low_ns %} "
    "({{ low_ns | span(high_ns) }}){% endif %}",
    "may-save": "may save up to {{ high_ns | about }}, or nothing",
    "costs": "costs {{ -middle_ns | about }}{% if high_ns > low_ns %} "
    "({{ -high_ns | span(-low_ns) }}){% endif %}",
    "nothing": "changes nothing measurably",
}
"""What a replayed change gives per step, by what its interval leaves open."""

CHANGES = {
    "without-lateness": "rank {{ value }} on time",
    "restore-link": "the link of rank {{ value }} as fast as its peers",
    "without-calls": "without {{ value }}",
    "gradient-sync": "gradients reduced once per step ({{ value }})",
    "gradient-bits": "gradients sent as bf16 ({{ value | replace('16 ', '') }})",
}
"""Changes that no single setting makes; settings are named as users write them."""

WHATIF = {
    "saves": "{{ change }} would save {{ middle_ns | about }} per step",
    "may-save": "{{ change }} may save up to {{ high_ns | about }} per step, or nothing",
    "none": "Nothing that was replayed saves time for sure: leave the settings",
    "now": "Now {{ step_ns | about }} per step; replayed under each change:",
    "unknown": "not known: the trace does not part the calls' latency from their bytes' time",
    "extrapolated": "calls over twice as large as any seen",
    "off": "Replaying the unchanged step misses it by {{ off | pct }}.",
}
"""Predictions: ``would`` only where the interval leaves out zero."""

STATES = {
    "sure": "{% if probability %}{{ probability | certainty }} sure"
    "{% else %}Read from the recording{% endif %}",
    "probable": "{{ probability | certainty }} sure",
    "unknown-cost": "{{ probability | certainty }} sure",
    "healthy": "No action needed",
    "lossy": "{% if probability %}{{ probability | certainty }} sure{% else %}No cause found"
    "{% endif %}",
    "inconclusive": "Cannot tell",
    "benchmark": "A benchmark, no training",
    "sweep-won": "Proven in this workload",
    "sweep-won-emulated": "Proven with emulated compute",
    "sweep-kept": "No measurable gain",
    "sweep-modelled": "Modelled, not measured",
    "sweep-inconclusive": "Inconclusive",
}
"""How sure a verdict is, by its kind or by a cause that is no finding; beside the title."""

COMPARED = {
    "differs": "{{ run }} is {{ share | pct }} {{ 'slower' if slower else 'faster' }} than "
    "{{ base }}{% if because %}, because {{ because }}{% endif %}.",
    "same": "{% if share >= 0.05 %}{{ run }} takes {{ other_ns | about }} per step, {{ base }} "
    "{{ step_ns | about }}: within the noise of {{ steps }} steps. More would tell."
    "{% else %}{{ run }} and {{ base }} do not differ beyond noise: {{ other_ns | about }} and "
    "{{ step_ns | about }} per step.{% endif %}",
    "unknown": "{{ run }} takes {{ other_ns | about }} per step, {{ base }} {{ step_ns | about }}: "
    "too few steps to be sure ({{ steps }}; {{ needed }} needed).",
    "fastest": "{{ run }} is fastest: {{ step_ns | about }} per step, {{ ratio | num }} times as "
    "fast as {{ last }}.",
    "none-fastest": "No run is fastest beyond noise: {{ run }} takes {{ step_ns | about }} per "
    "step, {{ last }} {{ last_ns | about }}.",
    "wait": "ranks wait {{ ns | about }} {{ more }} per step{% if rank is not none %} "
    "(rank {{ rank }} is last most){% endif %}",
    "transfer": "exposed transfers take {{ ns | about }} {{ more }} per step",
    "comm": "exposed communication takes {{ ns | about }} {{ more }} per step",
    "compute": "compute takes {{ ns | about }} {{ more }} per step",
    "memory": "memory copies take {{ ns | about }} {{ more }} per step",
    "other": "other device work takes {{ ns | about }} {{ more }} per step",
    "idle": "the device idles {{ ns | about }} {{ more }} per step",
}
"""A comparison: its headline, and what differs by kind of time."""


_FASTER = "{{ one.search | pct }} {{ 'faster' if one.search >= 0 else 'slower' }} in the search"

TUNED = {
    "won": "Set {{ change }}: the {{ 'emulated ' if emulated }}step is {{ gain | pct }} shorter "
    "({{ low | pct }} to {{ high | pct }}).",
    "does-not-run": "The job does not run with its present settings.",
    "modelled": "No setting was measured: gloo ignores all of this space. Its ranking is modelled.",
    "none-ran": "None of the {{ failed }} alternatives tried ran to the end ({{ kinds }}).",
    "too-short": "Nothing was tried: pass a --budget of {{ budget }} or more.",
    "few-baselines": "Leave it: too few baseline trials to tell a gain from noise.",
    "too-late": "Leave it for now: what was faster in the search is not confirmed.",
    "did-not-run-again": "Leave it: what was faster in the search did not run again.",
    "noisy": "Leave it for now: steps vary so much that only gains above {{ floor | pct }} show.",
    "no-gain": "Leave it: no measurable gain"
    "{% if part %} in the {{ tried }} of {{ others }} other combinations tried{% endif %}. "
    "Gains under {{ floor | pct }} cannot be seen here.",
}
"""What a sweep comes to: at most 140 characters, its numbers as shares of the step."""

TUNED_WHY = {
    "won": "It won in {{ pairs }} fresh A/B pairs.",
    "does-not-run": "{{ why }}",
    "none-ran": "Nothing is known about them: {{ why }}.",
    "too-short": "Trials take {{ '%.0f' | format(seconds) }} s here, and a comparison with its "
    "confirmation takes {{ trials }} of them.",
    "too-late": "{% for one in found %}{{ one.change }} was " + _FASTER + ". {% endfor %}"
    "--resume with a --budget of {{ budget }} or more confirms it or not.",
    "noisy": "Repeat where nothing else runs, or with more timed_steps.",
}
"""Why, by what a sweep comes to; then what holds of every one."""

TUNED_ALSO = (
    "{% for one in again %}{{ one.change }} was " + _FASTER + "; in {{ one.pairs }} fresh pairs it "
    "was {{ one.share | abs | pct }} {{ 'faster' if one.share >= 0 else 'slower' }} "
    "({{ one.low | pct }} to {{ one.high | pct }}): not confirmed. {% endfor %}"
    "{% for one in lost %}{{ one.change }} was "
    + _FASTER
    + ", but {{ one.ended }} when it was run "
    "again ({{ one.why }}): see {{ one.log }}. {% endfor %}"
    "{% if best is not none and not again %}The best single trial was {{ best | abs | pct }} "
    "{{ 'faster' if best >= 0 else 'slower' }}.{% endif %}"
)
"""What was faster in the search and is no recommendation."""


def say(texts: dict[str, str], code: str, values: dict[str, Any]) -> str:
    """The text of ``code`` with its values. Raises KeyError for a code without words."""
    return render_lines(texts[code], values)
