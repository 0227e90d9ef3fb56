"""How programs write which error a call of CUDA's or HIP's returned: its name or number alone.

An entry of the catalogue names the errors (numbers as CUDA's driver_types.h has them), and the
pattern made here finds them where the sentence that CUDA has for them is not printed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_NUMBER = r"(?i:\b(?:cuda|hip)(?: runtime| execution)?(?: failed with)? ?error(?:_t)? ?\(?)"
SIGNS = (
    "cudaError", "hipError", "uda error", "UDA error", "uda runtime error", "failed with error",
    "CUDA_ERROR_", "HIP_ERROR_",
)  # fmt: skip
# Where the driver's calls name an error otherwise than the runtime's.
_OF_DRIVER = {
    2: "OUT_OF_MEMORY", 3: "NOT_INITIALIZED", 4: "DEINITIALIZED", 46: "DEVICE_UNAVAILABLE",
    98: "INVALID_IMAGE", 101: "INVALID_DEVICE", 209: "NO_BINARY_FOR_GPU", 214: "ECC_UNCORRECTABLE",
    216: "CONTEXT_ALREADY_IN_USE", 500: "NOT_FOUND", 719: "LAUNCH_FAILED",
}  # fmt: skip


def returned(errors: Mapping[int, str]) -> str:
    """The pattern of ``errors``: number to name, without ``cudaError`` before it."""
    names, numbers = "|".join(errors.values()), "|".join(str(number) for number in errors)
    of_driver = "|".join(_of_driver(number, name) for number, name in errors.items())
    return (
        rf"(?:cuda|hip)Error(?:{names})\b|{_NUMBER}(?:{numbers})\b|"
        rf"(?:CUDA|HIP)_ERROR_(?:{of_driver})\b"
    )


def _of_driver(number: int, name: str) -> str:
    return _OF_DRIVER.get(number, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper())
