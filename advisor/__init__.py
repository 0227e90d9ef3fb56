"""Find what a distributed training step loses in communication, and what to change."""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "load", "profiler", "trace_handler"]

TYPE_CHECKING = False  # typing's takes milliseconds, in which Ctrl-C shows a traceback
if TYPE_CHECKING:
    from advisor.api import Run, load
    from advisor.on_trace_ready import trace_handler
    from advisor.profile.recorder import profiler


def __getattr__(name: str) -> object:
    # The interface is imported on first use, so that `advisor --help` stays quick.
    if name in ("Run", "load"):
        from advisor import api

        return getattr(api, name)
    if name == "profiler":
        from advisor.profile.recorder import profiler

        return profiler
    if name == "trace_handler":
        from advisor.on_trace_ready import trace_handler

        return trace_handler
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
