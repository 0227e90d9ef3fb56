"""The least that can be swept: an emulated job, and a space of two bucket caps, as YAML."""

from __future__ import annotations

JOB = """\
name: tiny
compute: emulated
emulated: {layers: 2, forward_ms: 1, backward_ms: 1, gradient_mb: 0.01}
strategy: ddp
world_size: 2
micro_batch: 1
sequence_length: 16
warmup_steps: 1
timed_steps: 15
steps: 2
bucket_cap_mb: 25
"""
SPACE = """\
name: tiny
axes:
  - setting: bucket_cap_mb
    values: [0.01, 25]
"""
