"""The HTML report section by section: each module turns findings and tables into data."""
