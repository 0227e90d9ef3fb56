"""What to write in a script for a setting that the hook applied, in the words of its library."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from advisor.config.loader import read_plain

_DTYPES = {"bf16": "bfloat16", "fp32": "float32"}


def how_to_write(settings: Mapping[str, Any], built: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """A line for each of ``settings``, for the wrapper and the library that built it."""
    return [
        _template(name, wrapper, str(how.get("made_by", ""))).format(
            name=name,
            value=int(value) if type(value) is float and value.is_integer() else value,
            upper=str(value).upper(),
            dtype=_DTYPES.get(str(value), str(value)),
        )
        for wrapper, how in built.items()
        for name, value in settings.items()
        if name in how
    ]


def _template(name: str, wrapper: str, library: str) -> str:
    library = "lightning" if library == "pytorch_lightning" else library
    known = _words()[wrapper]
    said = known.get(library, known["script"])
    return str(said.get(name) or said["*"])


@cache
def _words() -> Any:
    return read_plain(Path(__file__).with_suffix(".yaml"))
