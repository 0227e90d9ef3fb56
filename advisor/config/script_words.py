"""What to write in a script for settings that the hook applied, in the words of its library."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from advisor.config.loader import read_plain

_DTYPES = {"bf16": "bfloat16", "fp32": "float32"}
_PACKAGES = {
    "lightning": "lightning.pytorch",
    "lightning.fabric": "lightning.fabric",
    "lightning_fabric": "lightning_fabric",
    "pytorch_lightning": "pytorch_lightning",
}
_LIKE = {
    "lightning.fabric": "fabric",
    "lightning_fabric": "fabric",
    "pytorch_lightning": "lightning",
}


def how_to_write(
    settings: Mapping[str, Any], built: Mapping[str, Mapping[str, Any]], device: str
) -> list[str]:
    """Lines for ``settings``, for each wrapper and the library that built it.

    Arguments of one call are one line: a second ``Trainer(strategy=...)`` would replace the first.
    """
    lines: list[str] = []
    for wrapper, how in built.items():
        library = str(how.get("made_by", ""))
        arguments: list[str] = []
        alone: list[str] = []
        for name, value in settings.items():
            if name not in how:
                continue
            said = _said(name, wrapper, library, device)
            text = said if isinstance(said, str) else said["line"]
            (arguments if isinstance(said, str) else alone).append(_filled(text, name, value))
        if arguments:
            call = _words_of(wrapper, library)["call"]
            lines.append(
                call.format(arguments=", ".join(arguments), package=_PACKAGES.get(library, ""))
            )
        lines += alone
    return lines


def _filled(text: str, name: str, value: Any) -> str:
    number = int(value) if type(value) is float and value.is_integer() else value
    return text.format(
        name=name,
        value=number,
        json=json.dumps(number),
        upper=str(value).upper(),
        dtype=_DTYPES.get(str(value), str(value)),
        on=bool(value),
        strategy="FULL_SHARD" if value else "SHARD_GRAD_OP",
        resharding="always" if value else "never",
    )


def _said(name: str, wrapper: str, library: str, device: str) -> Any:
    """An argument of the library's call, or a line of its own; else what any script would say."""
    for words in (_words_of(wrapper, library), _words()[wrapper]["script"]):
        for key in (f"{name} on {device}", name, "*"):
            if key in words:
                return words[key]
    raise KeyError(f"{wrapper}: {name}")


def _words_of(wrapper: str, library: str) -> Any:
    known = _words()[wrapper]
    return known.get(_LIKE.get(library, library), known["script"])


@cache
def _words() -> Any:
    return read_plain(Path(__file__).with_suffix(".yaml"))
