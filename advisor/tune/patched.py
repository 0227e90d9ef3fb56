"""The user's workload file with a winner's settings: its comments and order stay."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from advisor.config.parsed import plain
from advisor.config.workload import Workload

# A comment of the user's is never broken over two lines.
_WIDTH = 4096


def patched_text(workload: Workload, source: Path | None) -> str:
    """``workload`` as YAML: its file ``source`` with what differs, or without one all anew."""
    wanted = workload.model_dump(mode="json", exclude_unset=True)
    if source is not None:
        text = _changed(source, wanted)
        if text is not None and _reads_as(text, workload):
            return text
    stream = io.StringIO()
    YAML(typ="safe", pure=True).dump(wanted, stream)
    return stream.getvalue()


def _changed(source: Path, wanted: dict[str, Any]) -> str | None:
    yaml = YAML(typ="rt")
    yaml.width = _WIDTH
    yaml.preserve_quotes = True
    try:
        document = yaml.load(source.read_text(encoding="utf-8"))
        before = Workload.model_validate(plain(document))
    except (OSError, UnicodeDecodeError, YAMLError, ValidationError):
        return None  # changed since it was read: the caller writes it anew
    _merge(document, before.model_dump(mode="json", exclude_unset=True), wanted)
    stream = io.StringIO()
    yaml.dump(document, stream)
    return stream.getvalue()


def _merge(document: Any, before: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Change in ``document`` what ``wanted`` says otherwise than ``before``, and nothing else."""
    for name in [name for name in before if name not in wanted]:
        del document[name]
    for name, value in wanted.items():
        old = before.get(name)
        if isinstance(value, dict) and isinstance(old, dict):
            _merge(document[name], old, value)
        elif name not in before or value != old:
            document[name] = value


def _reads_as(text: str, workload: Workload) -> bool:
    try:
        found = Workload.model_validate(plain(YAML(typ="safe", pure=True).load(text)))
    except (YAMLError, ValidationError):
        return False
    return found == workload
