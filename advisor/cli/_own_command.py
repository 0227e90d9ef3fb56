"""Command lines that hold another one: everything after ``--`` is the user's own command."""

import click


class WithOwnCommand(click.Command):
    """Keeps what stands after ``--`` for :func:`own_command`; options before it are ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Cut the user's command off before click sees it."""
        if "--" in args:
            place = args.index("--")
            ctx.meta[__name__] = tuple(args[place + 1 :])
            if not ctx.meta[__name__]:  # an empty variable: a sweep would take the reference job
                raise click.UsageError("no command stands after --", ctx)
            args = args[:place]
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """The usage line names it."""
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND ...]"]


def own_command() -> tuple[str, ...]:
    """The command after ``--``; () without one."""
    found: tuple[str, ...] = click.get_current_context().meta.get(__name__, ())
    return found
