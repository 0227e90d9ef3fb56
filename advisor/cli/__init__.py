"""The command line: the only place that prints, styles and exits.

Each module of this package that does not start with ``_`` is one command; its name is the
module's name with ``-`` for ``_``, and it holds ``command``. Heavy imports stay inside functions.
"""

import os

try:
    import signal
except KeyboardInterrupt:
    os._exit(130)

__all__ = ["end_early", "main"]


def end_early(number: int, _frame: object) -> None:
    """Ctrl-C while modules load: nothing is begun that had to be tidied or said."""
    os._exit(128 + number)


def main(args: list[str] | None = None) -> None:
    """Entry point, with the statuses of :func:`advisor.cli._main.main`.

    Loading click takes 0.1 s, within which Ctrl-C would show a traceback.
    """
    # A job in the background ignores Ctrl-C; in a thread Python lets nobody listen to it.
    if args is None and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, end_early)
    from advisor.cli._main import main as run

    run(args)
