"""Where shipped files are: inside an installed wheel, or beside the package in a checkout."""

from functools import cache
from pathlib import Path

from advisor.errors import AdvisorError

_PACKAGE = Path(__file__).resolve().parent.parent


@cache
def shipped(name: str) -> Path:
    """The folder ``rules`` or ``workloads``, wherever this installation keeps it."""
    for candidate in (_PACKAGE / "data" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise AdvisorError(
        f"the shipped folder '{name}' is missing",
        where=str(_PACKAGE),
        hint="reinstall nccl-advisor",
    )
