"""How a collective's bandwidth is counted: busbw = algbw times a factor of operation and ranks.

As nccl-tests prints them (doc/PERFORMANCE.md and src/*.cu of NVIDIA/nccl-tests): algbw is the
message size over the time, busbw what each link carries of it.
"""

_RING_PASSES = {"all_reduce": 2.0}
_RING_PASSES |= dict.fromkeys(
    ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"), 1.0
)
"""Operations whose links carry so many times (n - 1) / n of the message."""
_WHOLE = ("broadcast", "reduce", "send", "recv", "send_recv", "hypercube")
"""Operations whose links carry the message once; of a hypercube nccl-tests counts it in algbw."""


def bus_factor(op: str, ranks: int | None) -> float | None:
    """busbw / algbw on ``ranks`` ranks; None for operations without a bandwidth (a barrier)."""
    if op in _WHOLE:
        return 1.0
    if not ranks or ranks < 1 or op not in _RING_PASSES:
        return None
    return _RING_PASSES[op] * (ranks - 1) / ranks


def bus_factor_sql(op: str, ranks: str) -> str:
    """The same as an SQL expression of two columns."""
    passes = " ".join(
        f"WHEN '{name}' THEN {times} * ({ranks} - 1) / {ranks}"
        for name, times in _RING_PASSES.items()
    )
    whole = " ".join(f"WHEN '{name}' THEN 1.0" for name in _WHOLE)
    return f"CASE {op} {passes} {whole} END"
