"""Chooses the format. A format is a function of findings, store and options to a string."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from advisor.errors import AdvisorError
from advisor.findings import FindingsReport
from advisor.report.options import Options
from advisor.store.store import Store

# Format -> module with `render(report, store, options) -> str`; imported on use, because the
# HTML page pulls in a template engine that the terminal does not need.
FORMATS: dict[str, str] = {
    "text": "advisor.report.text",
    "html": "advisor.report.page",
    "json": "advisor.report.findings_json",
    "junit": "advisor.report.junit",
    "github": "advisor.report.github",
    "markdown": "advisor.report.markdown",
    "chat": "advisor.report.chat",
}


def render(report: FindingsReport, store: Store | None, format: str, **options: Any) -> str:
    """The report in one of :data:`FORMATS`, as text that ends with a newline.

    ``store`` holds the tables behind the findings; without it the HTML page shows the findings
    alone. ``options`` are the fields of :class:`advisor.report.options.Options`. Raises
    AdvisorError for an unknown format and TypeError for an unknown option.
    """
    if format not in FORMATS:
        raise AdvisorError(
            f"unknown report format '{format}'", hint=f"one of: {', '.join(FORMATS)}"
        )
    chosen = Options(**options)
    renderer: Callable[[FindingsReport, Store | None, Options], str] = import_module(
        FORMATS[format]
    ).render
    text = renderer(report, store, chosen)
    return text if text.endswith("\n") else text + "\n"
