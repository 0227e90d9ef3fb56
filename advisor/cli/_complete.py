"""What the shell's tab key offers where the names are ours: rules."""

from __future__ import annotations

import click


def rule_names(_: click.Context, __: click.Parameter, begun: str) -> list[str]:
    """The shipped rules whose id begins with what is typed."""
    from advisor.config.paths import shipped

    names = sorted(path.stem for path in shipped("rules").glob("*.yaml"))
    return [name for name in names if name.startswith(begun)]
