"""A rule from elsewhere can use bounded time and memory, and put words into the report; no more."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest
from jinja2 import TemplateError
from jinja2.exceptions import SecurityError

import advisor
from advisor.config.paths import shipped
from advisor.engine.memory_limit import MemoryLimit
from advisor.engine.sandbox import RuleSqlError, Sandbox
from advisor.findings import OutcomeKind
from advisor.vocabulary.bounded_templates import limited, timed
from advisor.vocabulary.templates import render


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ rows.__init__.__globals__ }}",
        "{{ self }}{{ self.__init__ }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{{ range(10) }}",
        "{{ lipsum() }}",
        "{{ cycler('a').__init__ }}",
        "{{ 'a' * 10000000000 }}",
        "{{ 10 ** 1000000000 }}",
        "{{ '%9999999999s' % 1 }}",
        "{{ '%9999999999s' | format(1) }}",
        "{{ '{:>9999999999}'.format(1) }}",
        "{{ 'a'.ljust(9999999999) }}",
        "{{ 'a' | center(9999999999) }}",
        "{{ rows | batch(9999999999, 0) | list }}",
        "{{ ('a' * 9) | replace('a', text) }}",
        "{{ text | replace('a', text) }}",
        "{% for a in rows %}{% for b in rows %}x{% endfor %}{% endfor %}",
        "{% for a in rows recursive %}{{ loop(rows) }}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "{{ 9 ** 60 ** 60 ** 60 }}",
        "{% set a = 9 ** 64 %}" + "{% set a = a * a %}" * 40 + "{{ a > 1 }}",
        "{% set a = text %}" + "{% set a = a ~ a %}" * 40,
        "{% set a = text %}" + "{% set a = a + a %}" * 40,
        "{% set a = rows %}" + "{% set a = a + a %}" * 40,
        "{% set a = rows %}" + "{% set a = [a, a] %}" * 40 + "{{ a }}",
        "{% set a = rows %}" + "{% set a = {1: a, 2: a} %}" * 40 + "{{ a == a }}",
        "{% set x %}{{ text }}{% endset %}" + "{% set x %}{{ x }}{{ x }}{% endset %}" * 40,
        "{% filter upper %}{{ text }}{% endfilter %}",
        "{% with a = text %}{{ a }}{% endwith %}",
        "{% autoescape true %}{{ text }}{% endautoescape %}",
        "{{ rows | join(rows | join(rows | join(rows | join(text)))) }}",
        "{{ rows | map('join', text) | join }}",
        "{{ [rows, rows] | sum(start=[]) }}",
        "{{ '%s%s' | format(rows | join(' '), text * 1) }}",
        "{{ '%s' * 1 | format(text) }}",
        "{{ ('%s' ~ '%s') | format(names, names) }}",
        "{{ 5 | round(-1000000000) }}",
        "{{ 5 | round(1000000000, 'ceil') }}",
        "{{ (5).to_bytes(9999999999, 'little') }}",
        "{{ names | upper }}",
        " " * 70_000 + "{{ 1 }}",
    ],
)
def test_a_template_is_refused(template: str) -> None:
    with pytest.raises((TemplateError, TypeError, ValueError)):
        render(template, {"rows": [1] * 1000, "text": "a" * 4000, "names": "a" * 200_000})


@pytest.mark.parametrize(
    "template",
    [
        "{{ 1 }}",
        "{% for a in rows %}{% if -1 in rows %}{% endif %}{% endfor %}",
        "{% for a in rows %}{{ -1 in rows }}{% endfor %}",
    ],
)
def test_the_texts_of_a_rule_share_some_seconds(template: str) -> None:
    """A list within a loop over it takes the square of its length."""
    values = {"rows": list(range(40_000))}
    with limited(0.2), pytest.raises(SecurityError, match="too long"):
        while True:
            render(template, values)
    assert render("{{ 1 }}", {}) == "1"


def test_what_other_processes_take_of_the_processor_is_not_the_texts_time() -> None:
    """On a starved machine a log's only finding was lost to the wall's clock."""
    with limited(0.01):
        with timed("{{ 1 }}"):
            time.sleep(0.05)
        assert render("{{ 1 }}", {}) == "1"


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ 3 * n }} {{ n ** 2 }} {{ n % 2 }}", "21 49 1"),
        ("{{ '%.1f' | format(n) }}", "7.0"),
        ("{{ name | replace('_', ' ') | upper }}", "ALL REDUCE"),
        ("{% for rank in rows %}{{ rank }};{% endfor %}", "1;2;"),
        ("{{ name.startswith('all') }}", "True"),
        ("{% set a = n ~ ' of ' ~ 8 %}{{ a + '.' }}", "7 of 8."),
        ("{{ rows | join(', ') }} {{ 1.26 | round(1) }} {{ 2 in (1, 2) }}", "1, 2 1.3 True"),
    ],
)
def test_what_rules_need_is_there(template: str, said: str) -> None:
    assert render(template, {"n": 7, "name": "all_reduce", "rows": [1, 2]}) == said


def test_a_query_that_needs_much_memory_fails_alone() -> None:
    with Sandbox(None, "run", timeout_s=20) as sandbox:
        with pytest.raises(RuleSqlError):
            sandbox.select("SELECT array_to_string(range(1000000000), 'x') AS much", {})
        assert sandbox.records("SELECT 1 AS alive") == [{"alive": 1}]


@pytest.mark.parametrize(
    "query",
    [
        "SELECT len(range(1000000000)) AS n",
        "SELECT len(list_resize([1], 4000000000)) AS n",
        "SELECT len(list_sort(range(1000000000))) AS n",
    ],
)
def test_a_list_of_nothing_takes_no_memory_that_the_database_does_not_count(query: str) -> None:
    """GIVEN one call that makes 8 GB or more of a number THEN it fails at once, and others run."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    began = time.process_time()
    with Sandbox(None, "run", timeout_s=20) as sandbox:
        with pytest.raises(RuleSqlError, match="Memory"):
            sandbox.select(query, {})
        assert sandbox.records("SELECT 1 AS alive") == [{"alive": 1}]
    assert time.process_time() - began < 5
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_memory_is_limited_until_the_last_of_two_has_ended() -> None:
    before = resource.getrlimit(resource.RLIMIT_AS)
    one, other = MemoryLimit(1 << 30), MemoryLimit(2 << 30)
    with one:
        limited = resource.getrlimit(resource.RLIMIT_AS)
        with other:
            assert resource.getrlimit(resource.RLIMIT_AS) == limited
        assert resource.getrlimit(resource.RLIMIT_AS) == limited != before
    assert resource.getrlimit(resource.RLIMIT_AS) == before


@pytest.mark.parametrize(
    "call",
    [
        "levenshtein(name, name)",
        '"Jaro_Similarity"(name, name)',
        "main.damerau_levenshtein(name, name)",
        "length(lpad('x', 2000000000, 'y'))",
        "length(repeat('x', 2000000000))",
    ],
)
def test_a_function_that_no_limit_stops_is_refused(call: str) -> None:
    with Sandbox(None, "run") as sandbox, pytest.raises(RuleSqlError, match="not allowed"):
        sandbox.select(f"SELECT {call} AS n FROM (SELECT 'a' AS name)", {})


@pytest.mark.parametrize(
    "asked",
    [
        "name LIKE pattern",
        "name NOT ILIKE/**/$pattern",
        "name GLOB '*' || pattern",
        "name LIKE '" + "%a" * 200 + "b'",
        "name ~~ pattern",
        '"like_escape"(name, pattern, pattern)',
    ],
)
def test_a_pattern_that_is_not_known_to_be_short_is_refused(asked: str) -> None:
    """20,000 wildcards, or letters, against a long name are one comparison without end."""
    texts = "SELECT 'aaaaaaaa' AS name, '%aaaab%' AS pattern"
    with Sandbox(None, "run") as sandbox, pytest.raises(RuleSqlError, match="pattern"):
        sandbox.select(f"SELECT {asked} AS alike FROM ({texts})", {"pattern": "%"})


@pytest.mark.parametrize(
    "asked", ["name LIKE 'all%' -- like it\n", "(name NOT LIKE 'x_')", "'like'"]
)
def test_a_short_pattern_is_none(asked: str) -> None:
    with Sandbox(None, "run") as sandbox:
        (found,) = sandbox.records(f"SELECT {asked} AS alike FROM (SELECT 'all_gather' AS name)")
    assert found["alike"] in (True, "like")


@pytest.mark.slow
def test_a_folder_of_hostile_rules_costs_itself_only(tmp_path: Path, fixtures_dir: Path) -> None:
    """GIVEN rules that read files, write tables and climb out THEN they fail, and the rest runs."""
    base = (shipped("rules") / "compute-bound.yaml").read_text(encoding="utf-8")
    head = base[: base.index("sql: |")]
    tail = base[base.index("headline:") :]
    queries = {
        "reads": "SELECT * FROM read_text('/etc/hostname')",
        "writes": "COPY rank TO '/tmp/advisor-hostile.csv'",
        "drops": "DROP TABLE rank",
        "python": "SELECT * FROM facts_of_python",
    }
    for name, query in queries.items():
        text = f"{head}sql: |\n  {query}\n{tail}"
        (tmp_path / f"hostile-{name}.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "hostile-template.yaml").write_text(
        f"{base[: base.index('headline:')]}"
        "headline: \"{{ ''.__class__.__mro__ }}\"\n" + tail.split("\n", 1)[1],
        encoding="utf-8",
    )
    with advisor.load(fixtures_dir / "lab-ddp-compute-bound") as run:
        plain = run.diagnose()
        report = run.diagnose(rule_dirs=[tmp_path])
    hostile = [item for item in report.outcomes if item.rule.startswith("hostile")]
    assert {item.rule for item in hostile} >= {f"hostile-{name}" for name in queries}
    assert {item.outcome for item in hostile} == {OutcomeKind.ERROR}
    assert [item.id for item in report.findings] == [item.id for item in plain.findings]
    assert not Path("/tmp/advisor-hostile.csv").exists()
