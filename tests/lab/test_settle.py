"""What a change gives a case's job: the fields as they are written on the command line."""

from __future__ import annotations

import pytest

from benchmarks.lab import settle
from benchmarks.lab.config import RunConfig


def test_values_are_json_and_fields_those_of_a_job() -> None:
    changed = settle.changes(["bucket_cap_mb=25", "reshard=false", 'gradient_dtype="bfloat16"'])
    job = RunConfig(strategy="fsdp2").but(**changed)
    assert (job.bucket_cap_mb, job.reshard, job.gradient_dtype) == (25, False, "bfloat16")


@pytest.mark.parametrize("text", ["bucket_cap_mb", "reshard=False"])
def test_what_is_no_field_and_value_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        settle.changes([text])
