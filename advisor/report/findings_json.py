"""findings.json: the report itself, as other programs read it."""

from advisor.findings import FindingsReport
from advisor.report.options import Options
from advisor.store.store import Store


def render(report: FindingsReport, store: Store | None, options: Options) -> str:
    """The models of :mod:`advisor.findings` as indented JSON (times in ns)."""
    del store, options
    return report.model_dump_json(indent=2) + "\n"
