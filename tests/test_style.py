"""docs/style.md as a test: what users read is short, plain and in the words of the glossary."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor import messages
from advisor.engine.catalogue import load_catalogue
from advisor.engine.fragments import templates
from advisor.findings import VerdictKind
from advisor.vocabulary import placeholders

ROOT = Path(__file__).resolve().parent.parent
MOST_WORDS = 25
MOST_TITLE = 140
LONGEST_LINE = 110  # of a rule
MOST_CODE = 3  # lines of an edit
HEDGES = re.compile(r"\b(hardly|perhaps|untold|as far as|by chance|not sure)\b", re.IGNORECASE)
# In verdicts, notes and rules also words that the glossary replaces.
BANNED = re.compile(rf"{HEDGES.pattern}|\b(cannot be told|told)\b", re.IGNORECASE)
TAG = re.compile(r"\{%.*?%\}", re.DOTALL)
VALUE = re.compile(r"\{\{.*?\}\}", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.:;?!]) |\n")
ASIDE = re.compile(r"\s*\(([^()]*)\)")
SQL = re.compile(r"\s*(SELECT|WITH|FROM|INSERT|WHERE)\b")
DOCS = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "README.md"]


def catalogue() -> Iterator[tuple[str, str]]:
    for table in ("NOTES", "VERDICTS", "WHYS", "STEPS", "SUMMARY", "TUNED", "TUNED_WHY",
                  "TUNED_ALSO", "TUNED_TRIED", "GAINS", "WHATIF", "STATES", "CONFIDENCES",
                  "REASONS", "COMPARED", "PAGE", "COMPARED_NOTES"):  # fmt: skip
        for code, text in getattr(messages, table).items():
            yield f"{table}.{code}", text


def rule_texts() -> Iterator[tuple[str, str]]:
    for rule in load_catalogue()[0]:
        yield f"{rule.id}.headline", rule.headline
        for field in ("because", "message", "fix", "verify"):
            for text in templates(getattr(rule, field)):
                yield f"{rule.id}.{field}", text.splitlines()[0]  # below it stands code


def explanations() -> Iterator[tuple[str, str]]:
    """What `advisor explain` and the pages of rules say beside their findings."""
    for rule in load_catalogue()[0]:
        yield f"{rule.id}.title", rule.title
        yield f"{rule.id}.why", rule.why
        yield f"{rule.id}.how", rule.savings.how
        yield f"{rule.id}.assumes", rule.savings.assumes
        for name, param in rule.params.items():
            yield f"{rule.id}.{name}", param.reason
        for text in rule.false_alarms:
            yield f"{rule.id}.false_alarms", text


def paragraphs(page: str) -> Iterator[str]:
    """The prose of a Markdown page: paragraphs, points of lists and cells, code as one word."""
    page = re.sub(r"```.*?```|<!--.*?-->", "\n\n", page, flags=re.DOTALL)
    page = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "x", page))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.|\|) ?)", page):
        is_row = block.lstrip().startswith("|")
        yield from (" ".join(part.split()) for part in (block.split("|") if is_row else [block]))


def long_sentences(text: str) -> list[str]:
    """Sentences over :data:`MOST_WORDS`; what stands in brackets counts by itself."""
    parts = [ASIDE.sub("", text), *ASIDE.findall(text)]
    sentences = [sentence for part in parts for sentence in SENTENCE.split(part)]
    return [sentence for sentence in sentences if len(sentence.split()) > MOST_WORDS]


def errors_and_help() -> Iterator[tuple[str, str]]:
    """Texts of AdvisorError and of click's options and commands, from the source."""
    for path in sorted((ROOT / "advisor").rglob("*.py")):
        source = path.read_text("utf-8")
        says = re.search(r"AdvisorError|\b(hint|help)\b", source)  # to parse all takes seconds
        for node in ast.walk(ast.parse(source)) if says else ():
            if not isinstance(node, ast.Call):
                continue
            is_error = isinstance(node.func, ast.Name) and node.func.id == "AdvisorError"
            said = [*node.args] if is_error else []
            said += [item.value for item in node.keywords if item.arg in ("hint", "help")]
            for value in said:
                parts = [item for item in ast.walk(value) if isinstance(item, ast.Constant)]
                text = " ".join(item.value for item in parts if isinstance(item.value, str))
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def printed() -> Iterator[tuple[str, str]]:
    """Every text of four words and more in the code of commands and reports but docstrings."""
    for path in sorted((ROOT / "advisor").glob("[cr]*/**/*.py")):
        if path.relative_to(ROOT).parts[1] not in ("cli", "report"):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        joined = [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
        parts = {id(part) for node in joined for part in ast.walk(node) if part is not node}
        parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if id(node) in parts or not isinstance(node, ast.Constant | ast.JoinedStr):
                continue
            values = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(it.value) if isinstance(it, ast.Constant) else "x" for it in values)
            if len(re.findall(r"[A-Za-z]{2,}", text)) > 3 and not SQL.match(text):
                yield f"{path.relative_to(ROOT)}:{node.lineno}", text


def longest_path(text: str) -> str:
    """The template with the longest branch of each condition, its values as one word."""
    text = VALUE.sub("x", text)
    innermost = re.compile(r"\{% if (?:(?!\{% if ).)*?\{% endif %\}", re.DOTALL)
    while (found := innermost.search(text)) is not None:
        branches = TAG.split(found[0])
        text = text.replace(found[0], max(branches, key=lambda part: len(part.split())))
    return TAG.sub(" ", text)


def test_sentences_are_short_and_plain() -> None:
    texts = [(code, longest_path(text)) for code, text in (*catalogue(), *rule_texts())]
    found = [
        f"{code}: {sentence}"
        for code, plain in texts
        for sentence in SENTENCE.split(plain)
        if len(sentence.split()) > MOST_WORDS
    ]
    found += [f"{code}: {word[0]}" for code, plain in texts if (word := BANNED.search(plain))]
    assert len(texts) > 1000
    assert not found, "\n".join(found)


def test_explanations_are_short_and_plain() -> None:
    texts = [(where, longest_path(" ".join(text.split()))) for where, text in explanations()]
    found = [
        f"{where}: {plain}"
        for where, plain in texts
        if long_sentences(plain) or BANNED.search(plain)
    ]
    assert len(texts) > 500
    assert not found, "\n".join(found)


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.stem)
def test_pages_are_short_and_plain(path: Path) -> None:
    for text in paragraphs(path.read_text(encoding="utf-8")):
        assert not long_sentences(text)
        # The style sheet names them.
        assert path.name == "style.md" or not BANNED.search(text), text


def test_each_example_of_the_style_sheet_is_said_by_the_program() -> None:
    """Names, numbers and plurals aside, one rule or one text of the catalogue has its words."""
    page = (ROOT / "docs" / "style.md").read_text(encoding="utf-8")
    examples = re.findall(r"^\| (?!before|-)(.+) \| (.+) \|$", page, re.MULTILINE)
    texts: dict[str, str] = dict(catalogue())
    for code, text in rule_texts():
        rule = code.partition(".")[0]
        texts[rule] = f"{texts.get(rule, '')} {text}"
    texts["kinds"] = " ".join(VerdictKind)
    said = [set(re.findall("[a-z]{2,}[a-rt-z]", text.lower())) for text in texts.values()]
    assert len(examples) == 12
    for _, now in examples:
        words = set(re.findall("[a-z]{2,}[a-rt-z]", re.sub("`.*?`", "", now.lower())))
        assert any(words <= one for one in said), now


def test_the_lint_finds_what_it_is_for() -> None:
    (cell, *_) = [text for text in paragraphs("| a | it cannot be told |\n") if "told" in text]
    assert BANNED.search(cell)
    words = " ".join(["word"] * 26)
    assert long_sentences(f"Short. {words}.") == [f"{words}."]
    assert long_sentences(f"{words[:60]} ({words}) on.") == [words]
    assert not long_sentences(f"{words[:60]}; {words[:60]}.")
    assert not "".join(paragraphs("```\ntold\n```")).strip()


def test_texts_that_a_whole_trace_may_have_do_not_say_per_step() -> None:
    """Such rules need several steps, or say {{ per_step }}, 'in all' where there are none."""
    found = [
        (rule.id, text)
        for rule in load_catalogue()[0]
        if max((need.steps or 0 for need in rule.needs), default=0) == 1
        for text in (rule.headline, *templates(rule.because), *templates(rule.message))
        if re.search(r"\bper step\b(?! and rank)", text)
    ]
    assert not found


# A program and what it is given: no call, setting or statement.
SHELL = re.compile(r"(?!for |with |from |import |if |def )[a-z][\w.-]* [\w-]")


def is_one_step(text: str) -> bool:
    """Whether its code is one command, or an edit of few lines."""
    code = [line.partition("  # ")[0] for line in TAG.sub("", text).splitlines()[1:]]
    several = len(code) != 1 and any(SHELL.match(line) for line in code)
    strung = (re.search(r"; |&&", re.sub(r"'[^']*'|\"[^\"]*\"", "", line)) for line in code)
    return len(code) <= MOST_CODE and not several and not any(strung)


def test_a_step_is_one_command_or_one_edit_of_few_lines() -> None:
    steps = [
        *((f"{rule.id}.{field}", text) for rule in load_catalogue()[0]
          for field in ("fix", "verify") for text in templates(getattr(rule, field))),
        *messages.STEPS.items(),
    ]  # fmt: skip
    found = [f"{where}: {text}" for where, text in steps if not is_one_step(text)]
    assert len(steps) > 300
    assert not found, "\n".join(found)
    assert not is_one_step("Say.\ncd there\npython train.py")
    assert not is_one_step("Say.\nimport gc; gc.disable()")


def test_whatever_is_to_be_filled_in_is_explained_beside_it() -> None:
    found = []
    for rule in load_catalogue()[0]:
        for text in [*templates(rule.fix), *templates(rule.verify)]:
            code = "\n".join(text.splitlines()[1:]).replace("OLD NEW", "NEW")
            for line in placeholders.hinted(
                re.sub(r'"[^"]*"', "", VALUE.sub("x", code))
            ).splitlines():
                said, _, hints = line.partition("  # ")
                capitals = re.findall(r"(?<= )[A-Z]{2,}(?![\w=,])|(?<=[ =])N\b", said)
                found += [f"{rule.id}: {line}" for name in capitals if f"{name} = " not in hints]
    assert not found


@pytest.mark.slow
def test_errors_and_help_do_not_hedge() -> None:
    found = [f"{where}: {text}" for where, text in errors_and_help() if HEDGES.search(text)]
    assert not found, "\n".join(found)


def test_what_commands_print_is_short_and_plain() -> None:
    found = [
        f"{where}: {text}"
        for where, text in printed()
        if BANNED.search(text) or long_sentences(text)
    ]
    assert not found, "\n".join(found)


def test_lines_of_rules_can_be_read() -> None:
    found = {
        f"{path.name}:{number}"
        for path in (ROOT / "rules").glob("*.yaml")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > LONGEST_LINE
    }
    assert not found


def test_no_stored_recording_has_a_verdict_that_is_too_long() -> None:
    """Pins hold what is said of every fixture."""
    titles = {}
    for pin in sorted((ROOT / "benchmarks" / "pins").glob("*.txt")):
        text = pin.read_text("utf-8")
        report = json.loads(text[text.index("\n{\n") :])
        for verdict in [report["verdict"], *(run["verdict"] for run in report["runs"])]:
            if verdict is not None:
                titles[f"{pin.stem}: {verdict['title']}"] = verdict
    assert len(titles) > 10
    for title, verdict in titles.items():
        assert len(verdict["title"]) <= MOST_TITLE, title
        assert len(verdict["next_steps"]) <= 3, title
        sentences = re.split(r"(?<=[.!?]) (?=[A-Z])", verdict["why"])
        assert len(sentences) <= 2, title
        assert all(len(sentence.split()) <= MOST_WORDS for sentence in sentences), title
