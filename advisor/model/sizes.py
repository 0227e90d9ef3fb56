"""Sizes as people write them: 64M, 1.5GiB, 4096."""

import re

from advisor.errors import AdvisorError

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b?)", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Bytes of '4096', '64M', '64MiB' (powers of 1024, as nccl-tests) or '64MB' (powers of 1000).

    Raises AdvisorError when it is no size.
    """
    found = _SIZE.fullmatch(text.strip().replace(",", "").replace("_", ""))
    if not found:
        raise AdvisorError(f"'{text}' is not a size", hint="write it like 1048576, 64M or 1.5GiB")
    decimal = found[3].lower() == "b" and found[2] != ""
    base = 1000 if decimal else 1024
    factor: int = base ** _UNITS[found[2].lower()]
    size = round(float(found[1]) * factor)
    if size >= 2**63:
        raise AdvisorError(f"'{text}' is larger than any buffer", hint="below 8388608T")
    return size
