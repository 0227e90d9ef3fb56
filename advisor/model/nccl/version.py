"""NCCL release numbers as comparable tuples."""

import re

from advisor.errors import AdvisorError
from advisor.vocabulary.numbers import decimal

NcclVersion = tuple[int, int, int]

_TEXT = re.compile(r"v?(\d{1,2})\.(\d{1,3})(?:\.(\d{1,3}))?(?:[-+. ]\S*)?")
OLDEST: NcclVersion = (2, 8, 0)


def parse_version(text: str) -> NcclVersion:
    """(2, 29, 7) from '2.29.7', 'v2.29.7-1', '2.29.7+cuda12.9' or NCCL's integer code 22907.

    Raises AdvisorError when it is none of these.
    """
    stripped = text.strip()
    code = decimal(stripped, least=1000)
    if code is not None:
        return version_of_code(code)
    found = _TEXT.fullmatch(stripped)
    if not found:
        raise AdvisorError(f"'{text}' is not an NCCL version", hint="write it like 2.29.7")
    return int(found[1]), int(found[2]), int(found[3] or 0)


def version_of_code(code: int) -> NcclVersion:
    """(2, 27, 7) from NCCL_VERSION_CODE 22707, (2, 6, 4) from 2604: nccl.h changed at 2.9."""
    major = 10_000 if code >= 10_000 else 1_000
    return code // major, code % major // 100, code % 100


def parse_covered(text: str) -> NcclVersion:
    """`parse_version` of a release the cost model speaks for: NCCL 2, from 2.8 on.

    Raises AdvisorError on any other.
    """
    version = parse_version(text)
    if version < OLDEST or version[0] > OLDEST[0]:
        raise AdvisorError(
            f"the cost model does not cover NCCL {format_version(version)}",
            hint="2.8 and later releases of NCCL 2 are covered",
        )
    return version


def format_version(version: NcclVersion) -> str:
    """'2.29.7' from (2, 29, 7)."""
    return ".".join(str(part) for part in version)
