from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.engine.rule import EvidenceQuery, Example, Savings
from advisor.findings import Confidence
from advisor.model.nccl.env.statements import statements
from advisor.vocabulary import records

SAVINGS = Savings(how="replay", confidence=Confidence.REPLAYED)


def test_what_was_kept_is_read_back_with_its_classes() -> None:
    read = records.read_back(records.kept(SAVINGS))
    assert read == SAVINGS
    assert read.confidence is Confidence.REPLAYED
    assert records.read_back(records.kept(statements())) == statements()


@pytest.mark.parametrize("row", [{"=": "builtins:tuple", "": [1]}, {1: "a number"}])
def test_rows_that_would_be_read_back_as_others_are_not_kept(row: dict[Any, Any]) -> None:
    example = Example(name="one", expect="passed", tables={"event": [row]})
    with pytest.raises(ValueError, match="read back"):
        records.kept(example)


@pytest.mark.parametrize("kind", ["os:system", "nowhere:Rule", "advisor.engine.rule:Path"])
def test_only_records_are_made_of_what_was_kept(kind: str) -> None:
    text = records.kept(SAVINGS).replace("advisor.engine.rule:Savings", kind)
    with pytest.raises(ValueError, match=r"no record|no module"):
        records.read_back(text)


def test_what_another_version_of_a_class_kept_is_not_read() -> None:
    text = records.kept(SAVINGS).replace('"advisor.engine.rule":', '"advisor.engine.rule":1')
    with pytest.raises(ValueError, match="another version"):
        records.read_back(text)


def test_a_record_has_the_fields_of_its_class_only() -> None:
    with pytest.raises(TypeError, match=r"missing \['sql'\]"):
        EvidenceQuery(title="a")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"unknown {'at'}"):
        EvidenceQuery(title="a", sql="b", at=1)  # type: ignore[call-arg]
    assert SAVINGS.model_copy(update={"how": "fit"}).how == "fit"
    assert SAVINGS.model_dump(include={"how", "confidence"}, mode="json") == {
        "how": "replay",
        "confidence": "replayed",
    }


def test_a_catalogue_that_was_read_before_needs_no_pydantic(tmp_path: Path) -> None:
    """GIVEN a cache that the first process fills."""
    code = (
        "import sys\nfrom advisor.engine.catalogue import load_catalogue\n"
        "print(len(load_catalogue()[0]), 'pydantic' in sys.modules)"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "ADVISOR_NO_CACHE": ""}
    env["HOME"] = str(tmp_path)
    first, second = (
        subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True)
        .stdout.decode()
        .split()
        for _ in range(2)
    )
    assert (first[1], second[1]) == ("True", "False")
    assert first[0] == second[0]
