"""A rule from elsewhere that cannot be read, parsed, filled in or held costs itself only."""

from __future__ import annotations

import os
import shutil
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import yaml

import advisor
from advisor.config.loader import read_plain
from advisor.config.paths import shipped
from advisor.engine.allowance import Allowance
from advisor.engine.memory_limit import address_space_bytes
from advisor.engine.plain import MOST_CHARACTERS as MOST_TEXT
from advisor.engine.plain import MOST_ITEMS, MOST_VALUES
from advisor.engine.query_text import MOST_BRACKETS, MOST_CHARACTERS, refused
from advisor.engine.sandbox import RuleSqlError, Sandbox
from advisor.errors import AdvisorError
from advisor.findings import Outcome, OutcomeKind
from tests.support.command import advisor as command
from tests.support.marks import long

pytestmark = pytest.mark.slow

_BASE = (shipped("rules") / "compute-bound.yaml").read_text(encoding="utf-8")


def _outcomes(folder: Path, fixtures_dir: Path) -> dict[str, Outcome]:
    with advisor.load(fixtures_dir / "lab-ddp-compute-bound") as run:
        report = run.diagnose(rule_dirs=[folder])
        assert report.model_dump_json()
    return {one.rule: one for one in report.outcomes if one.rule.startswith("hostile")}


def _rule(headline: str) -> str:
    first, rest = _BASE.split("headline:", 1)
    return f"{first}headline: {headline}\n{rest.split(chr(10), 1)[1]}"


@pytest.mark.long
@pytest.mark.parametrize(
    "headline",
    [
        '"{{ 1 // 0 }}"',
        "\"{{ '%d' | format(1e400) }}\"",
        *long("\"{{ '%c' | format(-1) }}\"", '"{{ 1 | dictsort }}"'),
        f'"{{{{ {"(" * 3000}1{")" * 3000} }}}}"',
    ],
)
def test_a_template_that_raises_anything_fails_alone(
    headline: str, tmp_path: Path, fixtures_dir: Path
) -> None:
    (tmp_path / "hostile-words.yaml").write_text(_rule(headline), encoding="utf-8")
    (found,) = _outcomes(tmp_path, fixtures_dir).values()
    assert found.outcome == OutcomeKind.ERROR


@pytest.mark.long
@pytest.mark.parametrize(
    "values",
    [
        {"ranks": 10**9},
        {"steps": -1},
        {"step_ms": float("inf")},
        {"ranks": 1_000, "steps": 1_000},
        {"hosts": ["a"]},
        {"tables": {"collective": [{"repeat": float("nan")}]}},
        {"tables": {"collective": [{"repeat": 10**12}]}},
        {"tables": {"collective": [{"step": "x"}]}},
        {"tables": {"collective": [{"rank": [0] * 1_000, "step": [0] * 1_000}]}},
        {"finding": {"savings_ns": 10**400}, "expect": "fired"},
    ],
    ids=str,
)
def test_an_example_that_is_no_miniature_fails_alone(tmp_path: Path, values: object) -> None:
    rule = read_plain(shipped("rules") / "no-free-core.yaml")
    assert isinstance(rule, dict) and isinstance(values, dict)
    rule["examples"][0] |= values
    (tmp_path / "hostile-example.yaml").write_text(yaml.safe_dump(rule), encoding="utf-8")
    done = command("rules", "--rules", tmp_path, "--test", "hostile-example", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "internal error" not in done.stderr


def test_half_of_a_pair_is_written_out_or_refused(tmp_path: Path, fixtures_dir: Path) -> None:
    (tmp_path / "hostile-made.yaml").write_text(_rule("\"{{ '\\\\ud800' }}\""), encoding="utf-8")
    (tmp_path / "hostile-said.yaml").write_text(_rule('"a\\ud800"'), encoding="utf-8")
    found = _outcomes(tmp_path, fixtures_dir)
    assert found["hostile-made"].outcome == OutcomeKind.FIRED
    assert "surrogate" in found["hostile-said"].reason


def _with_query(query: str) -> str:
    head, tail = _BASE.split("sql: |", 1)
    return f"{head}sql: |\n  {query}\nheadline:{tail.split('headline:', 1)[1]}"


_ENDLESS = (
    "SELECT count(*) AS n FROM range(9999999) a, range(9999999) b WHERE (a.range ^ b.range) = 3"
)


def test_rules_from_elsewhere_share_their_time(
    tmp_path: Path, fixtures_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN a rule that takes all of it THEN the others are left out, and shipped rules are not."""
    module = sys.modules["advisor.engine.diagnose"]  # the package has its function of that name
    monkeypatch.setattr(module, "Allowance", partial(Allowance, cpu_s=0.4))
    for name in "abc":
        text = _with_query(_ENDLESS) if name == "a" else _BASE
        (tmp_path / f"hostile-{name}.yaml").write_text(text, encoding="utf-8")
    with advisor.load(fixtures_dir / "lab-ddp-compute-bound") as run:
        report = run.diagnose(rule_dirs=[tmp_path])
    said = {one.rule: one for one in report.outcomes}
    assert "took longer" in said["hostile-a"].reason
    assert {said[f"hostile-{name}"].outcome for name in "abc"} == {OutcomeKind.ERROR}
    assert all("left out" in said[f"hostile-{name}"].reason for name in "bc")
    assert said["compute-bound"].outcome == OutcomeKind.FIRED


def test_rules_from_elsewhere_share_their_memory() -> None:
    """GIVEN two that take what they get THEN both together get no more than one may."""
    most, query = 256 << 20, "SELECT list(range) AS n FROM range(3000000000)"
    before = address_space_bytes()
    with Sandbox(None, "run", allowance=Allowance(memory_bytes=most)) as sandbox:
        for _ in range(2):
            with sandbox.elsewhere(), pytest.raises(RuleSqlError, match="Memory"):
                sandbox.select(query, {})
        with sandbox.elsewhere():
            assert sandbox.select("SELECT 1 AS alive", {})[1]
    assert address_space_bytes() - before < 1.5 * most


def test_many_rows_of_which_half_gain_nothing_fill_few_texts(
    tmp_path: Path, fixtures_dir: Path
) -> None:
    """GIVEN 100,000 rows with lists in them THEN some are findings (each was held against all)."""
    query = (
        "SELECT i % 2 * 50e6 AS savings_ns, [i, i] AS ranks, 0.99 AS compute_share, "
        "0 AS exposed_share, 0.5 AS hidden_share, NULL AS longest "
        "FROM (SELECT range AS i FROM range(100000))"
    )
    text = _with_query(query).replace("noise_floor: false", "noise_floor: true\nlimit: 20")
    (tmp_path / "hostile-rows.yaml").write_text(text, encoding="utf-8")
    (found,) = _outcomes(tmp_path, fixtures_dir).values()
    assert found.outcome == OutcomeKind.FIRED, found.reason


def test_what_is_no_file_is_no_rule(tmp_path: Path, fixtures_dir: Path) -> None:
    """GIVEN a pipe into which nobody writes, a device and a folder THEN none is waited for."""
    os.mkfifo(tmp_path / "hostile-pipe.yaml")
    (tmp_path / "hostile-device.yaml").symlink_to("/dev/zero")
    (tmp_path / "hostile-folder.yaml").mkdir()
    found = _outcomes(tmp_path, fixtures_dir)
    assert len(found) == 3
    assert all("a rule is a file" in one.reason for one in found.values())


def test_a_device_is_not_read_to_its_end() -> None:
    with pytest.raises(AdvisorError, match="4 MiB"):
        read_plain(Path("/dev/zero"))


def test_brackets_that_the_parser_takes_the_square_of_are_refused() -> None:
    """GIVEN 30,000 brackets behind FROM, with others that only a comment closes THEN at once."""
    began = time.process_time()
    with Sandbox(None, "run") as sandbox:
        for opened in ("(" * 30_000, "( /*)*/ " * 3_000, "('é', " * 3_000):
            with pytest.raises(RuleSqlError, match="brackets"):
                sandbox.select(f"SELECT 'é' AS n FROM {opened}a", {})
    assert time.process_time() - began < 5


def test_what_people_write_is_neither_long_nor_deep() -> None:
    deep = "(" * MOST_BRACKETS + "1" + ")" * MOST_BRACKETS
    assert refused(f"SELECT {deep} AS n, '{'(' * 500}' AS text /* {'(' * 500} */") is None
    assert refused(f"SELECT {'1, ' * MOST_CHARACTERS}1") is not None


def test_a_pattern_behind_letters_of_two_bytes_is_looked_at() -> None:
    """The database counts the places of words in bytes."""
    assert "pattern" in (refused(f"SELECT '{'é' * 40}' AS text, name LIKE pattern AS n") or "")
    assert refused(f"SELECT '{'é' * 40}' AS text, name LIKE 'all%' AS n") is None


def test_rows_that_do_not_fit_fail_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: object) -> object:
        raise MemoryError

    monkeypatch.setattr("advisor.engine.sandbox._as_rows", full)
    with Sandbox(None, "run") as sandbox, pytest.raises(RuleSqlError, match="memory"):
        sandbox.select("SELECT 1 AS n", {})


def test_ctrl_c_in_a_rule_ends_the_diagnosis(
    tmp_path: Path, fixtures_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database says of Ctrl-C that its query was interrupted: no mistake of the rule."""

    def interrupted(*_: object) -> object:
        raise RuntimeError("Query interrupted")

    # Elsewhere, as what was once diagnosed in fixtures/ is not diagnosed again.
    shutil.copytree(fixtures_dir / "lab-ddp-compute-bound", tmp_path / "traces")
    with advisor.load(tmp_path / "traces") as run:
        monkeypatch.setattr("advisor.engine.sandbox._as_rows", interrupted)
        with pytest.raises(RuntimeError, match="interrupted"):
            run.diagnose()


def test_a_query_that_only_says_it_was_interrupted_fails_alone(
    tmp_path: Path, fixtures_dir: Path
) -> None:
    text = _with_query("SELECT error('Query interrupted') AS n")
    (tmp_path / "hostile-says.yaml").write_text(text, encoding="utf-8")
    (found,) = _outcomes(tmp_path, fixtures_dir).values()
    assert found.outcome == OutcomeKind.ERROR


def test_a_finding_names_a_bounded_number_of_ranks(tmp_path: Path, fixtures_dir: Path) -> None:
    """Three million ranks were a page of 76 MB."""
    own = "list(DISTINCT rank ORDER BY rank) AS ranks"
    assert own in _BASE
    text = _BASE.replace(own, "range(3000000) AS ranks")
    (tmp_path / "hostile-ranks.yaml").write_text(text, encoding="utf-8")
    with advisor.load(fixtures_dir / "lab-ddp-compute-bound") as run:
        report = run.diagnose(rule_dirs=[tmp_path])
    (found,) = (one for one in report.findings if one.rule == "hostile-ranks")
    assert len(found.ranks) == MOST_ITEMS


@pytest.mark.long
def test_a_finding_holds_a_bounded_number_of_values_however_they_are_nested(
    tmp_path: Path, fixtures_dir: Path
) -> None:
    """Three hundred lists of 60,000 numbers were a report of 375 MB."""
    own = "list(DISTINCT rank ORDER BY rank) AS ranks"
    more = (
        "list_transform(range(30), lambda x: range(60000)) AS lists, "
        "array_to_string(range(1500000), ',') AS letters, "
        "[array_to_string(range(1500000), ',')] AS hosts"
    )
    text = _BASE.replace(own, f"{own}, {more}")
    (tmp_path / "hostile-lists.yaml").write_text(text, encoding="utf-8")
    with advisor.load(fixtures_dir / "lab-ddp-compute-bound") as run:
        report = run.diagnose(rule_dirs=[tmp_path])
    (found,) = (one for one in report.findings if one.rule == "hostile-lists")
    facts = found.evidence.facts
    assert len(facts["lists"]) < 30
    assert sum(map(len, facts["lists"])) + len(facts["lists"]) == MOST_VALUES
    assert len(facts["letters"]) == MOST_TEXT
    assert found.hosts == []
