"""Standard streams that the shell has closed (``>&-``): what is written to them goes nowhere."""

import os
import sys


def open_closed_streams() -> None:
    """Let closed standard streams lead to the null device, before any other file is opened.

    Else a file that is opened next gets the number of the stream, and what libraries and other
    processes print is written into that file.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(number)
        except OSError:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))
