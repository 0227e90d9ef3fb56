"""How DistributedDataParallel forms its gradient buckets.

Restated from torch (``compute_bucket_assignment_by_size`` in the reducer and ``_BucketConfig`` of
``torch.nn.parallel.distributed``, 2.6-2.13): gradients are taken in the order they became ready;
a parameter is never split; a bucket closes once its size has *reached* its limit, so it
overshoots; with the default setting the first limit is 1 MiB, and with an explicit
``bucket_cap_mb`` every limit is that cap.
"""

from collections.abc import Sequence

MIB = 1024 * 1024
FIRST_BUCKET_BYTES = 1 * MIB
DEFAULT_BUCKET_CAP_MB = 25.0


def assemble(gradient_bytes: Sequence[int], bucket_cap_mb: float | None) -> list[list[int]]:
    """Group gradients (bytes, in ready order) into buckets; returns lists of their indices.

    ``bucket_cap_mb`` None means torch's default: a first bucket of 1 MiB, then 25 MiB.
    """
    cap = int((DEFAULT_BUCKET_CAP_MB if bucket_cap_mb is None else bucket_cap_mb) * MIB)
    limits = [FIRST_BUCKET_BYTES, cap] if bucket_cap_mb is None else [cap]
    buckets: list[list[int]] = []
    current: list[int] = []
    size = 0
    for index, count in enumerate(gradient_bytes):
        current.append(index)
        size += count
        if size >= limits[min(len(buckets), len(limits) - 1)]:
            buckets.append(current)
            current, size = [], 0
    if current:
        buckets.append(current)
    return buckets


def infer_cap_mb(gradient_bytes: Sequence[int], bucket_bytes: Sequence[int]) -> float | str | None:
    """Which setting forms exactly these buckets: None (default), a number, or 'unknown'."""
    for candidate in (None, 1, 5, 10, 25, 50, 100, 200):
        sizes = [
            sum(gradient_bytes[index] for index in bucket)
            for bucket in assemble(gradient_bytes, candidate)
        ]
        if sizes == list(bucket_bytes):
            return candidate
    return "unknown"
