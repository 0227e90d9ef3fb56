"""What the shell's tab key offers where the names are ours: rules, tables."""

import click
from click.shell_completion import CompletionItem


def rule_names(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The shipped rules whose id begins with what is typed."""
    from advisor.config.paths import shipped

    names = sorted(path.stem for path in shipped("rules").glob("*.yaml"))
    return [name for name in names if name.startswith(begun)]


def table_names(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """The tables of every store whose name begins with what is typed; else files, as a store is."""
    from advisor.store.schema import parse_schema

    names = sorted(table.name for table in parse_schema())
    found = [CompletionItem(name) for name in names if name.startswith(begun)]
    return found or [CompletionItem(begun, type="file")]
