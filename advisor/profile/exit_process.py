"""How a rank ends once everything is written."""

from __future__ import annotations

import os
import sys
from typing import NoReturn


def exit_without_destructors() -> NoReturn:
    """End this process with status 0, without torch's destructors.

    On a busy machine they sometimes abort ("terminate called without an active exception") or
    wait for ever, which made a finished recording look like a crash or a hang.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
