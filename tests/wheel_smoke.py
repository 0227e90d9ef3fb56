"""An installed wheel reads and diagnoses a recording: ``python wheel_smoke.py RECORDING``.

Run against the wheel of each Python that a release is built for. It needs nothing but the wheel.
"""

from __future__ import annotations

import os
import sys

import advisor
from advisor.ingest.scanner_library import missing


def main() -> None:
    """Diagnose; the scanner must be in the wheel unless it was left out on purpose."""
    assert os.environ.get("ADVISOR_NATIVE") == "0" or missing() is None, missing()
    with advisor.load(sys.argv[1]) as run:
        assert run.report.findings[0].ranks == [2], run.report.findings
        assert run.render("html")


if __name__ == "__main__":
    main()
