"""What of an environment may be kept: an allow-list, and how names of secrets are told."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

_ALLOWED = re.compile(
    r"^(?!.*(TOKEN|(?<!_P)KEY|SECRET|PASSW|CREDENTIAL|AUTH))(NCCL_[A-Z0-9_]+|RCCL_[A-Z0-9_]+|TORCH_NCCL_[A-Z0-9_]+|"
    r"GLOO_SOCKET_IFNAME|TP_SOCKET_IFNAME|OMP_NUM_THREADS|MKL_NUM_THREADS|CUDA_VISIBLE_DEVICES|"
    r"CUDA_DEVICE_MAX_CONNECTIONS|CUDA_LAUNCH_BLOCKING|PYTORCH_(CUDA_)?ALLOC_CONF|"
    r"TORCH_DISTRIBUTED_DEBUG|FI_PROVIDER|FI_EFA_[A-Z0-9_]+|UCX_TLS|UCX_NET_DEVICES)$"
)
_SECRET = re.compile(
    r"token(?!iz)|secret|passw|passphrase|credential|bearer|cookie|(?<![a-z])auth(?!or)|"
    r"(?:(?<![a-z])|api|access|private)key(?![a-z])",
    re.IGNORECASE,
)
_ENVIRONMENTS = frozenset({"env", "environ", "environment", "environment_variables"})
_DEEPEST = 100
_OPTION = re.compile(r"--?[A-Za-z][\w.\-]*+")
_OPTION_WITH_VALUE = re.compile(r"(?<!\S)(--?[A-Za-z][\w.\-]*+)\s++(?!-)[\"']?([^\s\"']+)")
_ASSIGNMENT = re.compile(
    r"(?<![\w.\-])([\w.\-]++)[\"']?\s{0,4}[=:](?=\s{0,4}[\"']?([^\s\"',;&{}\[\]]{1,200}))"
)
_HARMLESS = re.compile(r"[\-+\d.eE_]+|true|false|none|null", re.IGNORECASE)
_LEFT_OUT = object()


def allowed(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The variables that change communication or computation, and no others; sorted."""
    return {name: environment[name] for name in sorted(environment) if _ALLOWED.match(name)}


def without_secrets(fields: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """``fields`` (of a JSON object) to keep, and the names of those left out, as ``a.b``.

    Of an environment, at any depth, the allow-list stays. Elsewhere text is left out, and lists and
    objects are, whose name says token, key, secret or password; numbers and truth values stay. The
    name may also stand in the text (JSON, ``KEY=value``) or before it (``--token``, of a command).
    """
    out: list[str] = []
    kept = _cleaned(dict(fields), "", out, 0)
    return kept, sorted(set(out))


def _cleaned(fields: dict[str, Any], before: str, out: list[str], depth: int) -> dict[str, Any]:
    kept = {}
    for name, value in fields.items():
        place = f"{before}{name}"
        named = isinstance(value, str | list | dict) and value and _SECRET.search(name)
        inside = _LEFT_OUT if named else _inside(value, place, out, depth + 1)
        if inside is _LEFT_OUT:
            out.append(place)
        else:
            kept[name] = inside
    return kept


def _inside(value: Any, place: str, out: list[str], depth: int) -> Any:
    """What of ``value`` may be kept; ``_LEFT_OUT`` for nothing."""
    if depth > _DEEPEST:
        return value if not isinstance(value, list | dict | str) else None
    if isinstance(value, dict) and _is_environment(place):
        kept = allowed(value)
        out += [f"{place}.{variable}" for variable in value if variable not in kept]
        return kept
    if isinstance(value, dict):
        return _cleaned(value, f"{place}.", out, depth)
    if isinstance(value, list):
        return _items(value, place, out, depth)
    return _text(value, place, out, depth) if isinstance(value, str) else value


def _items(values: list[Any], place: str, out: list[str], depth: int) -> list[Any]:
    """As :func:`_inside`; of a command's words, the one after ``--token`` is left out too."""
    kept = []
    environment = _is_environment(place)
    before: Any = None
    for value in values:
        after_option = (
            isinstance(before, str)
            and isinstance(value, str)
            and _OPTION.fullmatch(before)
            and _is_secret(before, value)
        )
        variable = value.partition("=")[0] if environment and isinstance(value, str) else None
        inside = _inside(value, place, out, depth + 1)
        if inside is _LEFT_OUT or after_option or (variable and not _ALLOWED.match(variable)):
            out.append(place if variable is None else f"{place}.{variable}")
        else:
            kept.append(inside)
        before = value
    return kept


def _text(text: str, place: str, out: list[str], depth: int) -> Any:
    """As :func:`_inside` for text: JSON without its secrets, or all of it or nothing."""
    if text.lstrip()[:1] in ("{", "[", '"'):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict | list | str):
            left_out = len(out)
            inside = _inside(parsed, place, out, depth + 1)
            if inside is _LEFT_OUT:
                return _LEFT_OUT
            return text if len(out) == left_out else json.dumps(inside)
    found = (*_ASSIGNMENT.findall(text), *_OPTION_WITH_VALUE.findall(text))
    return _LEFT_OUT if any(_is_secret(name, value) for name, value in found) else text


def _is_environment(place: str) -> bool:
    return place.rpartition(".")[2].lower() in _ENVIRONMENTS


def _is_secret(name: str, value: str) -> bool:
    return bool(value and _SECRET.search(name) and not _HARMLESS.fullmatch(value))
