"""advisor tuner-plugin: build the tuner that applies a rule file, or check such a file."""

from pathlib import Path

import click


@click.group("tuner-plugin", epilog="Example:  advisor tuner-plugin check rules.csv")
def command() -> None:
    """Rules for NCCL's choice of algorithm and protocol, by message size.

    The plugin needs NCCL 2.22 or later and a C compiler, not CUDA. It makes NCCL take a rule's
    algorithm where NCCL itself allows it, and leaves every other call alone.

    Example:  advisor tuner-plugin build -o plugin/
    """


@command.command("build")
@click.option(
    "-o",
    "--output",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Folder for the library.",
)
@click.option("--compiler", metavar="CC", help="C compiler; default $CC, cc or gcc.")
@click.option("--force", is_flag=True, help="Replace an existing library.")
def build(folder: Path, compiler: str | None, force: bool) -> None:
    """Compile libnccl-tuner-advisor.so."""
    from advisor.tune.plugin.build import build_plugin

    out = build_plugin(folder, compiler=compiler, force=force).resolve()
    click.echo(f"Wrote {out}", err=True)
    click.echo(f"export NCCL_TUNER_PLUGIN={out}")
    click.echo("export NCCL_TUNER_CONFIG_FILE=/path/to/rules.csv")


@command.command("check")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--nccl", metavar="VERSION", default="2.29.7", show_default=True)
def check(file: Path, nccl: str) -> int:
    """Check a rule FILE: exit status 1 when a rule is wrong or can never apply, 2 without rules
    to check: no such file, or a release that is none.
    """
    from advisor.errors import AdvisorError
    from advisor.model.nccl.version import format_version, parse_version
    from advisor.tune.plugin.parse import parse_rules
    from advisor.tune.plugin.rules import TUNERS_SINCE, check_rules

    try:
        if file.stat().st_size > 4 * 1024 * 1024:
            raise AdvisorError("a rule file is never larger than 4 MiB", where=str(file))
        # Bytes as they are: a lone CR ends no line for the plugin.
        text = file.read_bytes().decode("utf-8", "surrogateescape")
    except OSError as error:
        raise AdvisorError(f"cannot be read: {error.strerror}", where=str(file)) from error
    version = parse_version(nccl)
    try:
        rules = parse_rules(text, where=str(file))
    except AdvisorError as error:
        click.echo(str(error))
        return 1
    problems = check_rules(rules, version)
    if version < TUNERS_SINCE:
        late = f"NCCL {format_version(version)} does not load the plugin, which needs 2.22 or later"
        problems = [f"{late}: no rule applies", *problems]
    for problem in problems:
        click.echo(f"{file}: {problem}")
    if not problems:
        click.echo(f"{file}: {len(rules)} rule{'s' if len(rules) != 1 else ''}, all sound")
    return 1 if problems else 0
