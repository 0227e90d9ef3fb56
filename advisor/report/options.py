"""What a caller may choose about a rendering; every format accepts all of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from advisor.findings import Severity

if TYPE_CHECKING:
    from advisor.metrics.compare.runs import Comparison


class Options(NamedTuple):
    """Choices of :func:`advisor.report.render`; a format ignores what does not concern it.

    ``color``: ANSI colours in text. ``verbose``: evidence in text. ``width``: columns of text.
    ``wrote``: file just written, named in the text's last line. ``fail_on``: lowest severity
    that JUnit counts as a failure. ``generated_at``: time printed in the HTML report's last
    section; empty leaves it out, so that equal input gives equal bytes. ``comparison``: of the
    store's runs, with steps timed without the profiler, which traces do not hold. ``injected``:
    the line on the faults that were put into the run on purpose, said at the page's head.
    """

    color: bool = False
    verbose: bool = False
    width: int = 80
    wrote: str = ""
    fail_on: Severity | str = Severity.WARNING
    generated_at: str = ""
    comparison: Comparison | None = None
    injected: str = ""
