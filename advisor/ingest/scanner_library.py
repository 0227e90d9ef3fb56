"""Loads the compiled scanner, which the installation builds where it finds a C compiler.

Beside the readers, not among them: ``advisor --version`` says whether it is there and imports none.
"""

import ctypes
import os
import shutil
from functools import cache
from pathlib import Path
from typing import Any

LIBRARY = Path(__file__).with_name("readers") / "kineto" / "native" / "_scan.so"
_ABI = 2
_P, _I32, _I64 = ctypes.c_void_p, ctypes.c_int32, ctypes.c_int64
_STRINGS = ctypes.POINTER(ctypes.c_char_p)
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "advisor_abi": (_I32, []),
    "advisor_scanner_new": (
        _P,
        [
            *(_STRINGS, _I32, ctypes.c_char_p, _I32, ctypes.c_char_p, ctypes.c_char_p),
            *(_I32, _I32, ctypes.c_uint64),
        ],
    ),
    "advisor_scanner_free": (None, [_P]),
    "advisor_batch_new": (_P, [_I32]),
    "advisor_batch_clear": (_I32, [_P]),
    "advisor_batch_free": (None, [_P]),
    "advisor_next_batch": (None, [_P]),
    "advisor_begin": (None, [_P, _P, _P, _I64, _I32, _I64, _I64]),
    "advisor_scan": (_I32, [_P, _P]),
    "advisor_undo": (None, [_P, _P]),
    "advisor_question": (_I32, [_P, ctypes.POINTER(_P), ctypes.POINTER(_I64)]),
    "advisor_answer": (_I32, [_P, _I32, _I32, _I32, _I32, _I32]),
    "advisor_counts": (None, [_P, ctypes.POINTER(_I32)]),
    "advisor_buffer": (_P, [_P, _I32, _I32, ctypes.POINTER(_I64)]),
}


@cache
def _loaded() -> tuple[Any, str | None]:
    if not LIBRARY.exists():
        return None, f"not built: {_why_not_built()}"
    try:
        found = ctypes.CDLL(str(LIBRARY))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        return None, f"not usable ({error})"
    if found.advisor_abi() != _ABI:
        return None, "of another version: install advisor again"
    return found, None


def _why_not_built() -> str:
    from importlib import metadata

    try:
        metadata.distribution("nccl-advisor")
    except metadata.PackageNotFoundError:
        return "this copy of advisor is not installed (pip install -e .)"
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if compiler is not None:  # another copy is installed, or the compiler came later
        return f"this copy of advisor was not installed with {compiler} at hand (pip install -e .)"
    return "no C compiler was found at installation"


def library() -> Any:
    """The library, or None where it is not there or ``ADVISOR_NATIVE=0`` asks not to use it."""
    if os.environ.get("ADVISOR_NATIVE") == "0":
        return None
    return _loaded()[0]


def missing() -> str | None:
    """Why traces are read without the scanner; None when it is there."""
    return _loaded()[1]
