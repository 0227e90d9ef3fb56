"""A space that varies a variable NCCL does not read is a mistake in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.config.sweep import load_space
from advisor.errors import AdvisorError
from advisor.tune.prepare import check_variables

SPACE = """\
axes:
  - setting: env.NCCL_BUFFSIZE
    values: ["8388608"]
  - setting: env.NCCL_{name}
    values: ["1", "2"]
"""


@pytest.mark.parametrize(
    ("name", "version", "line"),
    [
        ("IB_QPS_PER_CONECTION", (2, 29, 7), 4),
        ("NVLS_ENABLE", (2, 14, 3), 4),
        ("IB_QPS_PER_CONNECTION", (2, 29, 7), None),
        ("OFI_RDMA_MIN", (2, 29, 7), None),
    ],
)
def test_an_unread_variable_is_named_with_its_line(
    tmp_path: Path, name: str, version: tuple[int, int, int], line: int | None
) -> None:
    path = tmp_path / "space.yaml"
    path.write_text(SPACE.format(name=name))
    axes = load_space(path).axes
    if line is None:
        check_variables(path, axes, version)
        return
    with pytest.raises(AdvisorError) as error:
        check_variables(path, axes, version)
    assert error.value.where.endswith(f":{line}")
