"""Pages that are generated when the site is built: one per rule, the commands, the tables.

They come from the rule files, the commands' own help and schema.sql, so that they cannot disagree
with them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from mkdocs.structure.files import File, Files

from advisor.cli._main import _root
from advisor.cli.explain import sections, static_text
from advisor.config.loader import read_yaml
from advisor.config.parsed import plain
from advisor.config.paths import shipped
from advisor.engine.catalogue import load_catalogue
from advisor.engine.rule import Rule
from advisor.engine.sandbox import Sandbox
from advisor.engine.views import View, views
from advisor.ingest.detect import readers
from advisor.model.nccl.env.table import NEWEST, variables
from advisor.model.nccl.version import format_version
from advisor.store.schema import parse_schema
from advisor.store.store import schema_sql
from advisor.vocabulary.placeholders import hinted


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    for path, text in pages():
        files.append(File.generated(config, path, content=text))
    return files


def pages() -> list[tuple[str, str]]:
    """(path, Markdown) of every generated page."""
    rules = [
        (file.stem, plain(read_yaml(file))) for file in sorted(shipped("rules").glob("*.yaml"))
    ]
    result = [(f"rules/{rule.id}.md", rule_page(rule)) for rule in load_catalogue()[0]]
    result.append(("rules/index.md", rules_index(rules)))
    result.append(("formats/index.md", formats_index()))
    result.append(("commands.md", commands_page()))
    result.append(("nccl-variables.md", nccl_variables_page()))
    result.append(("views.md", views_page(rules)))
    result.append(("tables.md", f"# Tables\n\n```sql\n{schema_sql()}\n```\n"))
    return result


def views_page(rules: list[tuple[str, dict[str, Any]]]) -> str:
    """What rules select from: each view, its columns, and the rules and views that read it."""
    lines = [
        "# Views",
        "",
        "What a rule's SQL selects from, beside the [tables](tables.md). Figures per step rest on "
        "used steps: complete on every recorded rank, past the warm-up and not odd. Times are ns, "
        "sizes bytes.",
        "",
    ]
    texts = {
        name: f"{rule.get('sql')} {rule.get('evidence')} {rule.get('needs')}"
        for name, rule in rules
    }
    with Sandbox(None, "docs") as sandbox:
        for part in sorted({view.part for view in views().values()}):
            lines += [f"## {part}", ""]
            for view in sorted(views().values(), key=lambda view: view.name):
                if view.part != part:
                    continue
                lines += [
                    f"### {view.name}",
                    "",
                    view.about,
                    "",
                    "| column | type | |",
                    "|---|---|---|",
                ]
                sandbox.select(f'FROM "{view.name}" LIMIT 0', {})  # makes it
                columns = f'SELECT column_name, column_type FROM (DESCRIBE "{view.name}")'
                types = dict(sandbox.con.execute(columns).fetchall())
                lines += [
                    f"| `{name}` | {kind} | {_inline(column_note(view, name))} |"
                    for name, kind in types.items()
                ]
                word = re.compile(rf"\b{view.name}\b")
                users = [
                    f"[{name}](rules/{name}.md)"
                    for name, text in texts.items()
                    if word.search(text)
                ]
                above = [
                    f"[{other.name}](#{other.name})"
                    for other in views().values()
                    if other is not view and word.search(other.select)
                ]
                lines += ["", f"Read by {', '.join([*above, *users]) or 'the engine itself'}.", ""]
    return "\n".join(lines)


def column_note(view: View, column: str) -> str:
    """What a column of a view means: its own note, else that of where it comes from."""
    if column in view.notes:
        return view.notes[column]
    for other in reversed(views().values()):
        if other.name in view.reads and column in other.notes:
            return other.notes[column]
    for table in parse_schema():
        for known in table.columns:
            if table.name in view.reads and known.name == column:
                return known.comment
    return ""


def rules_index(rules: list[tuple[str, dict[str, Any]]]) -> str:
    """All rules by category, and which of them were never seen firing on a real run."""
    unproven = sum(_unproven(rule) for _, rule in rules)
    lines = ["# Rules", ""]
    lines += [
        f"{len(rules) - unproven} of {len(rules)} rules were seen firing on real runs. The other "
        f"{unproven} fire on their examples only, which are made up: each page says why.",
        "",
    ]
    for category in sorted({str(rule.get("category")) for _, rule in rules}):
        lines += [f"## {category}", "", "| rule | finds | seen firing on |", "|---|---|---|"]
        lines += [
            f"| [{name}]({name}.md) | {_inline(rule.get('summary') or rule.get('title'))} "
            f"| {'examples only' if _unproven(rule) else 'real runs'} |"
            for name, rule in rules
            if str(rule.get("category")) == category
        ]
        lines.append("")
    return "\n".join(lines)


def rule_page(rule: Rule) -> str:
    """What ``advisor explain`` says of one rule, then its query and its examples."""
    lines = [f"# {rule.id}", "", f"**{_inline(rule.title)}**", ""]
    for title, texts in sections(rule):
        shown = [_item(text, len(texts) > 1) for text in texts if text]
        lines += [f"## {title}", "", *shown, ""] if shown else []
    lines += ["## Examples", "", "Made up, as rows of tables; each is a test of the rule.", ""]
    lines += [_example(example.model_dump()) for example in rule.examples]
    lines += ["", "## Query", "", "```sql", rule.sql.strip(), "```", ""]
    return "\n".join(lines)


def _item(text: str, of_several: bool) -> str:
    """A text, and what to type below it as it is typed."""
    words, _, code = text.partition("\n")
    mark, margin = ("- ", "    ") if of_several else ("", "")
    said = mark + " ".join(re.sub(r"<(\w+)>", r"`\1`", words).split())
    if not code:
        return said
    block = [f"{margin}{line}" for line in ["```text", *hinted(code.rstrip()).splitlines(), "```"]]
    return "\n".join([said, "", *block, ""])


def _proof(rule: dict[str, Any]) -> str:
    """What ``advisor explain`` says under the same heading."""
    return str(rule.get("proof") or Rule.model_fields["proof"].default)


def _unproven(rule: dict[str, Any]) -> bool:
    return _proof(rule).startswith("examples only")


def _example(example: dict[str, Any]) -> str:
    """'- name: fired', with why where the file says it."""
    kind = ", a look-alike" if example.get("look_alike") else ""
    why = f" ({_inline(example['why'])})" if example.get("why") else ""
    return f"- {_inline(example['name'])}: {example['expect']}{kind}{why}"


def formats_index() -> str:
    """All readers; each has a page of its own."""
    lines = ["# Formats", "", "A file's format is found by its content.", ""]
    lines += ["| format | what it is |", "|---|---|"]
    for reader in readers():
        page = Path(__file__).parent / "formats" / f"{reader.FORMAT}.md"
        name = f"[{reader.FORMAT}]({page.name})" if page.exists() else reader.FORMAT
        lines.append(f"| {name} | {_inline(reader.SUMMARY)} |")
    return "\n".join(lines) + "\n"


def nccl_variables_page() -> str:
    """NCCL's variables as every command knows them."""
    lines = [
        "# NCCL's variables",
        "",
        f"All that a release of NCCL up to {format_version(NEWEST)} reads, from its sources. Of "
        "releases newer than 2.30.7 it is what their library reads (`libnccl.so.2`): names and "
        "defaults. Class S may stay in scripts, D is for debugging, U is not in the guide. "
        "`advisor check-env` says what a setting costs.",
        "",
        "| variable | meaning | class | releases | default | read in |",
        "|---|---|---|---|---|---|",
    ]
    for variable in variables().values():
        since = format_version(variable.since) if variable.since else ""
        until = format_version(variable.until) if variable.until else ""
        default = variable.default(variable.until or NEWEST)
        lines.append(
            f"| {variable.name} | {_inline(variable.meaning)} | {variable.category} | "
            f"{since} to {until} | {'' if default is None else default} | {variable.source} |"
        )
    return "\n".join(lines) + "\n"


def commands_page() -> str:
    """The help of every command."""
    context = click.Context(_root, info_name="advisor", max_content_width=90)
    lines = ["# Commands", "", "```text", _root.get_help(context), "```", ""]
    for name in _root.list_commands(context):
        command = _root.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context, max_content_width=90)
        lines += [f"## advisor {name}", "", "```text", command.get_help(inner), "```", ""]
    return "\n".join(lines)


def _without_templates(text: str) -> str:
    """Message templates for readers: alternatives side by side, values as their names."""
    return " ".join(re.sub(r"<(\w+)>", r"`\1`", static_text(text)).split())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "; ".join(f"{key} {_inline(inner)}" for key, inner in value.items())
    if isinstance(value, list):
        return ", ".join(_inline(item) for item in value)
    return _without_templates(str(value)).replace("|", "\\|")


if __name__ == "__main__":
    for where, content in pages():
        Path(where).parent.mkdir(parents=True, exist_ok=True)
        Path(where).write_text(content, encoding="utf-8")
