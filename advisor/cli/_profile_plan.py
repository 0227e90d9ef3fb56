"""``advisor profile --device meta``: what every strategy would need per rank, with no run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from advisor.cli._table import table

if TYPE_CHECKING:
    from advisor.config.workload import Workload
    from advisor.profile.planning import Needs

_HEAD = ("strategy", "ranks", "parameters", "state GB", "activations GB", "memory GB", "sent GB")


def show(jobs: dict[str, Workload]) -> None:
    """One row per strategy: the rank that needs most."""
    from advisor.profile import planning

    found = [planning.needs(job) for job in jobs.values()]
    first = next(iter(jobs.values()))
    model = f"{first.model.family} {first.model.preset}"
    click.echo(f"{model}: {planning.total_parameters(first):,} parameters")
    flops = found[0].flops_per_step
    if flops:
        tokens = found[0].tokens_per_step
        click.echo(
            f"{flops / tokens:.4g} FLOPs per token at sequence {first.sequence_length:,}; "
            f"{flops:.4g} per step of {tokens:,} tokens"
        )
    click.echo("from shapes and formulas, nothing ran; per rank, the one that needs most\n")
    for line in table([_HEAD, *(_row(item) for item in found)]):
        click.echo(line)
    click.echo(
        "\nparameters: before data parallelism shards them; sent: per step; activations: 34 s*b*h"
        " per layer in 2 bytes\n(fused attention keeps no scores, so without the 5 a*s*s*b), and "
        "the head's output. "
        "Times, and which to choose: advisor plan"
    )


def _row(item: Needs) -> tuple[str, ...]:
    sizes = (item.state_bytes, item.activation_bytes, item.memory_bytes, item.sent_bytes)
    return (
        item.strategy,
        str(item.ranks),
        f"{item.parameters:,}",
        *(f"{size / 1e9:.3f}" for size in sizes),
    )
