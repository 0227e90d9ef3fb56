"""Every sentence of verdicts and notes, by its code (messages.yaml): rendered last.

Rules word their own findings (``rules/*.yaml``).
"""

import re
from pathlib import Path
from typing import Any

from advisor.config.loader import read_plain
from advisor.vocabulary.templates import render_lines

MOST_TITLE = 140
"""Characters of a verdict, of whatever command."""
_TEXTS = read_plain(Path(__file__).with_suffix(".yaml"))
_PART = re.compile(r"<<(\w+)>>")


def _whole(text: str) -> str:
    return _PART.sub(lambda part: str(_TEXTS["parts"][part[1]]), text)


def _table(name: str) -> dict[str, str]:
    return {code: _whole(text) for code, text in _TEXTS[name].items()}


NOTES = _table("notes")
VERDICTS = _table("verdicts")
WHYS = _table("whys")
DOING = _table("doing")
STEPS = _table("steps")
SUMMARY = _table("summary")
LOCATIONS = _table("locations")
GAINS = _table("gains")
CHANGES = _table("changes")
WHATIF = _table("whatif")
STATES = _table("states")
CONFIDENCES = _table("confidences")
REASONS = _table("reasons")
SOURCES = _table("sources")
COMPARED = _table("compared")
COMPARED_NOTES = _table("compared-notes")
PAGE = _table("page")
TUNED = _table("tuned")
TUNED_WHY = _table("tuned-why")
TUNED_ALSO = _table("tuned-also")
TUNED_TRIED = _table("tuned-tried")


def on_page(code: str, **values: Any) -> str:
    """A title, description or note of the report's page."""
    return say(PAGE, code, values)


def say(texts: dict[str, str], code: str, values: dict[str, Any]) -> str:
    """The text of ``code`` with its values. Raises KeyError for a code without words."""
    return render_lines(texts[code], values)
