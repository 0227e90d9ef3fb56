"""``advisor completion``: tab completion for the shell."""

from typing import Literal

import click

from advisor.cli import _options as options
from advisor.cli._options import argument


@options.command(epilog='Example:  eval "$(advisor completion bash)"')
def command(shell: Literal["bash", "zsh", "fish"] = argument()) -> int:
    """Print the completion script of SHELL; put it into the shell's startup file."""
    from click.shell_completion import get_completion_class

    from advisor.cli._main import _root

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(_root, {}, "advisor", "_ADVISOR_COMPLETE").source())
    return 0
