"""Finds the commands, parses the shared options, and turns errors into one line and a status."""

import errno
import gc
import importlib
import os
import pkgutil
import sys
import traceback
from pathlib import Path

import click

from advisor import __version__
from advisor.cli._closed import open_closed_streams
from advisor.cli._interrupt import end_process, interrupted, watch_for_interrupts
from advisor.cli._limited_memory import NO_MEMORY, spare_memory, work_in_child
from advisor.config.settings import FILE_NAME, Option, check_settings, load_settings
from advisor.errors import AdvisorError, EndedBySignalError, not_written, refused

EVERYDAY = ("demo", "record", "diagnose", "compare", "open", "explain", "tune")
"""What most people need, in the order of need."""


class _NobodyReadsError(Exception):
    """The reader of standard output has ended, as `head` does."""


class _Commands(click.Group):
    """Commands are the modules beside this one: adding a command touches one file."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        folder = str(Path(__file__).parent)
        names = (module.name for module in pkgutil.iter_modules([folder]))
        return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(f"advisor.cli.{cmd_name.replace('-', '_')}")
        command = module.command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        """As ever, but click must not see a closed pipe: it would exit with the status 1, which
        says that there are findings."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _NobodyReadsError from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Every command with its whole first sentence, folded rather than cut."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = {
            name: command.get_short_help_str(limit=1000) for name, command in commands if command
        }
        with formatter.section("Everyday commands"):
            formatter.write_dl([(name, rows.pop(name)) for name in EVERYDAY if name in rows])
        with formatter.section("More commands"):
            formatter.write_dl(list(rows.items()))


def _say_version(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    if not asked or ctx.resilient_parsing:
        return
    from advisor.ingest.scanner_library import missing

    click.echo(f"advisor, version {__version__}")
    reason = missing()
    if reason:
        click.echo(f"Traces are read at a tenth of the speed: the scanner in C is {reason}.")
    ctx.exit()


@click.command(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example:  advisor diagnose traces/ --format html -o report.html",
)
@click.option(
    *("--version", "asked"),
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_say_version,
    help="Show the version and exit.",
)
@click.option("--debug", is_flag=True, help="Show a traceback when something goes wrong.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="TOML file of defaults, a table per command; ./advisor.toml is read by itself.",
)
@click.pass_context
def _root(ctx: click.Context, debug: bool, config: Path | None) -> None:
    """Find what a distributed training step loses in communication, and what to change."""
    if debug:
        os.environ["ADVISOR_DEBUG"] = "1"
    settings = load_settings(config)
    if settings:
        ctx.default_map = check_settings(settings, _options(ctx), str(config or FILE_NAME))


def _options(ctx: click.Context) -> dict[str, dict[str, Option]]:
    """Command -> long flag without its dashes -> its parameter."""
    assert isinstance(ctx.command, click.Group)
    commands = {name: ctx.command.get_command(ctx, name) for name in ctx.command.list_commands(ctx)}
    return {
        name: {
            flag.removeprefix("--"): Option(one.name or "", one.multiple or one.nargs != 1)
            for one in (command.params if command else ())
            for flag in one.opts
            if flag.startswith("--") and isinstance(one, click.Option)
        }
        for name, command in commands.items()
    }


_ALLOCATIONS = 500_000
"""Between two looks of the garbage collector, which takes 5 % of `diagnose` at a tenth of it: what
is imported is no garbage."""
_NOBODY_READS = 141
"""As shells show the end by SIGPIPE: 0 would say that what a command checks is as it should be."""


def main(args: list[str] | None = None) -> None:
    """Entry point. Exit status: 0 done, 1 findings at --fail-on, 2 usage, input or internal.

    Without ``args`` this is the whole process, which ends with it.
    """
    if args is None:
        work_in_child()
    code = _NOBODY_READS
    gc.set_threshold(_ALLOCATIONS, *gc.get_threshold()[1:])
    try:
        _start()
        spare_memory()
        words = sys.argv[1:] if args is None else args
        status = _root.main(args=words, prog_name="advisor", standalone_mode=False, obj=words)
        code = status if isinstance(status, int) else 0
        click.echo(nl=False)  # writes what waits, while it can still be told that it was refused
        if args is None:
            end_process(code)
        sys.exit(code)
    except (KeyboardInterrupt, click.exceptions.Abort):
        interrupted()
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.exceptions.Exit as error:
        sys.exit(error.exit_code)
    except (BrokenPipeError, _NobodyReadsError):
        _drop_output()
        sys.exit(code)
    except AdvisorError as error:
        if EndedBySignalError.came:  # what was told of it is what the signal broke
            interrupted()
        if os.environ.get("ADVISOR_DEBUG"):
            raise
        click.echo(f"advisor: {error}", err=True)
        sys.exit(2)
    except Exception as error:
        debug = bool(os.environ.get("ADVISOR_DEBUG"))
        # First, as what the others import has no room either.
        if _out_of_memory(error) and not debug:
            click.echo(NO_MEMORY, err=True, nl=False)
            if args is None:
                end_process(2)
            sys.exit(2)
        if (unloaded := _library_that_fails(error)) is None:
            from advisor.store.running import was_stopped

            if was_stopped(error):
                interrupted()
        if debug:
            raise
        click.echo(f"advisor: {unloaded or _said(error)}", err=True)
        sys.exit(2)


def _start() -> None:
    """Streams and signals; ends the process where no file can be opened, not even a module."""
    try:
        open_closed_streams()
        watch_for_interrupts()
        os.close(os.dup(2))
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        sys.stderr.write(f"advisor: {refused(error)}\n")
        sys.exit(2)


def _said(error: Exception) -> AdvisorError | str:
    """What to say of an error: damage of a store comes to light when its tables are asked."""
    from advisor.store.stored import damaged

    if isinstance(error, OSError) and _could_not_print(error):
        return not_written(error, "standard output")
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{str(error.filename)[:80]}…: this name is too long"
    return damaged(error) or refused(error) or (
        f"internal error: {type(error).__name__}: {error}\n"
        "  this is a defect of advisor; `advisor --debug ...` shows where, please report it"
    )  # fmt: skip


def _library_that_fails(error: Exception) -> AdvisorError | None:
    """What to say where a library that the package needs is missing or cannot be loaded."""
    if not isinstance(error, ImportError) or isinstance(error.__context__, KeyboardInterrupt):
        return None
    if (error.name or "").split(".")[0] == "advisor":
        return None
    reason = " ".join(str(error).split())
    return AdvisorError(
        f"a library that it needs cannot be loaded: {reason}",
        hint="install again: pip install --force-reinstall nccl-advisor",
    )


def _out_of_memory(error: Exception) -> bool:
    """Whether the system gave no more memory: to Python, the database, a library or a thread."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return (
        bool(names & {"MemoryError", "OutOfMemoryException"})
        or (isinstance(error, RuntimeError) and "can't start new thread" in str(error))
        or (isinstance(error, ImportError) and "failed to map segment" in str(error))
    )


_PRINTING = ("click.utils", "rich.console", "advisor.cli.sql")


def _could_not_print(error: OSError) -> bool:
    """Whether the system refused what was printed; what else waits for it is dropped."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    if frame.f_globals["__name__"] not in _PRINTING:
        return False
    _drop_output()
    return True


def _drop_output() -> None:
    """What waits to be printed goes nowhere: else Python fails again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
