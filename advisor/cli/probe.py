"""``advisor probe``: what the links of this machine or cluster really give."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click

from advisor.cli import _options as options
from advisor.cli._options import ABOVE_ZERO, POSITIVE, option
from advisor.errors import AdvisorError

_LOOPBACK = """\
All ranks share this machine's CPU and memory: no link was measured. Other load on it makes pairs
uneven; probe between machines, or again while it is idle."""
_TWO_HOSTS = """\
Two hosts have one link: there is no other to compare it with. Probe three or more hosts at once."""
_ONCE = "Probe again: a link is slow where it comes out slow every time; other load shows once."


@options.command(epilog="Example:  advisor probe --nproc 4 -o probe.json")
def command(
    nproc: int = option(default=2, show_default=True, type=POSITIVE, help="Ranks here."),
    nnodes: int = option(default=1, show_default=True, type=POSITIVE, help="Machines."),
    node_rank: int = option(default=0, show_default=True, help="Which machine this is."),
    rdzv_endpoint: str = option(default="", help="host:port of machine 0, with --nnodes."),
    output: Path = option("-o", "--output", default=Path("probe.json"), show_default=True),
    form: Literal["text", "json"] = option("--format", default="text"),
    timeout: float = option(
        type=ABOVE_ZERO, default=600.0, show_default=True, help="Seconds in all."
    ),
    force: bool = option(help="Replace an existing result."),
) -> int:
    """Measure alpha, beta and every link (or three rounds of pairs) on the backend found.

    NCCL where there are GPUs, else gloo. Pass the result to `advisor diagnose` with the traces.
    """
    if output.exists() and not force:
        raise AdvisorError("already exists", where=str(output), hint="pass --force to replace it")
    if nnodes > 1 and not rdzv_endpoint:
        raise AdvisorError("--nnodes needs --rdzv-endpoint", hint="host:port of machine 0")
    if nproc * nnodes < 2:
        raise AdvisorError("one rank has no link", hint="--nproc 2, or more machines with --nnodes")
    _launch(nproc, nnodes, node_rank, rdzv_endpoint, output, timeout)
    if node_rank != 0:
        return 0
    document = json.loads(output.read_text(encoding="utf-8"))
    if form == "json":
        click.echo(json.dumps(document, indent=1))
    else:
        click.echo(_text(document))
    click.echo(f"Wrote {output}", err=True)
    return 0


def _launch(
    nproc: int, nnodes: int, node_rank: int, endpoint: str, output: Path, timeout: float
) -> None:
    where = ["--standalone"] if nnodes == 1 else ["--rdzv-backend=static", "--rdzv-id=probe"]
    if nnodes > 1:
        where += [f"--rdzv-endpoint={endpoint}", f"--node-rank={node_rank}"]
    command_line = [
        *(sys.executable, "-m", "torch.distributed.run", *where),
        *(f"--nnodes={nnodes}", f"--nproc-per-node={nproc}"),
        *("-m", "advisor.profile.probe", str(output)),
    ]
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    if nnodes == 1:
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        done = subprocess.run(
            command_line,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise AdvisorError(f"the probe did not end within {timeout:g} s") from error
    if "No module named torch" in done.stderr:
        raise AdvisorError("torch is not installed", hint="pip install 'nccl-advisor[profile]'")
    if done.returncode != 0 or (node_rank == 0 and not output.exists()):
        lines = [line for line in done.stderr.splitlines() if "Error" in line]
        raise AdvisorError(
            f"the probe failed: {lines[-1].strip() if lines else 'no message'}",
            hint="check that the ranks reach each other (GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME)",
        )


def _text(document: dict[str, Any]) -> str:
    from statistics import median

    lines = [f"{document['backend']} on {document['device']}, {document['world_size']} ranks", ""]
    lines.append(f"{'operation':16s}{'bytes':>12s}{'time us':>12s}{'algbw GB/s':>12s}")
    for row in document["collectives"]:
        time_us = median(row["times_us"])
        rate = row["bytes"] / time_us / 1e3
        lines.append(f"{row['op']:16s}{row['bytes']:>12,d}{time_us:>12.1f}{rate:>12.3f}")
    return "\n".join([*lines, "", *_links(document)])


def _links(document: dict[str, Any]) -> list[str]:
    """Rates of links between hosts and inside them, what is slow among its like, and caveats."""
    from advisor.metrics.links.durations import FEWEST_CALLS
    from advisor.metrics.links.pair_hosts import compare

    hosts = dict(enumerate(document["hosts"]))
    pairs = pairs_of(document)
    across = [pair for pair in pairs if hosts[pair.src] != hosts[pair.dst]]
    inside = [pair for pair in pairs if hosts[pair.src] == hosts[pair.dst]]
    of_both = ((across, " between hosts"), (inside, " inside hosts"))
    lines = [_rates(some, where if across else "") for some, where in of_both if some]
    found = compare(pairs, hosts)
    # Between processes of one machine gloo goes through memory: there is no link to be slow.
    loopback = document["device"] == "cpu"
    names = {number: f"host {name}" for number, name in enumerate(found.names)}
    ranks = {rank: f"{rank} ({host})" for rank, host in hosts.items()}
    slow = [_line("SLOW", one, names) for one in found.of_hosts]
    slow += [_line("SLOW", one, ranks) for one in found.of_ranks]
    inner = () if loopback and across else found.inside
    uneven = [_line("UNEVEN" if loopback else "SLOW", one, ranks) for one in inner]
    lines += slow + uneven
    if 0 < found.directions < FEWEST_CALLS:
        lines.append(_TWO_HOSTS)
    if not slow and not uneven:
        lines.append("no link stands out")
    if uneven and loopback and not across:
        lines.append(_LOOPBACK)
    elif slow or uneven:
        lines.append(_ONCE)
    return lines


def _rates(pairs: Sequence[Any], where: str) -> str:
    from statistics import median

    rates = [1 / pair.ns_per_byte for pair in pairs]
    return f"{len(pairs)} links{where}: median {median(rates):.3f} GB/s, slowest {min(rates):.3f}"


def _line(label: str, suspect: Any, names: dict[int, str]) -> str:
    place = " -> ".join(names[end] for end in suspect.ranks)
    count = f"{suspect.pairs} pair{'s' if suspect.pairs != 1 else ''}, measured once"
    return (
        f"{label:9s}{suspect.kind} {place}: {suspect.gbps:.3f} GB/s, "
        f"others {suspect.expected_gbps:.3f} GB/s ({count})"
    )


def pairs_of(document: dict[str, Any]) -> Sequence[Any]:
    """Pairs of a probe's result."""
    from advisor.metrics.links.pair_timings import timed_pairs

    by_pair: dict[tuple[int, int], dict[int, float]] = {}
    for row in document["pairs"]:
        times = by_pair.setdefault((row["src"], row["dst"]), {})
        times[int(row["bytes"])] = float(row["round_trip_us"]) * 1e3
    return timed_pairs(by_pair)
