"""How programs write which error a call of CUDA's or HIP's returned: its name or number alone.

An entry of the catalogue names the errors (numbers as CUDA's driver_types.h has them), and the
pattern made here finds them where the sentence that CUDA has for them is not printed.
"""

from __future__ import annotations

from collections.abc import Mapping

_NUMBER = r"(?i:\bcuda(?: runtime| execution)?(?: failed with)? error(?:_t)? ?\(?|\bcudaError_t )"
SIGNS = (
    "cudaError",
    "hipError",
    "uda error",
    "UDA error",
    "uda runtime error",
    "failed with error",
)


def returned(errors: Mapping[int, str]) -> str:
    """The pattern of ``errors``: number to name, without ``cudaError`` before it."""
    names, numbers = "|".join(errors.values()), "|".join(str(number) for number in errors)
    return rf"(?:cuda|hip)Error(?:{names})\b|{_NUMBER}(?:{numbers})\b"
