"""Find what a distributed training step loses in communication, and what to change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "load"]

if TYPE_CHECKING:
    from advisor.api import Run, load


def __getattr__(name: str) -> Any:
    # The interface is imported on first use, so that `advisor --help` stays quick.
    if name in ("Run", "load"):
        from advisor import api

        return getattr(api, name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}")
