"""What a library reads of its environment, out of one that is compiled here."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks.nccl_source.library import read_names

SOURCE = """
#include <stdlib.h>
__attribute__((noinline)) void load(const char *name, long value, long *cache) {
  *cache = getenv(name) ? 1 : value;
}
long a, b, c, d;
const char *listed[] = {"NCCL_LOG_INFO"};
void read_all(void) {
  load("NCCL_BUFFSIZE", -2, &a);
  load("NCCL_IB_TIMEOUT", 20, &b);
  load("NCCL_CROSS_NIC", 0, &c);
  load("NCCL_MIN_CTAS", -2147483648L, &d);
}
char *algorithm(void) { return getenv("NCCL_ALGO"); }
const char *enumerator(void) { return listed[0]; }
"""

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64" or shutil.which("gcc") is None, reason="needs gcc on x86-64"
)


def test_names_come_with_how_they_are_read(tmp_path: Path) -> None:
    """GIVEN a library that reads four integers and a text THEN a name that it lists is none."""
    (tmp_path / "a.c").write_text(SOURCE)
    library = tmp_path / "lib.so"
    flags = ["-O1", "-fPIC", "-shared", "-fno-ipa-cp"]
    subprocess.run(["gcc", *flags, str(tmp_path / "a.c"), "-o", str(library)], check=True)
    assert read_names(library) == {
        "NCCL_BUFFSIZE": (True, {-2}),
        "NCCL_IB_TIMEOUT": (True, {20}),
        "NCCL_CROSS_NIC": (True, {0}),
        "NCCL_MIN_CTAS": (True, {None}),
        "NCCL_ALGO": (False, set()),
    }
