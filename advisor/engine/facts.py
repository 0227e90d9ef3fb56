"""Turns the tables of a run into what every rule and the verdict share: times, noise, summary."""

from typing import NamedTuple

from advisor.engine.sandbox import Sandbox
from advisor.findings import RunSummary
from advisor.store import Store
from advisor.vocabulary.words import unit_words

_RECORDINGS = {"kineto", "op-table", "nsys"}  # formats that hold steps
_FACTS = """
SELECT facts.*,
  (SELECT max(try_cast(metadata AS JSON) ->> '$.advisor.built_by.ddp') FROM rank) AS made_by,
  (SELECT trainer FROM wrapper) AS trainer,
  coalesce(round_even((SELECT min(ns) FROM (SELECT median(greatest(0, compute_ns
    - coalesce(hidden_comm_ns, 0))) AS ns FROM rank_step GROUP BY rank)), 0), 0)::BIGINT
    AS compute_alone_ns,
  coalesce(CASE WHEN timeline = 'host' THEN 1 - (SELECT max(wait_ns) FROM core_wait) / step_ns END,
    1)::DOUBLE AS running_share,
  coalesce(source = 'whole-trace', false) AS whole_trace,
  coalesce(source = 'collective-period', false) AS by_pattern
FROM facts, (SELECT any_value(source) AS source FROM all_step)
"""


class Facts(NamedTuple):
    """The run at a glance (view ``facts``); times in ns. None where it cannot be told."""

    ranks_read: int
    world_size: int | None
    hosts: int
    timeline: str | None
    backend: str | None
    residual_ns: int
    steps: int
    step_ns: int | None
    noise_ns: int | None
    profiler_ns: int = 0
    purpose: str | None = None
    is_torch: bool = True
    is_amd: bool = False
    made_by: str | None = None
    """The library whose code builds DDP; '' where the script does, None where nothing tells."""
    trainer: str | None = None
    """What wraps the model (view ``wrapper``), None where no range of it was recorded."""
    compute_alone_ns: int = 0
    """How long compute runs and communication does not in a typical step of the rank where that is
    least: what makes communication faster takes none of it away."""
    running_share: float = 1.0
    """Of a CPU's step: what is left without the longest wait for a core. With its cores free a job
    loses as little as that of whatever it loses here; what no longer asks for them leaves them to
    the rest."""
    whole_trace: bool = False
    """No steps are marked: the whole trace is taken as one."""
    by_pattern: bool = False
    """No steps are marked, nor is what ends one: what repeats is taken as one."""

    def words(self) -> dict[str, str]:
        """What texts say of a step of this run (vocabulary.words)."""
        return unit_words(self.whole_trace)

    @property
    def own_share(self) -> float:
        """Of a CPU's recorded step: what the steps before took. A device hides its host's part."""
        if self.timeline != "host" or not self.step_ns:
            return 1.0
        return 1 - self.profiler_ns / self.step_ns

    @property
    def all_ranks(self) -> bool:
        """Every rank of the job was recorded, as far as the recordings say."""
        return self.world_size is not None and self.ranks_read >= self.world_size


def read_facts(sandbox: Sandbox) -> Facts:
    """The one row of the view ``facts``, and what else is asked of every run."""
    (row,) = sandbox.records(_FACTS)
    return Facts(**row)


def ranks_not_read(sandbox: Sandbox, facts: Facts) -> list[int]:
    """Numbers of the job's ranks without a recording of their device's work; none where its size
    is not known."""
    seen = "SELECT rank FROM rank ANTI JOIN blind_rank USING (rank)"
    read = {row["rank"] for row in sandbox.records(seen)}
    return [rank for rank in range(facts.world_size or 0) if rank not in read] if read else []


def summarise(store: Store, sandbox: Sandbox, facts: Facts) -> RunSummary:
    """What was read and which steps were used."""
    run = sandbox.run
    inputs = store.con.execute(
        "SELECT path, format FROM source WHERE run = ? ORDER BY source_id", [run]
    ).fetchall()
    (ranks, read, dropped) = store.con.execute(
        "SELECT count(*), coalesce(sum(events_read), 0), coalesce(sum(events_dropped), 0) "
        "FROM rank WHERE run = ?",
        [run],
    ).fetchone() or (0, 0, 0)
    steps = sandbox.records("SELECT step, complete, source FROM all_step ORDER BY step")
    return RunSummary(
        run=run,
        ranks_read=int(ranks),
        world_size=facts.world_size,
        steps_complete=sum(bool(row["complete"]) for row in steps),
        steps_partial=sum(not row["complete"] for row in steps),
        step_ns_median=facts.step_ns,
        step_source=steps[0]["source"] if steps else "none",
        events_read=int(read),
        events_dropped=int(dropped),
        inputs=[path for path, _ in inputs],
        recordings=[path for path, form in inputs if form in _RECORDINGS],
    )
