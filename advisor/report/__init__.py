"""Every view of the findings: one pure function per format, from findings and tables to text."""

from advisor.report.render import FORMATS, render

__all__ = ["FORMATS", "render"]
