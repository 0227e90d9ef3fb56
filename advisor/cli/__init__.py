"""The command line: the only place that prints, styles and exits.

Each module of this package that does not start with ``_`` is one command; its name is the
module's name with ``-`` for ``_``, and it holds ``command``. Heavy imports stay inside functions.
"""

from __future__ import annotations

from advisor.cli._main import main

__all__ = ["main"]
